"""Mixed steps on the ledger model: the same tokens as without, in fewer steps."""

import numpy as np
import pytest
from attrs import evolve

from mstar_core.config.resolve import resolve
from mstar_core.engine.capture import Captured, CapturedBuckets, padding_step, shapes_of
from mstar_core.engine.device import Lag, open_device
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import wire
from mstar_core.errors import ConfigError
from mstar_core.plugins.wiring import Wiring
from mstar_core.step import Bucket, CombinedSplit, Step
from mstar_core.testing.cores import LEDGER, arriving, open_ledger, results, run_all
from mstar_core.testing.ledger import LedgerModel, continuation, ledger_request

BUDGETS = (1, 7, 16, 64, 65, 256)
SETS = (
    "engine.max_rows=8",
    "engine.min_chunk=1",
    "engine.max_context=256",
    "engine.capture.rows=[1,4,8]",
    "engine.capture.require=true",
    "debug.conservation=true",
    "debug.row_check=true",
    "nodes.ledger.resources.kv.page_tokens=8",
)
SPLIT = CombinedSplit(
    walk="mixed", decode_walks=("decode",), prefill_walks=("prefill",), max_decode_rows=8
)


def request(salt, prompt, new=10):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=f"r{salt}")


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


def opened(folder, budget, *sets, lag=None):
    tokens = sorted({min(n, budget) for n in (4, 16, 64)} | {budget})
    more = (f"engine.token_budget={budget}", f"engine.capture.tokens={tokens}")
    return open_ledger(folder, (*SETS, *more, *sets), lag)[0]


def tokens(core, given):
    """The tokens of requests that come one by one while the others decode."""
    return {name: result.ids for name, result in arriving(core, given).items()}


@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("in_flight", [0, pytest.param(1, marks=pytest.mark.long), 2, 3])
def test_mixing_changes_no_token_at_any_budget_and_depth(tmp_path, graphs, budget, in_flight):
    given = [request(1 + i, n) for i, n in enumerate((5, 30, 1, 70, 9, 2, 41))]
    want = {g.id: right(g) for g in given}
    for lag in (None, Lag(seed=in_flight)):
        for mixed in ("on", "off"):
            sets = (
                f"engine.mixed={mixed}",
                f"engine.graphs={graphs}",
                f"engine.in_flight={in_flight}",
            )
            core = opened(tmp_path, budget, *sets, lag=lag)
            assert tokens(core, given) == want
            counts = core.stats()
            assert ("mixed" in counts["by_walk"]) == (mixed == "on" and budget > 1)
            if graphs == "recorder":
                assert not counts["eager_by_walk"]


@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize("preempt", ["offload", "recompute"])
@pytest.mark.parametrize("budget", [7, 16, 65])
def test_mixed_steps_under_pressure_change_no_token(tmp_path, graphs, preempt, budget):
    given = [request(1 + i, n, 40) for i, n in enumerate((5, 30, 1, 70, 9, 2, 41))]
    sets = (
        "engine.mixed=on",
        f"engine.graphs={graphs}",
        "engine.in_flight=2",
        "engine.admission=take",
        f"engine.preempt={preempt}",
        "nodes.ledger.resources.kv.num_pages=20",
    )
    core = opened(tmp_path, budget, *sets, lag=Lag(seed=budget))
    assert tokens(core, given) == {g.id: right(g) for g in given}
    counts = core.stats()
    assert counts["by_walk"]["mixed"]
    yielded = {"offload": counts["offload"]["reloads"], "recompute": counts["recomputed"]}
    assert yielded[preempt] > 0


def test_a_prompt_beside_decodes_costs_no_step_of_its_own(tmp_path):
    steps = {}
    for mixed in ("off", "on"):
        core = opened(tmp_path, 64, f"engine.mixed={mixed}", "engine.graphs=off")
        arriving(core, [request(1, 20, 60), *(request(2 + i, 20, 4) for i in range(8))])
        steps[mixed] = core.stats()["launched"]
    assert steps == {"off": 60 + 8, "on": 60}


@pytest.mark.parametrize("mixed", ["off", "on"])
@pytest.mark.parametrize("graphs", ["off", "recorder"])
def test_a_prompt_that_lands_while_others_decode_leaves_a_state_that_is_whole(
    tmp_path, mixed, graphs
):
    """GDN-02: four decode, a prompt of 100 comes at step 5; then the same with 10 tokens more."""
    core = opened(tmp_path, 128, f"engine.mixed={mixed}", f"engine.graphs={graphs}")
    four, late = [request(1 + i, 3 + i, 30) for i in range(4)], request(5, 100)
    for given in four:
        core.submit(given)
    for _ in range(5):
        core.turn()
    found = {name: r.ids for name, r in run_all(core, [late]).items()}
    assert found == {g.id: right(g) for g in (*four, late)}
    assert core.stats()["by_walk"].get("mixed", 0) == (mixed == "on")
    again = request(5, 110)
    assert run_all(core, [again])["r5"].ids == right(again)


def test_a_row_is_resident_again_behind_a_mixed_step(tmp_path):
    core = opened(tmp_path, 64, "engine.mixed=on", "engine.graphs=recorder")
    core.submit(request(1, 5, 40))
    for _ in range(8):
        core.turn()
    core.submit(request(2, 30, 20))
    while core.turn():
        pass
    core.check_rows()
    counts = core.stats()
    assert counts["by_walk"]["mixed"] == 1
    assert counts["steady"] > 20
    assert counts["row_check"]["mismatches"] == 0
    assert {n: r.ids for n, r in results(core).items()} == {
        "r1": right(request(1, 5, 40)),
        "r2": right(request(2, 30, 20)),
    }


