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


def not_repeated(state: RequestState, first: int, token: int) -> RequestError:
    """It was run again, and went another way."""
    return RequestError(
        where=f"request {state.id}",
        got=Words(f"token {token} where its first run gave {first}"),
        want="the same tokens from the same prompt",
        fix="send the request again; a step that others were in had failed",
    )


def too_large(state: RequestState) -> RequestError:
    """Its step alone needs more memory than the device has left."""
    return RequestError(
        where=f"request {state.id}",
        got=Words("no memory on the device for its step alone"),
        want="a step that fits beside weights and pools",
        fix="lower engine.token_budget or engine.kv_memory",
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
