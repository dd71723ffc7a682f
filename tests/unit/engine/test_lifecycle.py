"""The life of a step: asked before taken, a bucket that holds it, an entry until it is retired."""

import numpy as np
import pytest

from mstar_core.engine.capture import CapturedBuckets, wanted_buckets
from mstar_core.engine.device import Lag
from mstar_core.errors import DeviceFault, SealedError
from mstar_core.step import Bucket, Shortage, Step
from mstar_core.testing.cores import open_ledger
from mstar_core.testing.ledger import ledger_request

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.max_context=64",
    "engine.in_flight=2",
    "nodes.ledger.resources.kv.page_tokens=8",
)
CAPTURED = (
    *SETS,
    "engine.graphs=recorder",
    "engine.capture.rows=[1,2,4]",
    "engine.capture.tokens=[8,16]",
)


class Named:
    """What :class:`CapturedBuckets` looks at."""

    def __init__(self, **bucket):
        self.bucket = Bucket(walk=bucket["kind"], **bucket)


def step_of(walk, *spans):
    no = np.zeros(len(spans), bool)
    return Step(
        node="n",
        walk=walk,
        handles_B=np.arange(len(spans)),
        spans_B=np.asarray(spans, np.int64),
        carry_B=no,
        samples_B=no,
        starts_B=np.zeros(len(spans), np.int64),
    )


def admitted(core, *prompts):
    for n, prompt in enumerate(prompts):
        core.submit(ledger_request(range(prompt), n + 1, 8, id=f"r{n}"))
    core._admit()
    return core.scheduler.next(core._running)


@pytest.fixture
def buckets():
    found = CapturedBuckets()
    for rows in (1, 4, 2):
        found.add(Named(kind="decode", rows=rows, tokens=rows))
    for tokens in (32, 8):
        found.add(Named(kind="prefill", rows=3, tokens=tokens))
    return found


@pytest.mark.parametrize(("rows", "chosen"), [(1, 1), (2, 2), (3, 4), (4, 4)])
def test_a_decode_takes_the_smallest_bucket_that_holds_its_rows(buckets, rows, chosen):
    assert buckets.choose(step_of("decode", *[1] * rows), 0).rows == chosen


@pytest.mark.parametrize(
    ("spans", "chosen"),
    [
        ((5,), 8),
        ((8,), 8),
        ((9,), 32),
        ((4, 4), 8),
        ((3, 3, 2), 8),
        ((3, 3, 1), None),
        ((11, 11, 10), 32),
        ((2, 2, 2, 2), None),
        ((33,), None),
    ],
)
def test_a_packed_step_takes_a_bucket_with_a_row_to_spare_for_unused_tokens(buckets, spans, chosen):
    bucket = buckets.choose(step_of("prefill", *spans), 0)
    assert (bucket and bucket.tokens) == chosen


def test_a_variant_or_walk_that_was_not_captured_runs_eagerly(buckets):
    assert buckets.choose(step_of("decode", 1), 1) is None
    assert buckets.choose(step_of("encode", 1), 0) is None


def test_buckets_are_captured_largest_first(tmp_path):
    core, _ = open_ledger(tmp_path, SETS)
    wanted = wanted_buckets(core.nodes["ledger"], (1, 4), (8, 32))
    assert [(b.kind, b.rows, b.tokens) for b in wanted] == [
        ("prefill", 5, 32),
        ("prefill", 5, 8),
        ("decode", 4, 4),
        ("decode", 1, 1),
    ]


def test_a_refused_launch_has_touched_nothing(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SETS)
    step, rows = admitted(core, 20, 9)
    kv, carry = (core.nodes["ledger"].resources[key] for key in ("kv", "carry"))
    monkeypatch.setattr(
        type(carry), "room", lambda self, part: Shortage(key="carry", need=1, free=0)
    )
    before = (core.held(), kv.table.pool.num_free, kv.table.length.tolist())
    short = core.lifecycle.launch(step, rows)
    assert isinstance(short, Shortage)
    assert short.key == "carry"
    assert (core.held(), kv.table.pool.num_free, kv.table.length.tolist()) == before
    assert core.lifecycle.counts.refused == 1
    assert core.lifecycle.counts.launched == 0


def test_a_launch_takes_pages_and_advances_the_hosts_record_at_once(tmp_path):
    core, _ = open_ledger(tmp_path, SETS, Lag())
    step, rows = admitted(core, 20, 9)
    entry = core.lifecycle.launch(step, rows)
    kv = core.nodes["ledger"].resources["kv"].table
    assert kv.length[step.handles_B].tolist() == [20, 9]
    assert kv.num_held[step.handles_B].tolist() == [3, 2]
    assert (entry.number, entry.error) == (0, None)
    assert not entry.event.done()
    outcome = core.lifecycle.retire(entry)
    assert outcome.arrays["finite"].tolist() == [True, True]
    assert core.fences.retired == 0


def test_an_entry_is_retired_although_its_device_fails(tmp_path):
    core, _ = open_ledger(tmp_path, SETS)
    entry = core.lifecycle.launch(*admitted(core, 5))

    def fault(timeout_s):
        raise DeviceFault(where="device", got=timeout_s)

    entry.event.wait = fault
    with pytest.raises(DeviceFault):
        core.lifecycle.retire(entry)
    assert core.fences.retired == entry.number


def test_a_device_fault_at_the_launch_is_never_the_requests_fault(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SETS)

    def fault(fn):
        raise DeviceFault(where="device", got="lost")

    monkeypatch.setattr(core.lifecycle.device, "run", fault)
    core.submit(ledger_request([1], 1, 2))
    with pytest.raises(DeviceFault):
        core.turn()


def test_steps_are_counted_by_walk_and_by_how_they_ran(tmp_path):
    core, _ = open_ledger(tmp_path, CAPTURED)
    core.submit(ledger_request(range(20), 1, 4, id="a"))
    while core.turn():
        pass
    stats = core.stats()
    assert stats["by_walk"] == {"prefill": 1, "decode": 3}
    assert stats["eager_by_walk"] == {"prefill": 1}
    assert (stats["launched"], stats["replayed"], stats["eager"]) == (4, 3, 1)


def test_a_plan_whose_int_is_not_the_buckets_fails_the_step_and_not_the_engine(
    tmp_path, monkeypatch
):
    """CG-01: what a graph has baked in is compared with every plan."""
    core, _ = open_ledger(tmp_path, CAPTURED)
    kv = type(core.nodes["ledger"].resources["kv"])
    plan = kv.plan

    def own_width(self, step, lease, upstream):
        given = plan(self, step, lease, upstream)
        object.__setattr__(given, "W", 1)
        return given

    monkeypatch.setattr(kv, "plan", own_width)
    entry = core.lifecycle.launch(*admitted(core, 5))
    assert isinstance(entry.error, SealedError)
    with pytest.raises(SealedError, match=r"kv\.W"):
        core.lifecycle.retire(entry)
