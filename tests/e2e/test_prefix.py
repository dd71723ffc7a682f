"""Prompts that begin like others: the same tokens as alone, with the counts that are true."""

import itertools

import pytest
import torch

from mstar_core.engine.device import Lag
from mstar_core.engine.node import NodeRuntime
from mstar_core.errors import ConfigError, RequestError
from mstar_core.testing.cores import check_over, open_ledger, results, run_all
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.playing import poison

KV, STATE = "nodes.ledger.resources.kv", "nodes.ledger.resources.state"
SETS = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.min_chunk=4",
    "engine.capture.rows=[2, 4]",
    "engine.capture.tokens=[32]",
    f"{KV}.page_tokens=16",
    f"{STATE}.snapshot_every=16",
    f"{STATE}.snapshots=12",
    "debug.row_check=true",
)
MODES = {
    "eager": ("engine.graphs=off",),
    "recorder": ("engine.graphs=recorder", "engine.resident=off"),
    "resident": ("engine.graphs=recorder",),
}
NAMES = itertools.count()
SEEDED = Lag(5)


@pytest.fixture
def opened(tmp_path):
    """Opens cores with NaN in every pool; each must be idle and have everything back in the end."""
    cores = []

    def open_core(*sets, lag=SEEDED, mode="resident", fill=float("nan")):
        core, _ = open_ledger(tmp_path, (*SETS, *MODES[mode], *sets), lag)
        poison(core, fill)
        cores.append(core)
        return core

    yield open_core
    for core in cores:
        check_over(core)


def tokens(count, begin=0):
    return [(begin * 31 + i * 7) % 97 for i in range(count)]


def ask(prompt, new=6, salt=1, **more):
    """A request, and the tokens that it should give."""
    request = ledger_request(prompt, salt, new, id=f"q{next(NAMES)}", **more)
    return request, continuation(prompt, salt, new)


def served(core, *asked):
    """Serve these at once; each must get its tokens. The cached tokens of each."""
    found = run_all(core, [request for request, _ in asked])
    assert [found[request.id].ids for request, _ in asked] == [right for _, right in asked]
    return [found[request.id].cached_tokens for request, _ in asked]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_prompt_that_is_cached_whole_still_computes_a_token(opened, mode, depth):
    """KV-01: pages of 16; 32 tokens twice, then 31, 33 and 48."""
    core = opened(f"engine.in_flight={depth}", mode=mode)
    assert served(core, ask(tokens(32))) == [0]
    assert served(core, ask(tokens(32))) == [16]
    assert served(core, ask(tokens(31))) == [16]
    assert served(core, ask(tokens(33))) == [32]
    assert served(core, ask(tokens(48))) == [32]
    assert served(core, ask(tokens(48))) == [32]
    assert served(core, ask(tokens(49))) == [48]
    stats = core.stats()["prefix"]
    assert (stats["queries"], stats["hits"]) == (7, 6)
    assert stats["prompt_tokens"] - stats["cached_tokens"] == 32 + 16 + 15 + 1 + 16 + 16 + 1


@pytest.mark.parametrize("mode", MODES)
def test_five_turns_and_an_edited_branch_answer_as_cold(opened, mode):
    """GDN-26: each turn brings 30 tokens; what was generated is found too."""
    core, history, cached = opened(mode=mode), [], []
    for turn in range(5):
        history += tokens(30, turn)
        request, right = ask(history, new=11)
        cached += served(core, (request, right))
        history += right
    # the last token of an answer was never fed; a prompt computes at least one token
    assert cached == [0, 32, 80, 112, 160]
    branch = [*history[:-41], *tokens(30, 9)]
    assert served(core, ask(branch)) == [160]
    assert served(core, ask([*history[:70], *tokens(20, 8)])) == [64]


@pytest.mark.parametrize("fill", [float("nan"), 1e3], ids=["nan", "1e3"])
@pytest.mark.parametrize("budget", [1, 7, 16, 64, 65, 200])
@pytest.mark.parametrize("mode", MODES)
def test_any_chunk_budget_gives_the_same_tokens_cold_and_warm(opened, mode, budget, fill):
    """GDN-26: the pools hold NaN, or 1e3, wherever nobody has written."""
    sets = (
        f"engine.token_budget={budget}",
        "engine.min_chunk=1",
        f"engine.capture.tokens=[{min(budget, 16)}]",
    )
    core = opened(*sets, f"{STATE}.snapshot_every=32", mode=mode, fill=fill)
    long, short = tokens(100), tokens(50)
    assert served(core, ask(long), ask(tokens(90, 3), salt=2)) == [0, 0]
    assert served(core, ask(long), ask([*short, *tokens(60, 5)]), ask(short, 30)) == [96, 32, 32]
    assert served(core, ask([*short, *tokens(60, 5)]), ask(short, 1)) == [96, 32]


