"""One answer of ``mstar-core generate``, shown as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from attrs import define, field

from mstar_core.errors import RequestError
from mstar_core.text import TextDelta
from mstar_core.text.stream import FinishReason


@define
class Said:
    """What the model has said so far."""

    shows: bool
    """Each piece is printed as it comes."""
    pieces: list[str] = field(factory=list)
    tokens: int = 0
    first_s: float = 0.0
    seconds: float = 0.0
    reason: FinishReason | None = None
    failed: RequestError | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)

    @property
    def is_empty(self) -> bool:
        """It ended well, and no text came."""
        return self.failed is None and not self.text

    def follow(self, deltas: Iterable[TextDelta]) -> None:
        """Take in all pieces. Raises RequestError where it fails before the first."""
        begin = time.perf_counter()
        try:
            for delta in deltas:
                self.first_s = self.first_s or time.perf_counter() - begin
                self.tokens += delta.num_tokens
                self.reason = delta.finish_reason or self.reason
                self.pieces.append(delta.text)
                if self.shows:
                    print(delta.text, end="", flush=True)
        except RequestError as error:
            if not self.pieces:
                raise
            self.failed = error
        self.seconds = time.perf_counter() - begin

    def speed(self) -> str:
        """How fast it came."""
        return (
            f"{self.tokens} tokens in {self.seconds:.2f} s "
            f"({self.tokens / self.seconds:.1f} tokens/s), "
            f"the first after {self.first_s:.3f} s; ended by {self.reason}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Of plain values."""
        return {"text": self.text, "tokens": self.tokens, "finish_reason": self.reason}
