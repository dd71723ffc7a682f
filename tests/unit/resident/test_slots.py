"""The slot cache: rows of the store by request, which can never run out."""

import random

import numpy as np
import pytest

from mstar_core.resident import SlotCache
from mstar_core.resources.table import RequestTable


def handles_of(*handles):
    return np.asarray(handles, np.int64)


class Driven:
    """A slot cache with plan numbers, and what it should do next to it, over plain dicts."""

    def __init__(self, width, num_handles=32):
        self.table = RequestTable(num_handles)
        self.slots = SlotCache(self.table, width)
        self.number = 0
        self.age = {}
        """Handle → (last plan, order of taking), for those that sit."""
        self.takes = 0

    def seat(self, *handles):
        """Seat the rows; the requests that should have been displaced by it, oldest first."""
        self.number += 1
        sitting = {h for h in self.age if h in handles}
        new = [h for h in handles if h not in sitting]
        short = len(new) - self.slots.num_free
        others = sorted((h for h in self.age if h not in sitting), key=self.age.__getitem__)
        victims = others[: max(short, 0)]
        slots, fresh = self.slots.seat(handles_of(*handles), self.number)
        assert fresh.tolist() == [h in new for h in handles]
        for victim in victims:
            del self.age[victim]
        for handle in handles:
            if handle in new:
                self.takes += 1
                self.age[handle] = (0, self.takes)
            self.age[handle] = (self.number, self.age[handle][1])
        self.check()
        return slots.tolist(), victims

    def give_up(self, handle):
        self.slots.give_up(handle)
        self.age.pop(handle, None)
        self.check()

    def slot(self, handle):
        return int(self.slots.of(handles_of(handle))[0])

    def check(self):
        """Free and held partition the rows that may be given out."""
        held = [self.slot(h) for h in range(self.table.num_handles) if self.slot(h)]
        assert {h for h in range(self.table.num_handles) if self.slot(h)} == set(self.age)
        every = [*held, *self.slots._free]
        assert sorted(every) == list(range(1, self.slots.num_rows - 1))
        assert self.slots.num_free == self.slots.num_rows - 2 - len(held)
        for handle in self.age:
            assert self.slots._owner[self.slot(handle)] == handle


@pytest.mark.parametrize("width", [1, 2, 64])
def test_there_are_two_rows_for_each_row_of_the_widest_step_and_two_that_nobody_gets(width):
    slots = SlotCache(RequestTable(4), width)
    assert slots.num_rows == 2 * width + 2
    assert slots.num_free == 2 * width
    assert slots.trash == 2 * width + 1


def test_padding_and_trash_rows_are_never_given_out():
    driven = Driven(2)
    for first in range(0, 20, 2):
        slots, _ = driven.seat(first, first + 1)
        assert not {0, driven.slots.trash} & set(slots)


@pytest.mark.parametrize("seed", range(4))
def test_more_live_requests_than_slots_run_off_the_cache(seed):
    """Twenty live requests on eight rows, with aborts and handles that are used again."""
    draw, driven, live = random.Random(seed), Driven(4), []
    displaced = ended = 0
    for _ in range(300):
        while len(live) < 20:
            live.append(driven.table.open())
        rows = draw.sample(live, draw.randint(1, 4))
        slots, victims = driven.seat(*rows)
        assert len(set(slots)) == len(rows)
        assert not set(victims) & set(rows)
        displaced += len(victims)
        if draw.random() < 0.2:
            handle = live.pop(draw.randrange(len(live)))
            driven.give_up(handle)
            driven.table.close(handle)
            driven.table.recycle(handle)
            ended += 1
    assert driven.slots.num_displaced == displaced
    assert displaced > 200
    assert ended > 30


def test_victims_are_the_least_recently_planned():
    driven = Driven(2)
    driven.seat(0, 1)
    driven.seat(2, 3)
    driven.seat(1, 0)
    _, victims = driven.seat(4)
    assert victims == [2]
    assert driven.slot(2) == 0
    _, victims = driven.seat(5, 6)
    assert victims == [3, 0]


