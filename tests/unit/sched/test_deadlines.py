"""Deadlines by a clock that the test turns."""

import gc

import numpy as np

from mstar_core.model.front import Request
from mstar_core.model.walks import Loop, Once, Sequence
from mstar_core.sched import Deadlines, RequestState
from mstar_core.sched.request import tracks_of

GRAPH = Sequence((Once("prefill"), Loop("decode")))


def state(number, deadline_s):
    request = Request(arrays={"ids": np.zeros(4, np.int64)}, id=f"r{number}", deadline_s=deadline_s)
    return RequestState(request=request, number=number, tracks=tracks_of(GRAPH))


def test_each_is_late_once_the_earliest_first():
    now = [10.0]
    deadlines = Deadlines(lambda: now[0])
    states = [state(0, 5.0), state(1, 2.0), state(2, None), state(3, 2.0)]
    for one in states:
        deadlines.add(one)
    assert list(deadlines.over()) == []
    now[0] = 12.0
    assert list(deadlines.over()) == [states[1], states[3]]
    now[0] = 99.0
    assert list(deadlines.over()) == [states[0]]
    assert list(deadlines.over()) == []


def test_one_that_is_over_is_not_late_and_is_not_kept():
    now = [0.0]
    deadlines = Deadlines(lambda: now[0])
    kept, gone = state(0, 1.0), state(1, 1.0)
    deadlines.add(kept)
    deadlines.add(gone)
    kept.over = True
    del gone
    gc.collect()
    now[0] = 2.0
    assert list(deadlines.over()) == []