@pytest.mark.parametrize("mixed", ["off", "on"])
@pytest.mark.parametrize("cache", ["off", "auto"])
def test_a_prompt_that_ran_beside_decodes_is_found_as_it_was(opened, mixed, cache):
    """GDN-02: a prompt of 100 tokens lands while four decode, and is sent again with 10 more."""
    core = opened(
        f"engine.mixed={mixed}", f"engine.prefix_cache={cache}", "engine.max_rows=5", mode="eager"
    )
    decoding = [ask(tokens(9, n), 40, salt=n) for n in range(2, 6)]
    landing = ask(tokens(100))
    for request, _ in decoding:
        core.submit(request)
    for _ in range(5):
        core.turn()
    core.submit(landing[0])
    while core.turn():
        pass
    found = results(core)
    for request, right in (*decoding, landing):
        assert found[request.id].ids == right
    (cached,) = served(core, ask([*tokens(100), *tokens(10, 7)]))
    assert cached == (96 if cache == "auto" else 0)


def test_a_hit_is_counted_and_the_granularity_is_stated(tmp_path):
    """GDN-09: B is A and a suffix; the report, the counters and the request say the same."""
    core, report = open_ledger(tmp_path, (*SETS, f"{STATE}.snapshot_every=64"))
    assert report.prefix_interval == 64
    assert "prefixes  reused every 64 tokens" in list(report.lines())
    assert served(core, ask(tokens(161), 1)) == [0]
    assert served(core, ask([*tokens(161), *tokens(9, 2)])) == [128]
    stats = core.stats()["prefix"]
    assert {
        name: stats[name] for name in ("queries", "hits", "prompt_tokens", "cached_tokens")
    } == {
        "queries": 2,
        "hits": 1,
        "prompt_tokens": 161 + 170,
        "cached_tokens": 128,
    }


def test_a_salt_keeps_streams_apart_and_so_does_every_input(opened):
    core = opened()
    assert served(core, ask(tokens(40))) == [0]
    assert served(core, ask(tokens(40), settings={"prefix": {"salt": "a"}})) == [0]
    assert served(core, ask(tokens(40), settings={"prefix": {"salt": "b"}})) == [0]
    assert served(core, ask(tokens(40), settings={"prefix": {"salt": "a"}})) == [32]
    assert served(core, ask(tokens(40), salt=2)) == [0]
    assert served(core, ask(tokens(40))) == [32]


@pytest.mark.parametrize("given", ["a", {"salt": 7}, {"salt": "a", "more": 1}, {}, None])
def test_a_salt_that_is_no_text_is_refused_at_the_door(opened, given):
    core = opened()
    with pytest.raises(RequestError, match=r"settings\.prefix"):
        core.submit(ask(tokens(5), settings={"prefix": given})[0])


def test_pages_of_two_that_computed_the_same_at_once_are_kept_once(opened):
    core = opened()
    assert served(core, *(ask(tokens(40)) for _ in range(4))) == [0, 0, 0, 0]
    stats = core.stats()["prefix"]
    assert (stats["cached pages"], stats["cached snapshots"]) == (2, 2)
    assert served(core, *(ask(tokens(40)) for _ in range(4))) == [32, 32, 32, 32]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_cached_pages_are_taken_when_a_live_request_needs_them(opened, mode, depth):
    """KV-03: a pool of 20 pages, twelve requests of 40 + 30 tokens that begin with the same 32."""
    core = opened(f"{KV}.num_pages=20", f"engine.in_flight={depth}", mode=mode)
    asked = [ask([*tokens(32), *tokens(8, n)], 30) for n in range(12)]
    served(core, *asked)
    cached = served(core, *asked[:1], *(ask([*tokens(32), *tokens(8, n)], 30) for n in range(20)))
    assert set(cached) <= {0, 32}
    assert 32 in cached
    stats = core.stats()["prefix"]
    assert stats["evicted pages"] > 0
    assert core.held()["ledger.kv pages"] == (20, 20)


@pytest.mark.parametrize("snapshots", [1, 2])
def test_few_snapshots_are_taken_from_whoever_used_them_longest_ago(opened, snapshots):
    core = opened(f"{STATE}.snapshots={snapshots}", "engine.in_flight=0")
    assert served(core, ask(tokens(20), 1)) == [0]
    assert served(core, ask(tokens(20, 1), 1)) == [0]
    assert served(core, ask(tokens(20), 1)) == [16 if snapshots == 2 else 0]
    assert served(core, ask(tokens(20, 2), 1)) == [0]
    assert served(core, ask(tokens(20), 1)) == [16 if snapshots == 2 else 0]
    assert served(core, ask(tokens(20, 1), 1)) == [0]
    assert core.stats()["prefix"]["evicted snapshots"] == 6 - snapshots - (snapshots == 2) * 2


def test_a_snapshot_that_is_pinned_is_not_taken(opened):
    """Its reader is admitted and has taken no step when others need every snapshot."""
    core = opened(f"{STATE}.snapshots=1", "engine.token_budget=16", "engine.capture.tokens=[16]")
    assert served(core, ask(tokens(20), 1)) == [0]
    others = [ask(tokens(70, n), 3, salt=n) for n in (2, 3)]
    assert served(core, *others, ask(tokens(20))) == [0, 0, 16]
    assert core.stats()["prefix"]["skipped snapshots"] > 0


