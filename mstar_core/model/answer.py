"""A chat model's answer, taken apart as it comes: what is said, what is thought, which tools."""

from __future__ import annotations

from typing import Protocol

from attrs import field, frozen


@frozen(kw_only=True)
class ToolCall:
    """A tool that the model calls."""

    name: str
    arguments: str
    """JSON text of an object."""


@frozen(kw_only=True)
class Part:
    """What one piece of text adds to the answer. The pieces of each kind join to the whole."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = field(default=())
    """Calls that are now complete, in order."""


class Answer(Protocol):
    """Takes the text of one answer apart; no character is lost or given twice."""

    def push(self, text: str) -> Part:
        """More text; what can only be told apart later is held back."""
        ...

    def finish(self) -> Part:
        """The text is over: all that is held. A call that was cut off is given as content."""
        ...


class PlainAnswer:
    """An answer that is content from its first character to its last."""

    def push(self, text: str) -> Part:
        return Part(content=text)

    def finish(self) -> Part:
        return Part()
