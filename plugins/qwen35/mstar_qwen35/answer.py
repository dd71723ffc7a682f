"""A Qwen3.5 answer taken apart as it comes: reasoning, what is said, calls of tools.

::

    <think>            only where the prompt has not opened it
    reasoning
    </think>

    what is said

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A call may also be written ``{"name": ..., "arguments": {...}}``, and may come while the model still
thinks. What is dropped is the tags, the line breaks that belong to them, and blanks beside a call;
all else is given, each character once. A tag that begins no block is text like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mstar_core.model.answer import Part, ToolCall
from mstar_qwen35.calls import BLANKS, begins_call, call_of

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"

Block = Literal["start", "thought", "said", "call"]


class Qwen35Answer:
    """One answer. ``thinking``: the prompt has opened the reasoning. ``tools``: what may be called,
    in OpenAI's form; without any nothing is a call."""

    def __init__(self, *, thinking: bool, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._tools = tools
        self._block: Block = "thought" if thinking else "start"
        self._outside: Block = "said"
        """Where a call stands."""
        self._blanks = ""
        """In front of a call."""
        self._dropped, self._num_dropped = "", 0
        """Characters that belong to the last tag, and how many of them may still come."""
        self._scanned = 0
        """Characters of a call that have been looked at for its end."""
        self._held = ""
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[ToolCall] = []

    def push(self, text: str) -> Part:
        self._held += text
        return self._part(is_over=False)

    def finish(self) -> Part:
        return self._part(is_over=True)

    def _part(self, is_over: bool) -> Part:
        while self._held and self._advance(is_over):
            pass
        part = Part(
            content="".join(self._said),
            reasoning="".join(self._thought),
            calls=tuple(self._calls),
        )
        self._said, self._thought, self._calls = [], [], []
        return part

    def _advance(self, is_over: bool) -> bool:
        """Take a piece off what is held; False: more text must come first."""
        self._drop()
        if not self._held:
            return False
        if self._block == "start":
            return self._start(is_over)
        return self._call(is_over) if self._block == "call" else self._text(is_over)

    def _start(self, is_over: bool) -> bool:
        text = self._held.lstrip(BLANKS)
        if text.startswith(THINK):
            self._enter("thought", text[len(THINK) :], "\n", 1)
        elif is_over or not THINK.startswith(text):
            self._block = "said"
        else:
            return False
        return True

    def _text(self, is_over: bool) -> bool:
        ends = [END_THINK] if self._block == "thought" else []
        marks = [*ends, CALL] if self._tools else ends
        found = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
        if not found:
            self._give(len(self._held) if is_over else self._settled(marks))
            return False
        at, mark = min(found)
        behind = self._held[at + len(mark) :]
        if mark == END_THINK:
            self._say(self._held[:at].removesuffix("\n"))
            self._enter("said", behind, "\n", 2)
            return True
        begins = begins_call(behind)
        if begins is None and not is_over:
            self._give(len(self._held[:at].rstrip(BLANKS)))
            return False
        if not begins:
            self._give(at + len(mark))
            return True
        before = self._held[:at].rstrip(BLANKS)
        self._say(before)
        self._blanks, self._outside, self._scanned = self._held[len(before) : at], self._block, 0
        self._enter("call", behind, "", 0)
        return True

    def _call(self, is_over: bool) -> bool:
        at = self._held.find(END_CALL, self._scanned)
        if at < 0 and not is_over:
            self._scanned = max(self._scanned, len(self._held) - len(END_CALL))
            return False
        body = self._held if at < 0 else self._held[:at]
        call = call_of(body, self._tools)
        if call == "open" and at >= 0:  # a value that has the tag in it
            self._scanned = at + 1
            return True
        if isinstance(call, ToolCall):
            self._calls.append(call)
            self._enter(self._outside, self._held[len(body) + len(END_CALL) :], BLANKS, 1 << 62)
        elif at < 0:
            self._said.append(self._blanks + CALL + body)
            self._held = ""
        else:
            self._block = self._outside
            self._say(self._blanks + CALL)
            self._give(at + len(END_CALL))
        return True

    def _settled(self, marks: Sequence[str]) -> int:
        """How much of what is held can be no part of a mark, whatever comes."""
        text = self._held
        if not marks:
            return len(text)
        if CALL in marks:
            open_end = max(_open_end(text, mark) for mark in marks)
            return len(text[: len(text) - open_end].rstrip(BLANKS))
        return len(text) - max(_open_end(text, END_THINK), _open_end(text, "\n" + END_THINK))

    def _enter(self, block: Block, held: str, dropped: str, num_dropped: int) -> None:
        self._block, self._held = block, held
        self._dropped, self._num_dropped = dropped, num_dropped

    def _drop(self) -> None:
        left = self._held.lstrip(self._dropped) if self._num_dropped else self._held
        num = min(len(self._held) - len(left), self._num_dropped)
        self._held = self._held[num:]
        self._num_dropped = 0 if self._held else self._num_dropped - num

    def _give(self, size: int) -> None:
        self._say(self._held[:size])
        self._held = self._held[size:]

    def _say(self, text: str) -> None:
        (self._thought if self._block == "thought" else self._said).append(text)


def _open_end(text: str, mark: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``mark``, and not all of it."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