@pytest.mark.parametrize("act", ["abort", "offload"])
@pytest.mark.parametrize("depth", [0, 2])
def test_a_hit_that_leaves_before_its_first_step_gives_all_back(opened, act, depth):
    """GDN-10: and one that comes back begins with the state that it was given."""
    core = opened(
        f"engine.in_flight={depth}", "engine.token_budget=16", "engine.capture.tokens=[16]"
    )
    assert served(core, ask(tokens(40))) == [0]
    busy, (request, right) = ask(tokens(60, 4), 20, salt=4), ask(tokens(40))
    core.submit(busy[0])
    core.turn()
    core.submit(request)
    core.turn()  # it is admitted, and the other takes the whole step
    getattr(core, act)(request.id)
    while core.turn():
        pass
    core.reload(request.id)
    while core.turn():
        pass
    found = results(core)
    assert found[busy[0].id].ids == busy[1]
    assert found[request.id].cached_tokens == 32
    assert found[request.id].ids == ([] if act == "abort" else right)
    assert core.stats()["offload"]["reloads"] == (act == "offload")


@pytest.mark.parametrize("depth", [1, 3])
def test_what_ran_past_a_stop_is_not_found(opened, depth):
    """Rows that were launched past a stop have moved the state beyond what was kept."""
    core = opened(f"engine.in_flight={depth}", f"{STATE}.snapshots=40")
    prompt = tokens(20)
    right = continuation(prompt, 1, 40)
    for kept in range(1, 14):
        request, _ = ask(prompt, 40)
        core.submit(request)
        while core.num_generated(request.id) < kept:
            core.turn()
        core.stop(request.id, kept)
        while core.turn():
            pass
        assert results(core)[request.id].ids == right[:kept]
    assert core.stats()["prefix"]["cached snapshots"] == 2
    # 20 + 12 tokens make two pages; the last kept token was fed by a step that nobody kept
    assert served(core, ask([*prompt, *right[:13]])) == [32]


def test_a_failed_step_publishes_nothing(opened, monkeypatch):
    """GDN-22: neither pages nor snapshots of a step that raised."""
    core, run = opened("engine.in_flight=2", mode="eager"), NodeRuntime.run

    def fails(self, walk, plans, tensors):
        raise RuntimeError("planted")

    monkeypatch.setattr(NodeRuntime, "run", fails)
    request, _ = ask(tokens(40))
    assert run_all(core, [request])[request.id].finish_reason == "error"
    monkeypatch.setattr(NodeRuntime, "run", run)
    stats = core.stats()["prefix"]
    assert (stats["cached pages"], stats["cached snapshots"]) == (0, 0)
    assert served(core, ask(tokens(40))) == [0]


@pytest.mark.parametrize("depth", [0, 2])
def test_what_is_not_finite_is_not_found(opened, monkeypatch, depth):
    """GDN-22: one request's step gives NaN; those that begin alike are right."""
    core, run = opened(f"engine.in_flight={depth}", mode="eager"), NodeRuntime.run

    def poisoned(self, walk, plans, tensors):
        reads = run(self, walk, plans, tensors)
        reads["finite"] = torch.zeros_like(reads["finite"])
        self.resources["state"].pool.blocks["hash"][:, plans["state"].slots_B] = 77
        return reads

    monkeypatch.setattr(NodeRuntime, "run", poisoned)
    request, _ = ask(tokens(40))
    assert run_all(core, [request])[request.id].finish_reason == "error"
    monkeypatch.setattr(NodeRuntime, "run", run)
    assert core.stats()["prefix"]["cached snapshots"] == 0
    for cached in (0, 32, 32, 32, 32):
        assert served(core, ask(tokens(40))) == [cached]


def test_a_cache_that_is_off_says_so_and_holds_nothing(tmp_path):
    core, report = open_ledger(tmp_path, (*SETS, "engine.prefix_cache=off"))
    assert served(core, ask(tokens(40))) == served(core, ask(tokens(40))) == [0]
    assert core.stats()["prefix"] is None
    assert [refusal.code for refusal in report.prefix_refusals] == ["prefix-cache-off"]
    assert not [name for name in core.held() if "snapshots" in name]


def test_a_model_without_memory_for_snapshots_refuses_the_cache_with_a_sentence(tmp_path):
    """S3.15: its pages alone are not shared either, for its state could not begin there."""
    core, report = open_ledger(tmp_path, (*SETS, f"{STATE}.snapshots=0"))
    assert served(core, ask(tokens(40))) == served(core, ask(tokens(40))) == [0]
    (refusal,) = report.prefix_refusals
    assert (refusal.code, refusal.owner) == ("no-snapshots", "state")
    assert any("not reused: resource state" in line for line in report.lines())


def test_a_snapshot_interval_that_is_no_multiple_of_the_page_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="multiple of the page size"):
        open_ledger(tmp_path, (*SETS, f"{STATE}.snapshot_every=24"))
