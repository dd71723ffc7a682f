"""The line: first come, first served, each admitted whole."""

import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.model.walks import Loop, Once, Sequence
from mstar_core.sched import RequestState, ReserveWhole
from mstar_core.sched.request import tracks_of
from mstar_core.step import Shortage

GRAPH = Sequence((Once("prefill"), Loop("decode")))


def state(number):
    request = Request(arrays={"ids": np.zeros(4, np.int64)}, id=f"r{number}")
    return RequestState(request=request, number=number, tracks=tracks_of(GRAPH))


@pytest.fixture
def waiting():
    line = ReserveWhole(max_running=3)
    states = [state(n) for n in range(5)]
    for one in states:
        line.join(one)
    return line, states


def short(number):
    return Shortage(key="kv", need=1, free=0)


def test_requests_are_admitted_in_order_up_to_the_rows(waiting):
    line, states = waiting
    assert list(line.admit(0, lambda one: None)) == states[:3]
    assert len(line) == 2


def test_those_that_run_already_count(waiting):
    line, states = waiting
    assert list(line.admit(2, lambda one: None)) == states[:1]
    assert list(line.admit(3, lambda one: None)) == []


def test_one_that_does_not_fit_holds_up_those_behind_it(waiting):
    line, states = waiting
    admitted = line.admit(0, lambda one: short(1) if one.number == 1 else None)
    assert list(admitted) == states[:1]
    assert len(line) == 4


def test_each_is_asked_for_only_after_the_one_before_was_opened(waiting):
    line, _ = waiting
    free = [2]

    def ask(one):
        return None if free[0] else short(one.number)

    for _ in line.admit(0, ask):
        free[0] -= 1
    assert len(line) == 3


def test_leaving_gives_the_place_up(waiting):
    line, states = waiting
    line.leave(states[0])
    assert next(line.admit(0, lambda one: None)) is states[1]