def test_a_plan_that_needs_no_new_row_makes_its_rows_young():
    driven = Driven(1)
    driven.seat(0)
    driven.seat(1)
    driven.seat(0)
    _, victims = driven.seat(2)
    assert victims == [1]


def test_rows_of_one_plan_are_displaced_in_the_order_they_took_rows():
    driven = Driven(3)
    driven.seat(2)
    driven.seat(0)
    driven.seat(1)
    driven.give_up(2)
    driven.seat(8)
    driven.seat(1, 0, 8)
    driven.seat(5, 4, 3)
    for handle, victim in ((6, 0), (7, 1), (9, 8), (10, 5), (11, 4), (12, 3)):
        assert driven.seat(handle)[1] == [victim]


def test_a_row_that_was_given_up_is_nobodys_to_displace():
    driven = Driven(2)
    for handle in range(4):
        driven.seat(handle)
    driven.give_up(0)
    _, victims = driven.seat(4, 5)
    assert victims == [1]
    assert driven.slots.num_displaced == 1


def test_a_step_keeps_its_own_oldest_row_and_a_victim_leaves_no_marks():
    driven = Driven(2)
    for handle in range(4):
        driven.seat(handle)
    own = driven.slot(0)
    slots, victims = driven.seat(0, 9)
    assert slots[0] == own
    assert victims == [1]
    assert driven.slot(1) == 0
    assert slots[1] not in (driven.slot(h) for h in (0, 2, 3))
    assert 1 not in driven.slots._owner


def test_a_step_never_displaces_its_own_rows_however_wide_it_is():
    driven = Driven(4)
    driven.seat(0, 1, 2, 3)
    driven.seat(4, 5, 6, 7)
    slots, victims = driven.seat(0, 8, 1, 9)
    assert victims == [2, 3]
    assert len(set(slots)) == 4
    assert driven.slot(0) == slots[0]


def test_only_as_many_are_displaced_as_the_step_is_short_of():
    driven = Driven(2)
    driven.seat(0, 1)
    driven.seat(2)
    assert driven.slots.num_free == 1
    _, victims = driven.seat(3, 4)
    assert victims == [0]
    assert driven.slots.num_free == 0


def test_a_request_keeps_its_row_until_it_is_displaced_or_over():
    driven = Driven(2)
    first, _ = driven.seat(0, 1)
    again, _ = driven.seat(1, 0)
    assert again == first[::-1]
    driven.give_up(0)
    assert driven.slot(0) == 0
    assert driven.slot(1) == first[1]


def test_a_row_is_given_up_once():
    driven = Driven(1)
    driven.seat(0)
    driven.give_up(0)
    driven.give_up(0)
    driven.give_up(3)
    assert driven.slots.num_free == 2


def test_a_row_that_was_given_up_is_free_at_once():
    driven = Driven(1)
    slots, _ = driven.seat(0)
    driven.give_up(0)
    assert driven.seat(1)[0] == slots
    assert driven.slots.num_displaced == 0


def test_a_closed_handle_has_no_row_when_it_is_used_again():
    driven = Driven(2)
    handle = driven.table.open()
    driven.seat(handle)
    driven.give_up(handle)
    driven.table.close(handle)
    driven.table.recycle(handle)
    assert driven.table.open() == handle
    assert driven.slot(handle) == 0
    _, fresh = driven.slots.seat(handles_of(handle), 9)
    assert fresh.tolist() == [True]


def test_the_same_history_displaces_the_same_requests():
    def played():
        draw, driven = random.Random(5), Driven(3)
        return [driven.seat(*draw.sample(range(12), draw.randint(1, 3))) for _ in range(60)]

    assert played() == played()


def test_rows_that_a_steady_step_touches_are_young():
    driven = Driven(2)
    slots, _ = driven.seat(0, 1)
    driven.seat(2, 3)
    driven.number += 1
    driven.slots.touch(np.asarray(slots), driven.number)
    driven.slots.seat(handles_of(4), driven.number + 1)
    assert driven.slot(2) == 0
    assert driven.slot(0) == slots[0]
    assert driven.slot(1) == slots[1]
