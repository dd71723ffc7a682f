"""Who yields to whom, and whether its past is copied or run again."""

import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.model.walks import Loop, Once, Sequence
from mstar_core.sched import RequestState
from mstar_core.sched.admission import rank_of
from mstar_core.sched.pressure import is_cheaper_to_run, victim_for
from mstar_core.sched.request import tracks_of

GRAPH = Sequence((Once("prefill"), Loop("decode")))


def state(number, priority=0):
    request = Request(arrays={"ids": np.zeros(4, np.int64)}, id=f"r{number}")
    return RequestState(
        request=request,
        number=number,
        tracks=tracks_of(GRAPH),
        rank=rank_of(0, priority, number),
    )


def always(state):
    return True


def test_the_youngest_yields_to_any_that_is_older():
    running = [state(n) for n in range(4)]
    assert victim_for(running[0], running, always) is running[3]
    assert victim_for(running[2], running, always) is running[3]


def test_nobody_yields_to_one_that_is_younger_and_never_the_oldest():
    running = [state(n) for n in range(4)]
    assert victim_for(running[3], running, always) is None
    assert all(victim_for(row, running, always) is not running[0] for row in running)


def test_a_higher_priority_is_older_than_what_came_before_it():
    urgent, first, second = state(2, priority=1), state(0), state(1)
    assert victim_for(first, [urgent, first], always) is None
    assert victim_for(urgent, [urgent, first, second], always) is second


def test_one_that_cannot_yield_is_passed_over():
    running = [state(n) for n in range(4)]
    assert victim_for(running[0], running, lambda one: one.number < 3) is running[2]
    assert victim_for(running[0], running, lambda one: False) is None


@pytest.mark.parametrize(
    ("tokens", "parameters", "num_bytes", "runs"),
    [
        (100, 750_000_000, 20_000_000, True),  # a small hybrid, early: the state weighs most
        (1000, 750_000_000, 32_000_000, False),  # later: many tokens, few bytes for each
        (1000, 27_000_000_000, 400_000_000, False),
        (10, 27_000_000_000, 160_000_000, True),
    ],
)
def test_a_short_past_of_many_bytes_is_run_again_and_a_long_one_copied(
    tokens, parameters, num_bytes, runs
):
    assert is_cheaper_to_run(tokens, parameters, num_bytes) is runs


def test_a_track_that_starts_again_keeps_what_was_accepted_and_nothing_else():
    (track,) = tracks_of(GRAPH)
    track.advance()
    track.done, track.sampled, track.accepted, track.unread = 5, 6, 6, 0
    track.row = object()
    track.restart(6)
    assert (track.walk, track.done, track.sampled, track.accepted) == ("prefill", 0, 6, 6)
    assert track.row is None
