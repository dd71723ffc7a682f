"""What a checkpoint says of sampling, and what becomes of a request that says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs
from attrs import frozen

from mstar_core.config.generation import FILE, generation_defaults
from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import CheckpointError, RequestError
from mstar_qwen3_tts.rules import REPETITION

MAX_FRAMES = 2048
"""Frames of one answer, where the checkpoint does not say."""
LEAST_FRAMES, FRAMES_A_TOKEN = 125, 25
"""An answer without a limit of its own has at most ten seconds, and two for each token of text: a
talker that never ends by itself ends there."""
_SAMPLING = ("temperature", "top_k", "top_p")


@frozen(kw_only=True)
class Defaults:
    """``generation_config.json`` of one folder; empty where it has none."""

    file: Path
    values: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises CheckpointError for a file that cannot be read."""
        return cls(file=folder / FILE, values=generation_defaults(folder))

    @property
    def penalty(self) -> float:
        """The repetition penalty."""
        return float(self.values.get("repetition_penalty", 1.0))

    def frames(self, tokens: int) -> int:
        """The most frames of an answer to ``tokens`` of text."""
        most: int = self.values.get("max_new_tokens", MAX_FRAMES)
        return min(most, LEAST_FRAMES + FRAMES_A_TOKEN * tokens)

    def settings(self) -> dict[str, Any]:
        """By the names of SamplingSettings; greedy where the file does not want sampling."""
        found = {"repetition_penalty": self.penalty}
        if self.values.get("do_sample"):
            given = {"temperature": 1.0, **self.values}
            found |= {name: given[name] for name in _SAMPLING if given.get(name) is not None}
        return found

    def applied(self, given: SamplingSettings | None) -> tuple[SamplingSettings, dict[str, bool]]:
        """The sampler's settings, and whether the rule of the checkpoint's own penalty applies.

        That rule runs where a penalty of the sampler's would not: in captured steps.
        """
        if given is None:
            given = self._own()
        own = given.repetition_penalty == self.penalty
        if own:
            given = attrs.evolve(given, repetition_penalty=1.0)
        return given, {REPETITION: own}

    def _own(self) -> SamplingSettings:
        try:
            return SamplingSettings(**self.settings())
        except RequestError as error:
            raise CheckpointError(
                where=f"{self.file}: {error.where}",
                got=error.got,
                want=error.want,
                fix="mend the file, or send sampling settings with the request",
            ) from error
