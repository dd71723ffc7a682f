"""A request's text, as its tokens are read: whole characters, up to the first stop string."""

from __future__ import annotations

from collections.abc import Iterator

from mstar_core.engine.engine import Engine
from mstar_core.engine.events import FinishEvent, TokenEvent
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.text import TextDelta, TextStream


def stream_text(engine: Engine, request: Request) -> Iterator[TextDelta]:
    """Pieces of text; the last has the finish reason. Their sum is the text before a stop.

    A stop string ends the request in the engine too. Raises RequestError where the request is
    refused at the door, and where it fails: behind the text that it had until then.
    """
    text = TextStream(engine.front.decode, stops=request.stop)
    kept = 0
    for event in engine.stream(request):
        if isinstance(event, FinishEvent):
            yield text.finish(event.reason)
            if event.error is not None:
                raise RequestError.of_facts(event.error)
            return
        if not isinstance(event, TokenEvent):
            continue
        delta = text.push([event.token])
        kept += delta.num_tokens
        yield delta
        if delta.finish_reason is not None:
            engine.stop(request.id, kept)
            return
