"""Text in, a request in numbers out. Free of torch and of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mstar_core.errors import ConfigError, RequestError, Words
from mstar_core.model.front import Front, Request
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.defaults import Defaults
from mstar_qwen3_tts.heard import Heard, check_heard, check_wanted
from mstar_qwen3_tts.options import Qwen3TTSOptions
from mstar_qwen3_tts.prompt import AUTO, ROLE, TAIL, Wishes, language_id, prompt_arrays, speaker_of
from mstar_qwen3_tts.recording import Recording
from mstar_qwen3_tts.turns import HEARD, INSTRUCTION, TURN, Turns

REFERENCE = ("reference", "reference_rate", "reference_text", "speaker_only")


class Qwen3TTSFront(Front):
    """Speaks text with a named voice, or as an instruction describes it."""

    def __init__(self, folder: Path, config: TtsConfig, options: Qwen3TTSOptions) -> None:
        self.folder, self.config, self.options = folder, config, options
        self.stop_ids, self.turns = frozenset({config.codec.eos}), Turns(folder)
        self.speech_chars = options.part_chars

    def speech_request(
        self,
        text: str,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        language: str | None = None,
        instructions: str | None = None,
        **options: Any,
    ) -> Request:
        """A request that speaks ``text``.

        ``language`` is a name of ``traits``; ``instructions`` say in words how to speak.
        ``options`` are those of :meth:`ids_request`, and of a base model those of :meth:`heard`.
        Raises RequestError for text that is empty, a voice or language that the model does not
        have, and what it cannot do.
        """
        options = self._hearing(options)
        if not isinstance(text, str) or not text.strip():
            raise RequestError(
                where="input", got=text, want="text to be spoken", fix="write what is to be said"
            )
        if speed != 1.0:
            raise RequestError(
                where="speed",
                got=speed,
                want="1: the model speaks at its own pace",
                fix="leave it out, or say how fast to speak in instructions",
            )
        options |= {"voice": voice, "language": language}
        instruct = self._instruction(instructions)
        return self.ids_request(self.turns.ids(TURN, text, "input"), instruct=instruct, **options)

    def speech_requests(self, text: str, **options: Any) -> list[Request]:
        return super().speech_requests(text, **self._hearing(options))

    def heard(
        self,
        reference: np.ndarray,
        reference_rate: int,
        reference_text: str | None = None,
        speaker_only: bool = False,
    ) -> Recording:
        """The voice of a recording, for any number of requests: their option ``heard``.

        ``reference``: float32 ``[T]`` or ``[T, channels]`` at ``reference_rate`` Hz, one second to
        thirty; ``reference_text``: all that is said in it. With ``speaker_only`` the text is not
        needed: the voice is imitated, and nothing of how it speaks there. Raises RequestError.
        """
        return Recording.of(
            reference, reference_rate, text=reference_text, speaker_only=speaker_only
        )

    def ids_request(
        self,
        ids: Sequence[int],
        *,
        voice: str | None = None,
        language: str | None = None,
        instruct: Sequence[int] = (),
        whole_text: bool | None = None,
        heard: Heard | None = None,
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> Request:
        """A request that speaks the turn ``ids``: role, text and what closes it.

        ``whole_text``: the model reads all of the text before it speaks; by default it does, unless
        it imitates a voice. ``heard`` is the voice that a base model imitates. ``options`` are
        fields of :class:`Request`. Raises RequestError as :meth:`speech_request` does.
        """
        check_heard(heard, self.config)
        speaker = speaker_of(self.config, voice or self.options.default_voice)
        wishes = Wishes(
            ids=ids,
            language=(language or self.options.default_language).lower(),
            speaker=speaker,
            instruct=instruct,
            whole_text=not self.config.imitates if whole_text is None else whole_text,
            heard=heard,
            heard_ids=self._heard_ids(heard),
        )
        arrays = prompt_arrays(self.config, wishes, self.options.script)
        settings, rules = self.defaults.applied(options.pop("sampling", None))
        room = max(1, self.config.max_context - len(arrays["text"]))
        most = min(room, self.defaults.frames(len(ids) - ROLE - TAIL))
        options.setdefault("stop_ids", self.stop_ids)
        return Request(
            arrays=arrays,
            max_new_tokens=most if max_new_tokens is None else max_new_tokens,
            sampling=settings,
            settings={"sampler_rules": rules},
            **options,
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Nothing: codes are sound."""
        return ""

    def default_sampling(self) -> dict[str, Any]:
        """What ``generation_config.json`` says of sampling."""
        return self.defaults.settings()

    def traits(self) -> dict[str, Any]:
        """Voices, languages and the rate of the sound."""
        return {
            "sample_rate": self.config.decoder.sample_rate,
            "voices": sorted(self.config.speakers),
            "default_voice": self.options.default_voice,
            "languages": [AUTO, *sorted(self.config.languages)],
            "default_language": self.options.default_language,
        }

    def speech_options(self) -> frozenset[str]:
        """Also ``reference``, where a base model imitates a recording: see :meth:`heard`."""
        own = {"reference"} if self.config.imitates else set()
        return frozenset({"language", "instructions"} | own)

    def check_options(self) -> None:
        """Raise ConfigError for a default voice or language that the model does not have."""
        voice, language = self.options.default_voice, self.options.default_language
        try:
            if voice is not None:
                speaker_of(self.config, voice)
            language_id(self.config, language, None)
        except RequestError as error:
            raise ConfigError(
                where=f"model.options.default_{error.where}",
                got=error.got,
                want=error.want,
                fix=error.fix,
            ) from None

    @cached_property
    def defaults(self) -> Defaults:
        """What the checkpoint says of sampling."""
        return Defaults.read(self.folder)

    def _instruction(self, instructions: str | None) -> Sequence[int]:
        if instructions is None or not instructions.strip():
            return ()
        if not self.config.obeys:
            raise RequestError(
                where="instructions",
                got=Words("an instruction"),
                want="none: this size speaks as it does",
                fix="leave it out, or use a model of 1.7B that is no base model",
            )
        return self.turns.ids(INSTRUCTION, instructions, "instructions")

    def _hearing(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """``options`` with a recording as the voice that it is of."""
        found = dict(options)
        given = {name: found.pop(name) for name in REFERENCE if name in found}
        if given.get("reference") is not None:
            check_wanted(True, self.config)
            found["heard"] = self.heard(**given)
        return found

    def _heard_ids(self, heard: Heard | None) -> Sequence[int]:
        """The turn of what was heard; empty where only the speaker's vector is used."""
        if heard is None or not heard.num_frames:
            return ()
        return heard.ids or self.turns.ids(HEARD, heard.text or "", "reference_text")
