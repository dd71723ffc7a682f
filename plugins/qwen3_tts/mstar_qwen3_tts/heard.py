"""A voice that was heard, as numbers or as a recording: what a base model imitates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from attrs import frozen

from mstar_core.errors import RequestError, Words
from mstar_qwen3_tts.config import RECORDED_FRAMES, TtsConfig


class Heard(Protocol):
    """A voice to imitate."""

    @property
    def text(self) -> str | None:
        """What is said, where its codes are used."""
        ...

    @property
    def ids(self) -> Sequence[int]:
        """The same as the ids of a turn, in its place."""
        ...

    @property
    def num_frames(self) -> int:
        """Frames of codes; 0 where the speaker's vector is all that is used."""
        ...

    def check(self, config: TtsConfig) -> None:
        """Raise RequestError for what does not fit the model."""
        ...

    def arrays(self, config: TtsConfig) -> dict[str, np.ndarray]:
        """What a request brings of it."""
        ...


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

    @property
    def num_frames(self) -> int:
        """Frames of codes."""
        return 0 if self.codes is None else len(self.codes)

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
        fits = whole and 1 <= len(codes) <= RECORDED_FRAMES
        if not fits or codes.min() < 0 or codes.max() >= most:
            got = f"{codes.dtype} {list(codes.shape)}"
            want = f"1 to {RECORDED_FRAMES} frames of {groups} codes from 0 to {most - 1}"
            raise _wrong("heard.codes", got, want)

    def arrays(self, config: TtsConfig) -> dict[str, np.ndarray]:
        """``speaker`` ``[1, hidden]``; with codes ``reference`` and ``reference_at`` too."""
        found: dict[str, np.ndarray] = {"speaker": np.asarray(self.speaker, np.float32)[None]}
        if self.codes is not None:
            found["reference"] = np.asarray(self.codes, np.int64)
            found["reference_at"] = np.arange(self.num_frames)
        return found


def check_heard(heard: Heard | None, config: TtsConfig) -> None:
    """Raise RequestError where a voice to imitate is missing, is too much, or does not fit."""
    check_wanted(heard is not None, config)
    if heard is not None:
        heard.check(config)


def check_wanted(given: bool, config: TtsConfig) -> None:
    """Raise RequestError where a voice to imitate is ``given`` to a model that does not imitate,
    or is not given to one that does."""
    if given != config.imitates:
        raise RequestError(
            where="reference",
            got=Words("a voice to imitate" if given else "no voice"),
            want="none: it does not imitate" if given else "a recording of the voice to imitate",
            fix="use a Base checkpoint"
            if given
            else "give one, or use a CustomVoice or VoiceDesign checkpoint",
        )


def _wrong(where: str, got: str, want: str) -> RequestError:
    fix = "give what the encoders of this model make of the recording"
    return RequestError(where=where, got=Words(got), want=want, fix=fix)
