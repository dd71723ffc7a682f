"""The end of every text route: its choices as one body, or as a stream of events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field
from starlette.responses import Response

import mstar_core
from mstar_core.model.answer import Answer, ToolCall
from mstar_core.model.front import Front, Request
from mstar_core.serving.asking import num_prompt_tokens, numbered
from mstar_core.serving.choices import Choice, Piece, Scored
from mstar_core.serving.chunks import Chunks
from mstar_core.serving.codec import to_json
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.fields import Sampled
from mstar_core.serving.runs import Run
from mstar_core.serving.sse import DONE
from mstar_core.serving.streaming import Stream, attended
from mstar_core.text import TextStream

MARK = f"mstar-{mstar_core.__version__}"


@define(eq=False)
class Whole:
    """All that was said of one choice."""

    choice: Choice
    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(factory=list)
    scored: list[Scored] = field(factory=list)

    @classmethod
    def of(cls, choice: Choice, pieces: Sequence[Piece]) -> Whole:
        """The pieces of one choice, put together."""
        return cls(
            choice,
            "".join(piece.content for piece in pieces),
            "".join(piece.reasoning for piece in pieces),
            [call for piece in pieces for call in piece.calls],
            [scored for piece in pieces for scored in piece.scored],
        )


Write = Callable[[Sequence[Whole], Mapping[str, Any]], object]
"""Wholes, and the fields of ``protocol.fields.Made`` → the answer of a route."""


def choices_of(
    front: Front,
    body: Sampled,
    requests: Sequence[Request],
    n: int,
    answer: Callable[[Request], Answer],
) -> list[Choice]:
    """``n`` choices for each of ``requests``, in order."""
    choices: list[Choice] = []
    named = frozenset(body.stop_token_ids or ())
    for request in requests:
        first = None
        for index in range(n):
            own = numbered(request, index)
            choice = Choice(
                index=len(choices),
                request=own,
                text=TextStream(
                    front.decode,
                    stops=own.stop,
                    stop_ids=named,
                    include_stop=bool(body.include_stop_str_in_output),
                ),
                answer=answer(own),
                first=first,
            )
            first = first or choice
            choices.append(choice)
    return choices


async def answered(
    exchange: Exchange,
    body: Sampled,
    choices: Sequence[Choice],
    chunks: type[Chunks],
    write: Write,
    prefix: str,
) -> Response:
    """Run ``choices``: a stream of ``chunks`` where the body asks for one, else what ``write``
    makes of them. Raises ApiError, and ClientDisconnect.
    """
    front, card = exchange.service.loaded()
    requests = [choice.request for choice in choices]
    exchange.admit(tokens=sum(num_prompt_tokens(r) + r.max_new_tokens for r in requests))
    run = Run(exchange=exchange, front=front, choices=choices)
    made = {
        "id": f"{prefix}-{exchange.id}",
        "created": int(time.time()),
        "model": card.name,
        "system_fingerprint": MARK,
    }
    if body.stream:
        asked = body.stream_options is not None and bool(body.stream_options.include_usage)
        writer = chunks(front, made, usage=asked)
        stream = Stream(exchange)
        return await stream.begin(_streamed(run, stream, writer, body))
    pieces: list[list[Piece]] = [[] for _ in choices]
    await attended(exchange, run.to_end(lambda choice, piece: pieces[choice.index].append(piece)))
    more = {"usage": run.used, **({"timings": run.timings()} if body.timings else {})}
    wholes = [Whole.of(*pair) for pair in zip(choices, pieces, strict=True)]
    return Response(to_json(write(wholes, made | more)), media_type="application/json")


async def _streamed(run: Run, stream: Stream, writer: Chunks, body: Sampled) -> None:
    await run.to_end(lambda choice, piece: stream.write(writer.piece(choice, piece)))
    last: dict[str, Any] = {"usage": run.used} if writer.usage else {}
    if body.timings:
        last["timings"] = run.timings()
    stream.write((writer.last(**last) if last else b"") + DONE)
