"""The row check over loads in which rows come and go, and over planted faults."""

import itertools
import logging
import re

import attrs
import numpy as np
import pytest
import torch

from mstar_core.engine.device import Lag
from mstar_core.resident import ResidentPlanner, planner, slots
from mstar_core.resident.kernels import TORCH, advance_rows, scatter_staged
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.ledger import ledger_request
from mstar_core.testing.loads import LOADS
from mstar_core.testing.row_check import ledger_player, main

SETS = (
    "engine.max_rows=4",
    "engine.max_context=128",
    "engine.graphs=recorder",
    "engine.capture.rows=[2, 4]",
    "engine.capture.tokens=[16]",
    "nodes.ledger.resources.kv.page_tokens=8",
)


def play(folder, *sets, check=True, guest=False):
    """Three requests of 4 tokens each that decode over several pages; the idle core.

    With ``guest`` a fourth comes for a few steps, which are too wide for a bucket of 3 rows.
    """
    core, _ = open_ledger(folder, (*SETS, f"debug.row_check={str(check).lower()}", *sets), Lag(3))
    for i in range(1, 4):
        core.submit(ledger_request([i, i + 1, i + 2, i + 3], i, 16 + 2 * i, id=f"r{i}"))
    for turn in itertools.count():
        if guest and turn == 6:
            core.submit(ledger_request([9], 9, 3, id="guest"))
        if not core.turn():
            return core


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_no_cell_differs_while_rows_come_and_go(tmp_path, load):
    report = ledger_player(load, tmp_path).play(600)
    assert report.rows >= 600
    assert report.mismatches == 0
    if load.name == "pressure":
        assert report.refused > 0
        assert report.offloads == report.releases > 0
    if load.name == "slots":
        assert report.displaced > 0.5 * report.rows
    else:
        assert report.displaced == 0


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
def test_every_row_of_every_resident_step_is_checked_with_steps_in_flight(tmp_path, in_flight):
    core = play(tmp_path, f"engine.in_flight={in_flight}")
    stats = core.stats()
    checked = stats["row_check"]
    assert checked["mismatches"] == 0
    assert checked["first"] is None
    assert checked["steps"] == stats["by_walk"]["decode"]
    assert checked["rows"] == stats["rows"] - 3  # each prompt is a row of a prefill step
    assert stats["steady"] > 0
    core.check_rows()


def test_without_the_setting_nothing_is_reported(tmp_path):
    core = play(tmp_path, check=False)
    assert core.stats()["row_check"] is None
    core.check_rows()
    captured = core.lifecycle.buckets.captured.values()
    assert not any("check" in name for c in captured for name in c.places)


def _not_advanced(store_RC, slots_B, advance_N):
    """The third row of each step is left behind."""
    left = torch.arange(len(slots_B)) == 2
    advance_rows(store_RC, torch.where(left, 0, slots_B), advance_N)


def _not_scattered(store_RC, index_K, value_K, count_1):
    count_1.zero_()


def _not_consumed(store_RC, index_K, value_K, count_1):
    kept_1 = count_1.clone()
    scatter_staged(store_RC, index_K, value_K, count_1)
    count_1.copy_(kept_1)


def _padding_written(store_RC, slots_B, advance_N):
    store_RC[:, : len(advance_N)].index_add_(
        0, slots_B, advance_N.expand(len(slots_B), len(advance_N))
    )


FAULTS = {
    "a row that is not advanced": (
        "advance_rows",
        _not_advanced,
        [3],
        "kv.length, row 2 (request r3)",
    ),
    "staged cells that are not written": ("scatter_staged", _not_scattered, [3], "kv.pages["),
    "staged cells that are not consumed": (
        "scatter_staged",
        _not_consumed,
        [3],
        "kv.length, row 0 (request r1)",
    ),
    "padding that advances row 0": ("advance_rows", _padding_written, [4], "store[0], row 0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_device_is_found(tmp_path, monkeypatch, caplog, fault):
    kernel, planted, rows, told = FAULTS[fault]
    kernels = attrs.evolve(TORCH, **{kernel: planted})
    monkeypatch.setattr(planner, "kernels_for", lambda device: kernels)
    with caplog.at_level(logging.ERROR):
        core = play(tmp_path, "engine.in_flight=2", f"engine.capture.rows={rows}", guest=True)
    assert told in core.stats()["row_check"]["first"]
    assert told in caplog.text
    with pytest.raises(RuntimeError, match="cells differ: node ledger, entry"):
        core.check_rows()


def test_a_row_that_the_step_finds_under_a_wrong_number_is_found(tmp_path, monkeypatch):
    seat = slots.SlotCache.seat

    def turned(self, handles_B, number):
        slots_B, new_B = seat(self, handles_B, number)
        return (slots_B if new_B.any() else np.roll(slots_B, 1)), new_B

    monkeypatch.setattr(slots.SlotCache, "seat", turned)
    monkeypatch.setattr(ResidentPlanner, "_moved", lambda *_: (np.zeros(0, np.int64),) * 2)
    core = play(tmp_path, "engine.in_flight=1")
    first = core.stats()["row_check"]["first"]
    found = re.search(r"state\.slot, row \d \(request r\d\): device (\d), host (\d)", first)
    assert found is not None, first
    assert found[1] != found[2]


def test_whole_rows_that_are_not_sent_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "joined", lambda runs: [])
    core = play(tmp_path, "engine.in_flight=1")
    assert "kv.length, row 0 (request r1)" in core.stats()["row_check"]["first"]


def test_the_command_prints_what_each_load_came_to(capsys):
    assert main(["--rows", "50", "--load", "aborts"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("load aborts  rows ")
    assert "mismatches 0" in out
