"""Pieces of choices as events of a stream, put together from bytes: the hot path of a server."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from mstar_core.model.answer import ToolCall
from mstar_core.model.front import Front
from mstar_core.serving.choices import Choice, Piece
from mstar_core.serving.codec import to_json
from mstar_core.serving.protocol.chat import CalledFunction
from mstar_core.serving.protocol.chat import ToolCall as MadeCall
from mstar_core.serving.scores import chat_logprobs, text_logprobs
from mstar_core.serving.sse import unbroken


class Chunks:
    """Events of one request. All but the last have ``usage: null`` where usage was asked for."""

    kind = ""
    """The ``object`` of a chunk."""

    def __init__(self, front: Front, made: Mapping[str, object], *, usage: bool) -> None:
        self.usage = usage
        self._front = front
        self._head = b"data: " + unbroken(to_json({"object": self.kind, **made}))[:-1]
        self._tail = b'}],"usage":null}\n\n' if usage else b"}]}\n\n"
        self._fronts: dict[int, bytes] = {}

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        """The event of one piece."""
        raise NotImplementedError

    def last(self, **more: object) -> bytes:
        """An event without choices: ``usage``, ``timings``."""
        return self._head + b',"choices":[],' + to_json(more)[1:] + b"\n\n"

    def _front_of(self, index: int, more: bytes) -> bytes:
        """What all events of choice ``index`` begin with."""
        made = self._fronts.get(index)
        if made is None:
            made = self._head + b',"choices":[{"index":' + to_json(index) + more
            self._fronts[index] = made
        return made

    def _end_of(self, choice: Choice, piece: Piece) -> bytes:
        if piece.finish is None:
            return b',"finish_reason":null' + self._tail
        why = b',"finish_reason":"' + piece.finish.encode() + b'","stop_reason":'
        return why + unbroken(to_json(choice.stop)) + self._tail


class ChatChunks(Chunks):
    """Events of ``/v1/chat/completions``. The first of each choice has the role."""

    kind = "chat.completion.chunk"

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        is_first = choice.index not in self._fronts
        front = self._front_of(choice.index, b',"delta":{')
        parts = [b'"role":"assistant"'] if is_first else []
        if piece.content or (is_first and not piece.reasoning and not piece.calls):
            parts.append(b'"content":' + unbroken(to_json(piece.content)))
        if piece.reasoning:
            parts.append(b'"reasoning_content":' + unbroken(to_json(piece.reasoning)))
        if piece.calls:
            parts.append(b'"tool_calls":' + self._calls(choice, piece.calls))
        scores = b'},"logprobs":null'
        if piece.scored:
            told = to_json(chat_logprobs(self._front, piece.scored))
            scores = b'},"logprobs":' + unbroken(told)
        return front + b",".join(parts) + scores + self._end_of(choice, piece)

    def _calls(self, choice: Choice, calls: Sequence[ToolCall]) -> bytes:
        first = choice.num_calls - len(calls)
        made = [
            {"index": first + i, "id": c.id, "type": c.type, "function": c.function}
            for i, c in enumerate(map(made_call, calls))
        ]
        return unbroken(to_json(made))


class TextChunks(Chunks):
    """Events of ``/v1/completions``."""

    kind = "text_completion"

    def __init__(self, front: Front, made: Mapping[str, object], *, usage: bool) -> None:
        super().__init__(front, made, usage=usage)
        self._offsets: dict[int, int] = {}

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        scores = b',"logprobs":null'
        if piece.scored:
            offset = self._offsets.get(choice.index, 0)
            told = text_logprobs(self._front, piece.scored, offset)
            self._offsets[choice.index] = told.text_offset[-1] + len(told.tokens[-1])
            scores = b',"logprobs":' + unbroken(to_json(told))
        text = unbroken(to_json(piece.content))
        front = self._front_of(choice.index, b',"text":')
        return front + text + scores + self._end_of(choice, piece)


def made_call(call: ToolCall) -> MadeCall:
    """A call with an id that answers to it can name."""
    return MadeCall(
        id=f"call_{uuid.uuid4().hex[:24]}",
        function=CalledFunction(name=call.name, arguments=call.arguments),
    )
