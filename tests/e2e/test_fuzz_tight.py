"""Random schedules where the store gives out only as many rows as its widest capture has."""

import pytest

from mstar_core.resident import SlotCache
from mstar_core.testing.fuzz import fuzz_ledger


@pytest.fixture
def tight(monkeypatch):
    """Half of the rows that a step could be seated in: B of 2B."""
    build = SlotCache.__init__

    def halved(self, table, width):
        build(self, table, width)
        self._free = self._free[-width:]

    monkeypatch.setattr(SlotCache, "__init__", halved)


def test_schedules_are_right_with_only_as_many_rows_as_a_step_has(tight, tmp_path):
    assert fuzz_ledger(range(40), tmp_path) == 40


@pytest.mark.long
def test_ten_thousand_schedules_are_right_with_only_as_many_rows_as_a_step_has(tight, tmp_path):
    assert fuzz_ledger(range(10_000), tmp_path) == 10_000
