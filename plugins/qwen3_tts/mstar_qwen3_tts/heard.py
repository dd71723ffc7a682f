"""A voice that was heard, in numbers: what a base model imitates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from mstar_core.errors import RequestError, Words
from mstar_qwen3_tts.config import TtsConfig


@frozen(kw_only=True, eq=False)
class HeardVoice:
    """What the published encoders say of a recording of a voice."""

    speaker: np.ndarray
    """float32 ``[hidden]``, the speaker's vector."""
    codes: np.ndarray | None = None
    """int64 ``[frames, 16]``, the recording's codes; None: the speaker's vector is all there is."""
    text: str | None = None
    """What is said in the recording; with ``codes`` it has to be told."""
    ids: Sequence[int] = ()
    """The same as the ids of a turn, in its place."""

    def check(self, config: TtsConfig) -> None:
        """Raise RequestError for numbers of another shape or range than the model's."""
        hidden, groups = config.talker.hidden, config.code_groups
        if self.speaker.shape != (hidden,) or not np.isfinite(self.speaker).all():
            got, want = f"{list(self.speaker.shape)} numbers", f"{hidden} finite numbers"
            raise _wrong("heard.speaker", got, want)
        if self.codes is None:
            return
        if not self.text and not self.ids:
            raise _wrong("heard.text", "nothing", "what is said in the recording")
        codes, most = np.asarray(self.codes), config.predictor_vocab
        whole = codes.dtype.kind == "i" and codes.ndim == 2 and codes.shape[1] == groups
        if not whole or not len(codes) or codes.min() < 0 or codes.max() >= most:
            got = f"{codes.dtype} {list(codes.shape)}"
            raise _wrong("heard.codes", got, f"frames of {groups} codes from 0 to {most - 1}")


def check_heard(heard: HeardVoice | None, config: TtsConfig) -> None:
    """Raise RequestError where a voice to imitate is missing, is too much, or does not fit."""
    if (heard is not None) != config.imitates:
        raise RequestError(
            where="heard",
            got=Words("no voice" if heard is None else "a voice to imitate"),
            want="a voice that was heard" if config.imitates else "none: it does not imitate",
            fix="give heard, or use a CustomVoice or VoiceDesign checkpoint"
            if heard is None
            else "use a Base checkpoint",
        )
    if heard is not None:
        heard.check(config)


def _wrong(where: str, got: str, want: str) -> RequestError:
    fix = "give what the encoders of this model make of the recording"
    return RequestError(where=where, got=Words(got), want=want, fix=fix)
