"""Steps of a warmed engine on a GPU: nothing in them waits for the device but reading tokens.

torch raises where the host waits inside an operation while ``set_sync_debug_mode`` is ``error``;
events are asked whether they have passed, which is no waiting of that kind.
"""

import warnings
from contextlib import contextmanager

import pytest
import torch

from mstar_core.engine.opening import open_core
from mstar_core.errors import ConfigError
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_ledger, results, run_all
from mstar_core.testing.ledger import LedgerSubmodule, continuation, ledger_request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),  # noqa: TID251
]
SETS = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=256",
    "engine.capture.rows=[1,2,4,8]",
    "engine.capture.tokens=[16,64]",
    "engine.graphs=cuda",
    "engine.prefix_cache=off",
)
PAGES = "nodes.ledger.resources.kv.page_tokens=8"


@contextmanager
def no_waiting():
    """Whatever makes the host wait for the device inside an operation of torch raises."""
    with warnings.catch_warnings():  # the mode is a prototype, and says so
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")  # noqa: TID251
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")  # noqa: TID251


def turn_until_steady(core, steps=3):
    """Until that many steps in a row were the last one again."""
    alike = 0
    while alike < steps:
        before = core.lifecycle.counts.steady
        assert core.turn()
        alike = alike + 1 if core.lifecycle.counts.steady > before else 0


def test_the_mode_raises_where_a_value_is_read():
    x = torch.ones(4, device="cuda")
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        x.sum().item()


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_steady_steps_of_the_ledger_wait_for_nothing_and_cross_pages(tmp_path, in_flight):
    sets = (*SETS, PAGES, f"engine.in_flight={in_flight}", "engine.capture.require=true")
    core, _ = open_ledger(tmp_path, sets, device="cuda")
    given = [ledger_request([7 * i, 3, i], i + 1, 200, id=f"r{i}") for i in range(8)]
    for request in given:
        core.submit(request)
    turn_until_steady(core)
    counts = core.nodes["ledger"].tables.counts
    steady, crossing = core.lifecycle.counts.steady, counts.crossing_steps
    with no_waiting():
        for _ in range(170):
            core.turn()
    assert core.lifecycle.counts.steady - steady == 170
    assert counts.crossing_steps > crossing
    while core.turn():
        pass
    found = results(core)
    for i, request in enumerate(given):
        assert found[request.id].ids == continuation([7 * i, 3, i], i + 1, 200)


@pytest.mark.parametrize("resident", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_whole_run_of_captured_steps_waits_for_nothing(resident, dtype):
    """Prompts, joins, steady steps, ends: of a model with every kind of resource."""
    sets = ("device=cuda", "engine.in_flight=2", f"engine.resident={resident}")
    more = (f"model.dtype={dtype}", "engine.capture.require=true")
    core, _, report = open_core("qwen35_tiny", (*SETS, *sets, *more))
    assert bool(report.nodes[0].resident_walks) == (resident == "auto")
    requests = [
        Request(
            arrays={"ids": torch.arange(1, 9 + 5 * i).numpy() % 200},
            max_new_tokens=20 + 9 * i,
            ignore_stop_ids=True,
        )
        for i in range(11)
    ]
    with no_waiting():
        found = run_all(core, requests)
    assert [len(found[r.id].ids) for r in requests] == [20 + 9 * i for i in range(11)]
    assert core.stats()["eager"] == 0
    assert core.stats()["steady"] > 0 or resident == "off"


def read_on_the_host(monkeypatch, rows):
    """From here on the ledger's decode reads a value where it has so many rows or more."""
    original = LedgerSubmodule.forward

    def forward(self, walk, inputs, plans):
        if walk == "decode" and len(inputs["ids"]) >= rows:
            int(inputs["ids"].sum())
        return original(self, walk, inputs, plans)

    monkeypatch.setattr(LedgerSubmodule, "forward", forward)


def test_buckets_that_cannot_be_captured_run_eagerly_and_the_others_as_before(
    tmp_path, monkeypatch
):
    """CG-05, end to end: 4 and 8 rows read a value on the host, 1 and 2 do not."""
    read_on_the_host(monkeypatch, rows=4)
    core, report = open_ledger(tmp_path, (*SETS, PAGES, "engine.in_flight=2"), device="cuda")
    dropped = [b for b in report.nodes[0].buckets if not b.captured]
    assert [b.bucket for b in dropped] == ["decode 8x8", "decode 4x4"]
    assert {r.code for b in dropped for r in b.refusals} == {"capture-failed"}
    assert "without host reads" in str(dropped[0].refusals[0])
    given = [ledger_request([5, i], i + 1, 10 + 12 * i, id=f"r{i}") for i in range(6)]
    found = run_all(core, given)
    for i, request in enumerate(given):
        assert found[request.id].ids == continuation([5, i], i + 1, 10 + 12 * i)
    stats = core.stats()
    assert stats["eager_by_walk"] == {"decode": stats["eager"]}
    assert 0 < stats["eager"] < stats["by_walk"]["decode"]


def test_a_bucket_that_cannot_be_captured_ends_the_start_where_all_are_required(
    tmp_path, monkeypatch
):
    read_on_the_host(monkeypatch, rows=8)
    with pytest.raises(ConfigError, match=r"1 buckets dropped \(decode 8x8") as caught:
        open_ledger(tmp_path, (*SETS, PAGES, "engine.capture.require=true"), device="cuda")
    assert caught.value.where == "engine.capture.require"
    core, _ = open_ledger(tmp_path / "after", (*SETS, PAGES, "engine.graphs=off"), device="cuda")
    request = ledger_request([1, 2], 3, 5)
    assert run_all(core, [request])[request.id].ids == continuation([1, 2], 3, 5)


def test_rounds_of_requests_reserve_no_more_memory_than_the_first():
    """More requests than rows, of many lengths, eager steps among them; round after round."""
    sets = ("device=cuda", "engine.in_flight=2", "engine.capture.tokens=[16]")
    core, _, _ = open_core("qwen35_tiny", (*SETS, *sets, "model.dtype=bf16"))
    reserved = []
    for turn in range(6):
        requests = [
            Request(
                arrays={"ids": (torch.arange(3 + 5 * i) * 7 % 200).numpy()},
                max_new_tokens=8 + 3 * i,
                ignore_stop_ids=True,
            )
            for i in range(20)
        ]
        found = run_all(core, requests)
        assert [found[r.id].error for r in requests] == [None] * len(requests), turn
        reserved.append(torch.cuda.memory_reserved())  # noqa: TID251
    assert core.stats()["eager"] > 0
    assert reserved == reserved[:1] * len(reserved)