def wired(folder, *sets):
    """The ledger model, wired and not yet warmed up."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    file = folder / "engine.yaml"
    file.write_text(f"model: {{name: tested, path: {folder}, load: random}}\ndevice: cpu\n")
    wiring, device = Wiring.of_core(), open_device("cpu", None)
    wiring.models.add("tested", LEDGER)
    return wire(resolve(file, sets), wiring, device.torch_device, target="cpu"), device


def warmed(made, device):
    return warm_up(made, device, None, lambda phase, done, total: None)


def test_resources_split_the_combined_walk_where_steps_are_mixed(tmp_path):
    sets = ("engine.max_rows=8", "engine.mixed=on")
    made, device = wired(tmp_path, *sets)
    assert made.nodes["ledger"].resources["rows"].combined_splits() == (SPLIT,)
    warmed(made, device)
    assert made.nodes["ledger"].splits == {"mixed": SPLIT}


def test_only_steps_of_a_combined_walk_have_a_lead(tmp_path):
    made, device = wired(tmp_path, "engine.max_rows=8", "engine.mixed=on")
    warmed(made, device)
    node = made.nodes["ledger"]
    for walk, lead in (("mixed", 3), ("prefill", 0)):
        bucket = Bucket(walk=walk, rows=6, tokens=16, kind="mixed", lead=lead)
        step = padding_step(node, node.walks[walk], bucket)
        assert {part.split for part in step.parts.values()} == {walk == "mixed"}
        assert node.plan(step, step.lease)["rows"].lead_rows == lead


def test_without_mixing_there_is_no_combined_walk_and_no_split(tmp_path):
    made, device = wired(tmp_path)
    assert set(made.walks) == {"prefill", "decode"}
    assert made.nodes["ledger"].resources["rows"].combined_splits() == ()
    warmed(made, device)
    assert made.nodes["ledger"].splits == {}


def test_a_split_that_misses_a_walk_of_several_tokens_is_refused_at_load(tmp_path):
    """S4.21: before the first step, not in the one that meets it."""
    made, device = wired(tmp_path, "engine.mixed=on")
    made.nodes["ledger"].resources["rows"].splits = (evolve(SPLIT, prefill_walks=()),)
    with pytest.raises(ConfigError) as caught:
        warmed(made, device)
    assert caught.value.where == "engine.mixed"
    assert "without prefill" in str(caught.value.got)
    assert "set engine.mixed to off" in caught.value.fix


def test_resources_that_split_a_walk_differently_are_refused_at_load(tmp_path):
    made, device = wired(tmp_path, "engine.mixed=on")
    resources = made.nodes["ledger"].resources
    other = evolve(SPLIT, max_decode_rows=3)
    resources["kv"].combined_splits = lambda: (other,)
    with pytest.raises(ConfigError) as caught:
        warmed(made, device)
    assert "kv" in str(caught.value.got)
    assert "rows" in str(caught.value.got)


def test_a_walk_that_nobody_splits_runs_packed(tmp_path):
    made, device = wired(tmp_path, "engine.max_rows=8", "engine.mixed=on")
    made.nodes["ledger"].resources["rows"].splits = ()
    core, _ = warmed(made, device)
    given = [request(1 + i, n) for i, n in enumerate((5, 30, 1))]
    assert tokens(core, given) == {g.id: right(g) for g in given}
    assert core.stats()["by_walk"]["mixed"]


def test_mixed_buckets_are_as_wide_as_their_decode_rows_need():
    (node,) = LedgerModel().nodes()
    mixed = {walk.name: walk for walk in node.walks}["mixed"]
    buckets = shapes_of(
        mixed, {"mixed": evolve(SPLIT, max_decode_rows=32)}, (1, 2, 8, 32), (16, 64)
    )
    assert [(b.rows, b.tokens, b.lead) for b in buckets] == [
        (11, 16, 2),
        (24, 16, 15),
        (11, 64, 2),
        (33, 64, 32),
    ]
    assert {b.kind for b in buckets} == {"mixed"}
    assert {b.lead for b in shapes_of(mixed, {}, (4,), (16,))} == {0}


def test_a_walk_that_names_its_items_is_captured_by_them_with_a_row_each():
    (node,) = LedgerModel().nodes()
    prompts = next(walk for walk in node.walks if walk.feed == "prompt")
    buckets = shapes_of(evolve(prompts, capture_items=(1, 4)), {}, (1, 2), (16, 64))
    assert [(b.rows, b.tokens, b.kind) for b in buckets] == [(2, 1, "prefill"), (5, 4, "prefill")]


@pytest.mark.parametrize(("decodes", "lead"), [(1, 2), (2, 2), (3, 5), (5, 5), (6, 5)], ids=str)
def test_a_mixed_step_takes_the_narrowest_lead_that_has_room_for_its_decode_rows(decodes, lead):
    buckets = CapturedBuckets()
    for width in (5, 2):
        bucket = Bucket(walk="mixed", rows=10, tokens=16, kind="mixed", lead=width)
        wide = evolve(bucket, tokens=64, lead=8)
        for each in (bucket, wide):
            buckets.add(Captured(bucket=each, graph=None, block=None, bounds={}))
    step = Step(
        node="n",
        walk="mixed",
        handles_B=np.arange(decodes + 1),
        spans_B=np.array([1] * decodes + [4]),
        carry_B=np.arange(decodes + 1) < decodes,
        samples_B=np.ones(decodes + 1, bool),
        starts_B=np.zeros(decodes + 1, np.int64),
    )
    assert buckets.choose(step, 0).tokens == 16
    assert buckets.choose(step, 0).lead == lead
