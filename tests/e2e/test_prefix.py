"""Prompts that begin like others: the same tokens as alone, with the counts that are true."""

import itertools

import pytest

from mstar_core.engine.device import Lag
from mstar_core.testing.cores import open_ledger, run_all
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
        assert core.idle
        core.check_conserved()
        core.check_rows()
        assert core.fences.num_cooling == 0
        assert core.table.num_free == core.table.num_handles


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
