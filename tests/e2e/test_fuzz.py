"""Random schedules on the ledger model, and the fuzzer's own eyesight."""

import pytest

from mstar_core.resources.state import StateResource
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.fuzz import (
    FuzzFailure,
    fuzz_ledger,
    fuzz_model,
    ledger_oracle,
    ledger_prompt,
    ledger_sets,
    main,
)
from mstar_core.testing.schedules import Limits, draw_schedule, draw_setup

SLICE = 300


@pytest.mark.parametrize("part", range(4))
def test_every_random_schedule_gives_each_request_its_own_tokens_and_gives_all_back(tmp_path, part):
    seeds = range(part * SLICE // 4, (part + 1) * SLICE // 4)
    assert fuzz_ledger(seeds, tmp_path) >= len(seeds)


@pytest.mark.long
def test_two_thousand_random_schedules_are_right(tmp_path):
    assert fuzz_ledger(range(2000), tmp_path) == 2000


def test_the_same_seed_draws_the_same_schedule():
    limits = Limits()
    setups = [draw_setup(5, limits) for _ in range(2)]
    assert setups[0] == setups[1]
    schedules = [draw_schedule(41, setups[0], limits) for _ in range(2)]
    assert schedules[0].requests == schedules[1].requests


def test_the_seeds_of_the_slice_reach_every_depth_lag_and_ending():
    limits = Limits()
    setups = [draw_setup(life, limits) for life in range(SLICE // 8)]
    assert {s.in_flight for s in setups} == {0, 1, 2, 3}
    assert {s.graphs for s in setups} == {"off", "recorder"}
    assert {s.resident for s in setups if s.graphs == "recorder"} == {"auto", "off"}
    assert {s.lag is None for s in setups} == {True, False}
    assert {s.num_pages is None for s in setups} == {True, False}
    drawn = [r for n in range(SLICE) for r in draw_schedule(n, setups[0], limits).requests]
    for name in ("stop_token", "abort_after", "stop_after"):
        assert sum(getattr(r, name) is not None for r in drawn) > 100
    assert sum(r.gated for r in drawn) > 100
    assert sum(len(r.trips) for r in drawn) > 100
    assert {s.prefix_cache for s in setups} == {"auto", "off"}
    assert sum(r.like is not None and r.shared > 0 for r in drawn) > 500


def test_prompts_that_begin_alike_are_found_in_the_slice(tmp_path):
    cores = []

    def open_core(setup):
        cores.append(open_ledger(tmp_path, ledger_sets(setup), setup.lag)[0])
        return cores[-1]

    fuzz_model(open_core, ledger_prompt, ledger_oracle, range(40))
    counts = [core.stats()["prefix"] for core in cores if core.reuse is not None]
    for name in ("hits", "evicted pages", "evicted snapshots", "skipped snapshots"):
        assert sum(count[name] for count in counts) > 5, name


def test_a_fault_is_found_and_shrunk_to_few_requests(tmp_path, monkeypatch):
    """A slot's leftovers reach its next user: a few requests are enough to show it."""
    take = StateResource.open

    def never_fresh(self, handle, opening):
        take(self, handle, opening)
        self.started[handle] = True

    monkeypatch.setattr(StateResource, "open", never_fresh)
    with pytest.raises(FuzzFailure, match="tokens") as caught:
        fuzz_ledger(range(16), tmp_path)
    life = [*caught.value.before, caught.value.schedule]
    assert sum(len(schedule.requests) for schedule in life) <= 3
    assert f"seed {caught.value.schedule.seed}" in str(caught.value)


def test_an_oracle_that_is_wrong_is_told_which_request_differs(tmp_path):
    def open_core(setup):
        return open_ledger(tmp_path, setup.sets("nodes.ledger.resources.kv"), setup.lag)[0]

    def wrong(request):
        return [(token + (request.id == "r1")) % 97 for token in ledger_oracle(request)]

    with pytest.raises(FuzzFailure, match="r1: tokens"):
        fuzz_model(open_core, ledger_prompt, wrong, range(1), Limits(prompt=9, new=5, requests=3))


def test_the_command_plays_a_range_and_says_so(capsys):
    assert main(["--seeds", "0:3"]) == 0
    assert "3 schedules right, seeds 0:3" in capsys.readouterr().out
