"""What is planned on the host waits for its forward."""

import pytest

from mstar_core.ops.schedule import KEPT, Schedules


def test_a_number_stands_for_what_was_kept_and_zero_for_nothing():
    kept = Schedules()
    numbers = [kept.keep(word) for word in ("one", "two")]
    assert numbers == [1, 2]
    assert [kept.of(n) for n in (0, 2, 1)] == [None, "two", "one"]


def test_what_is_older_than_the_steps_in_flight_is_gone():
    kept = Schedules()
    first = kept.keep("first")
    for word in range(KEPT):
        kept.keep(word)
    with pytest.raises(KeyError):
        kept.of(first)
