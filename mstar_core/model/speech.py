"""Text that is spoken in parts, one behind the other, as one sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

FADE_S = 0.005
"""Seconds in which the sound of a part ends, and that of the next begins, at a joint."""


def voices_of(traits: Mapping[str, Any]) -> dict[str, Any]:
    """What the ``traits`` of a front that speaks say of its voices: lists, names or None."""
    return {
        "voices": list(traits.get("voices", ())),
        "default_voice": traits.get("default_voice"),
        "languages": list(traits.get("languages", ())),
        "default_language": traits.get("default_language"),
        "sample_rate": int(traits["sample_rate"]),
    }


class Joined:
    """The sounds of parts as one: as many samples as the parts have, and no step between them.

    The last samples of a part that has another behind it become silent, and so do the first of that
    other; the beginning of the first part and the end of the last stay as they are.
    """

    def __init__(self, rate: int) -> None:
        """``rate``: samples per second."""
        self._fade_T = np.linspace(0.0, 1.0, max(1, int(FADE_S * rate)), dtype=np.float32)
        self._held_T = np.empty(0, dtype=np.float32)
        """The last samples of a part that another will follow."""
        self._risen: int | None = None
        """Samples of this part that have risen out of silence; None: it begins as it does."""

    def push(self, samples_T: np.ndarray, *, last: bool) -> np.ndarray:
        """More of the part that is spoken; ``last``: no other will follow it.

        float32 ``[T]`` in and out: what is certain by now.
        """
        samples_T = self._rise(samples_T.astype(np.float32, copy=False))
        if last:
            return samples_T
        held_T = np.concatenate([self._held_T, samples_T])
        cut = max(0, len(held_T) - len(self._fade_T))
        self._held_T = held_T[cut:]
        return held_T[:cut]

    def end(self) -> np.ndarray:
        """The part is over: what is left of it, float32 ``[T]``."""
        held_T, self._held_T = self._held_T, np.empty(0, dtype=np.float32)
        self._risen = 0
        return held_T * self._fade_T[::-1][len(self._fade_T) - len(held_T) :]

    def _rise(self, samples_T: np.ndarray) -> np.ndarray:
        if self._risen is None or self._risen >= len(self._fade_T):
            return samples_T
        rise_T = self._fade_T[self._risen :][: len(samples_T)]
        self._risen += len(rise_T)
        return np.concatenate([samples_T[: len(rise_T)] * rise_T, samples_T[len(rise_T) :]])
