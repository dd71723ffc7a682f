"""The longest prompt that a graph may hold. It imports no torch."""

from __future__ import annotations

from typing import Any

from attrs import define

MAX_TOKENS = 512
"""In a graph a prompt is computed token by token: what that costs passes what a graph saves."""


@define(eq=False)
class Bound:
    """Tokens of a row that a captured bucket may hold."""

    tokens: int = MAX_TOKENS

    def read(self, config: Any) -> None:
        """Token counts that ``engine.capture.tokens`` lists are taken at their word."""
        listed = None if config is None else config.engine.capture.tokens
        self.tokens = max(MAX_TOKENS, *(listed or ()), 0)


CAPTURED = Bound()
"""Of the engine that was configured last."""
