"""What a request is told that the engine ends before its own end."""

from __future__ import annotations

from mstar_core.errors import RequestError, Words
from mstar_core.sched import RequestState


def late(state: RequestState) -> RequestError:
    """Its deadline has passed."""
    return RequestError(
        where=f"request {state.id}, deadline_s",
        got=Words(f"{len(state.tokens)} of {state.request.max_new_tokens} tokens in time"),
        want=f"an end within {state.request.deadline_s} seconds of its arrival",
        fix="allow more time, or ask for fewer tokens",
    )


def stuck(state: RequestState) -> RequestError:
    """No request can run on, and none may yield."""
    return RequestError(
        where=f"request {state.id}",
        got=Words("no memory for any step, and nobody that may yield"),
        want="memory for its next step",
        fix="raise limits.host_offload_bytes or the number of pages, or set engine.admission: "
        "reserve",
    )
