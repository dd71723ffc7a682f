"""What a shortage is answered with: who yields, and whether its past is copied or run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mstar_core.sched.request import RequestState

FLOPS_PER_BYTE = 8000
"""What a device computes while it copies one byte to or from its host: 200 Tflop/s at 25 GB/s."""


def victim_for(
    row: RequestState, running: Sequence[RequestState], may_yield: Callable[[RequestState], bool]
) -> RequestState | None:
    """The youngest of ``running`` (by rank) that is younger than ``row`` and may yield."""
    for state in reversed(running):
        if state.rank <= row.rank:
            return None
        if may_yield(state):
            return state
    return None


def is_cheaper_to_run(tokens: int, parameters: int, num_bytes: int) -> bool:
    """Whether ``tokens`` run again sooner than ``num_bytes`` are copied out and back in.

    A token costs two operations per parameter of the model; a byte travels twice.
    """
    return 2 * tokens * parameters < 2 * num_bytes * FLOPS_PER_BYTE
