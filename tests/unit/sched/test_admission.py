"""The line: by rank, each admitted whole, and passed within a bound."""

import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.model.walks import Loop, Once, Sequence
from mstar_core.sched import Line, RequestState
from mstar_core.sched.admission import AGE_TURNS, LOOKAHEAD, PASSES, rank_of
from mstar_core.sched.request import tracks_of
from mstar_core.step import Shortage

GRAPH = Sequence((Once("prefill"), Loop("decode")))


def state(number, turn=0, priority=0, prompt=4):
    request = Request(arrays={"ids": np.zeros(prompt, np.int64)}, id=f"r{number}")
    rank = rank_of(turn, priority, number)
    return RequestState(request=request, number=number, tracks=tracks_of(GRAPH), rank=rank)


@pytest.fixture
def waiting():
    line = Line(max_running=3)
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


def test_those_behind_one_that_does_not_fit_may_go_first(waiting):
    line, states = waiting
    admitted = line.admit(0, lambda one: short(1) if one.number == 1 else None)
    assert list(admitted) == [states[0], states[2], states[3]]
    assert [one.passed for one in states] == [0, 2, 0, 0, 0]


def test_one_that_does_not_fit_is_passed_within_a_bound():
    line, first = Line(max_running=100), state(0)
    line.join(first)
    for number in range(1, 40):
        line.join(state(number))
    admitted = list(line.admit(0, lambda one: short(0) if one is first else None))
    assert [one.number for one in admitted] == list(range(1, PASSES + 1))
    assert next(line.admit(50, lambda one: None)) is first


def test_one_that_waits_to_come_back_is_passed_within_the_same_bound():
    line, away = Line(max_running=100), state(0)
    for number in range(1, 40):
        line.join(state(number))
    admitted = list(line.admit(0, lambda one: None, [away]))
    assert (len(admitted), away.passed) == (PASSES, PASSES)


def test_no_more_than_a_few_that_do_not_fit_are_asked_in_a_turn():
    line, asked = Line(max_running=100), []
    for number in range(40):
        line.join(state(number))
    assert list(line.admit(0, lambda one: asked.append(one) or short(0))) == []
    assert len(asked) == LOOKAHEAD


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


def test_the_line_knows_positions_and_tokens(waiting):
    line, states = waiting
    assert [line.position(one) for one in states] == [0, 1, 2, 3, 4]
    assert line.num_tokens == 5 * (4 + 16)
    line.leave(states[2])
    assert (line.position(states[4]), line.num_tokens) == (3, 4 * 20)


def test_a_higher_priority_goes_first_and_waiting_weighs_more_with_time():
    line = Line(max_running=9)
    low, high = state(0), state(1, turn=10, priority=1)
    late_high = state(2, turn=AGE_TURNS, priority=1)
    for one in (low, high, late_high):
        line.join(one)
    assert list(line.admit(0, lambda one: None)) == [high, low, late_high]
