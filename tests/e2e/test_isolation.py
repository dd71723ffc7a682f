"""One request's fault is nobody else's: at each stage the others answer as if it were not there."""

import random

import pytest
import torch

from mstar_core.echo.front import EchoFront
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.isolation import TIMES
from mstar_core.engine.opening import open_core
from mstar_core.engine.reading import Reader
from mstar_core.errors import DeviceFault
from mstar_core.testing.cores import open_ledger, results, run_all
from mstar_core.testing.ledger import LedgerSubmodule, continuation, ledger_request
from mstar_core.testing.scripted import Script, open_scripted

SMALL = (
    "engine.max_rows=8",
    "engine.token_budget=32",
    "engine.min_chunk=4",
    "engine.max_context=96",
    "nodes.ledger.resources.kv.page_tokens=8",
)
EVERY_DEVICE = pytest.mark.parametrize(
    ("depth", "lag"),
    [
        pytest.param(
            d, lag, marks=[pytest.mark.long] if (d, lag) in ((0, Lag()), (1, None)) else []
        )
        for d in (0, 1, 2)
        for lag in (None, Lag(), Lag(seed=5))
    ],
    ids=str,
)
POISONED = 5
"""The salt of the request whose step fails."""


def request(salt, prompt=9, new=12, **more):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=f"r{salt}", **more)


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


def eight(**more):
    return [request(n, prompt=3 + 2 * n, new=6 + n, **more) for n in range(1, 9)]


def assert_only_the_poisoned_fails(core, given, found, kept=None):
    """Seven are the definition's; one has its tokens until then, and one structured error."""
    for one in given:
        if one.id == f"r{POISONED}":
            bad = found[one.id]
            assert bad.finish_reason == "error"
            assert set(bad.error) == {"where", "got", "want", "fix"}
            assert bad.ids == right(one)[: len(bad.ids) if kept is None else kept]
        else:
            assert (found[one.id].ids, found[one.id].finish_reason) == (right(one), "length")
    while core.turn():
        pass
    core.check_conserved()
    assert core.table.num_free == core.table.num_handles
    assert core.fences.num_cooling == 0
    assert not core._isolation.suspects
    after = request(90)
    assert run_all(core, [after])[after.id].ids == right(after)


# -- each stage --------------------------------------------------------------------------------


@EVERY_DEVICE
@pytest.mark.parametrize("at", [0, 1, 7])
def test_a_forward_that_raises_for_one_row(tmp_path, depth, lag, at):
    scripts = {POISONED: Script(prompt=3 + 2 * POISONED, raise_at=at)}
    core, _ = open_scripted(tmp_path, scripts, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = eight()
    assert_only_the_poisoned_fails(core, given, run_all(core, given), kept=at)


@EVERY_DEVICE
@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize(
    ("verb", "at"), [("plan", 0), ("room", 13), ("room", 15), ("take", 15), ("commit", 15)]
)
def test_a_resource_that_raises_for_one_row(tmp_path, monkeypatch, depth, lag, graphs, verb, at):
    """Eager steps, captured ones, and (``commit``) the steady steps of a batch."""
    sets = (*SMALL, f"engine.in_flight={depth}", f"engine.graphs={graphs}")
    core, _ = open_ledger(tmp_path, sets, lag)
    kv = core.nodes["ledger"].resources["kv"]
    original, given = getattr(type(kv), verb), eight()
    states = core._live

    def raises(self, step, *more):
        state = states.get(f"r{POISONED}")
        bad = state is not None and state.handle in step.handles_B
        if bad and kv.table.length[state.handle] >= at:
            raise ZeroDivisionError(verb)
        return original(self, step, *more)

    for one in given:
        core.submit(one)
    monkeypatch.setattr(type(kv), verb, raises)
    while core.turn():
        pass
    monkeypatch.undo()
    assert_only_the_poisoned_fails(core, given, results(core))


@EVERY_DEVICE
def test_a_row_that_is_not_finite(tmp_path, depth, lag):
    """What a sampler reports of logits that are NaN."""
    scripts = {POISONED: Script(prompt=3 + 2 * POISONED, nan_at=4)}
    core, _ = open_scripted(tmp_path, scripts, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = eight()
    assert_only_the_poisoned_fails(core, given, run_all(core, given), kept=4)
    assert core.stats()["caught"] == 0


@EVERY_DEVICE
def test_a_row_that_cannot_be_read(tmp_path, monkeypatch, depth, lag):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    original, given = Reader.read_row, eight()

    def raises(self, row, i, read):
        if row.state.id == f"r{POISONED}" and len(row.state.tokens) == 3:
            raise ZeroDivisionError("read")
        original(self, row, i, read)

    monkeypatch.setattr(Reader, "read_row", raises)
    assert_only_the_poisoned_fails(core, given, run_all(core, given), kept=3)


def test_a_check_at_the_door_that_raises_lets_nothing_in(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SMALL)
    kv = type(core.nodes["ledger"].resources["kv"])
    original, given = kv.check, eight()

    def raises(self, opening):
        if opening.prompt_ids is given[POISONED - 1].arrays["ids"]:
            raise ZeroDivisionError("check")
        original(self, opening)

    monkeypatch.setattr(kv, "check", raises)
    for one in given:
        if one.id == f"r{POISONED}":
            with pytest.raises(ZeroDivisionError):
                core.submit(one)
        else:
            core.submit(one)
    while core.turn():
        pass
    found = results(core)
    assert {r: result.ids for r, result in found.items()} == {
        one.id: right(one) for one in given if one.id != f"r{POISONED}"
    }


@EVERY_DEVICE
@pytest.mark.parametrize("verb", ["can_open", "open"])
def test_a_resource_that_cannot_let_one_in(tmp_path, monkeypatch, depth, lag, verb):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    state = type(core.nodes["ledger"].resources["state"])
    original, given = getattr(state, verb), eight()
    poisoned = given[POISONED - 1].arrays["ids"]

    def raises(self, *arguments):
        if arguments[-1].prompt_ids is poisoned:
            raise ZeroDivisionError(verb)
        return original(self, *arguments)

    monkeypatch.setattr(state, verb, raises)
    found = run_all(core, given)
    monkeypatch.undo()
    assert_only_the_poisoned_fails(core, given, found, kept=0)


# -- how it is found out -----------------------------------------------------------------------


def raising(monkeypatch, when):
    """Every forward of the ledger first asks ``when(rows)``, and raises what it gives."""
    original = LedgerSubmodule.forward

    def forward(self, walk, inputs, plans):
        wrong = when(len(plans["kv"].kv_lens_B))
        if wrong is not None:
            raise wrong
        return original(self, walk, inputs, plans)

    monkeypatch.setattr(LedgerSubmodule, "forward", forward)


@EVERY_DEVICE
def test_a_forward_that_always_raises_ends_everybody_soon(tmp_path, monkeypatch, depth, lag):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    raising(monkeypatch, lambda rows: ZeroDivisionError("always"))
    found = run_all(core, eight())
    assert {result.finish_reason for result in found.values()} == {"error"}
    assert core.stats()["launched"] <= 2 * 8 * (depth + 1)


@EVERY_DEVICE
def test_a_step_that_fails_once_fails_nobody(tmp_path, monkeypatch, depth, lag):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"), lag)
    calls = iter(range(10000))
    raising(monkeypatch, lambda rows: ZeroDivisionError() if next(calls) == 6 else None)
    given = eight()
    found = run_all(core, given)
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
    assert core.stats()["caught"] > 0


def test_who_is_caught_too_often_stays_alone_and_finishes(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SMALL)
    raising(monkeypatch, lambda rows: ZeroDivisionError() if rows > 1 else None)
    given = eight()
    found = run_all(core, given)
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
    assert core.stats()["caught"] <= TIMES * len(given)


@EVERY_DEVICE
def test_who_is_past_its_mark_is_ordinary_again(tmp_path, depth, lag):
    """Then steps have as many rows as before."""
    scripts = {POISONED: Script(prompt=3 + 2 * POISONED, raise_at=2)}
    core, submodule = open_scripted(tmp_path, scripts, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = [request(n, prompt=3 + 2 * n, new=60) for n in range(1, 9)]
    found = run_all(core, given)
    behind = max(i for i, (walk, _) in enumerate(submodule.steps) if walk == "prefill")
    assert max(len(rows) for _, rows in submodule.steps[behind:]) == 7
    assert_only_the_poisoned_fails(core, given, found, kept=2)


def test_a_fault_of_the_device_still_ends_the_engine(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SMALL)
    fault = DeviceFault(where="device", got="nothing", want="something", fix="start again")
    raising(monkeypatch, lambda rows: fault)
    core.submit(request(1))
    core.submit(request(2))
    with pytest.raises(DeviceFault):
        all(core.turn() for _ in range(9))


@EVERY_DEVICE
def test_who_leaves_while_it_is_to_be_run_again_gives_everything_back(tmp_path, depth, lag):
    scripts = {POISONED: Script(prompt=3 + 2 * POISONED, raise_at=4)}
    core, _ = open_scripted(tmp_path, scripts, (*SMALL, f"engine.in_flight={depth}"), lag)
    given = eight()
    for one in given:
        core.submit(one)
    while core.stats()["caught"] == 0:
        core.turn()
    core.abort("r1")
    core.turn()
    core.abort("r2")
    while core.turn():
        pass
    found = results(core)
    assert [found[f"r{n}"].finish_reason for n in (1, 2)] == ["abort", "abort"]
    assert_only_the_poisoned_fails(core, given[2:], found, kept=4)


@pytest.mark.parametrize("seed", range(40))
def test_random_faults_reach_nobody_else(tmp_path, seed):
    """Small pools, so that many yield besides; aborts, offloads, prompts that begin alike."""
    draw = random.Random(seed)
    sets = (
        *SMALL,
        f"engine.in_flight={draw.randint(0, 3)}",
        f"engine.preempt={draw.choice(['auto', 'offload', 'recompute'])}",
        f"engine.admission={draw.choice(['take', 'reserve'])}",
        f"engine.mixed={draw.choice(['off', 'on'])}",
        f"engine.prefix_cache={draw.choice(['auto', 'off'])}",
        f"nodes.ledger.resources.kv.num_pages={draw.choice([12, 16, 40])}",
    )
    given = [request(n, draw.randint(1, 40), draw.randint(1, 30)) for n in range(1, 17)]
    bad = set(draw.sample(range(1, 17), 4))
    scripts = {n: Script(prompt=len(given[n - 1].arrays["ids"]), raise_at=n % 5) for n in bad}
    core, _ = open_scripted(tmp_path, scripts, sets, draw.choice([None, Lag(), Lag(seed)]))
    gone, waiting, turns = set(), list(given), 0
    while waiting or core.turn():
        turns += 1
        assert turns < 5000
        if waiting and draw.random() < 0.5:
            core.submit(waiting.pop())
        chance = draw.random()
        one = draw.choice(given)
        if chance < 0.02:
            core.abort(one.id)
            gone.add(one.id)
        elif chance < 0.06:
            core.offload(one.id)
        for each in given:
            core.reload(each.id)
    found = results(core)
    for one in given:
        ids = found[one.id].ids
        assert ids == right(one)[: len(ids)]
        at = int(one.id[1:]) % 5
        if one.id in gone:
            continue
        if int(one.id[1:]) in bad and at < one.max_new_tokens:
            assert (found[one.id].finish_reason, len(ids)) == ("error", at)
        else:
            assert ids == right(one)
    core.check_conserved()


# -- memory ------------------------------------------------------------------------------------


class Trimmed(CpuDevice):
    """Counts how often its allocator was asked to give back."""

    trims = 0

    def trim(self):
        self.trims += 1


def no_memory(most):
    return lambda rows: torch.OutOfMemoryError("no memory") if rows > most else None


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_without_memory_for_a_step_half_of_its_rows_go_together(tmp_path, monkeypatch, depth, most):
    core, _ = open_ledger(tmp_path, (*SMALL, f"engine.in_flight={depth}"))
    core._isolation.device = Trimmed()
    widths, lacks = [], no_memory(most)
    raising(monkeypatch, lambda rows: lacks(rows) or widths.append(rows))
    given = [request(n, prompt=4, new=3) for n in range(1, 9)]
    found = run_all(core, given)
    assert {r.id: found[r.id].ids for r in given} == {r.id: right(r) for r in given}
    assert core._isolation.device.trims >= 2
    assert max(widths) >= min(most, 2)


def test_only_a_request_that_has_no_memory_alone_fails(tmp_path, monkeypatch):
    core, _ = open_ledger(tmp_path, SMALL)
    core._isolation.device = Trimmed()
    original, given = LedgerSubmodule.forward, eight()

    def forward(self, walk, inputs, plans):
        if (inputs["salt"] == POISONED).any():
            raise torch.OutOfMemoryError("no memory")
        return original(self, walk, inputs, plans)

    monkeypatch.setattr(LedgerSubmodule, "forward", forward)
    for one in given:
        core.submit(one)
    while core.turn():
        pass
    monkeypatch.undo()
    found = results(core)
    assert "no memory" in found[f"r{POISONED}"].error["got"]
    assert_only_the_poisoned_fails(core, given, found, kept=0)


# -- graphs with a stream ----------------------------------------------------------------------


front = EchoFront(faults=True)


def open_echo(depth, lag, *more):
    sets = ("model.options.faults=true", "engine.max_rows=8", f"engine.in_flight={depth}")
    return open_core("echo", (*sets, *more), device=CpuDevice(lag))[0]


@EVERY_DEVICE
@pytest.mark.parametrize("order", ["!raise@5", "!raise@0", "!oom@3", "!hear", "!voice@9"])
def test_a_stream_is_run_again_from_its_prompt_and_its_consumer_hears_all_of_it(depth, lag, order):
    core, heard = open_echo(depth, lag), {}

    def listen(module, args, result):
        for token, _ in args[1]["said"].tolist():
            if token >= 128:
                heard.setdefault(token, []).append(token)

    core.nodes["voice"].submodule.register_forward_hook(listen)
    clean = [front.ids_request([200 + n] * (4 + 3 * n), max_new_tokens=99) for n in range(7)]
    bad = front.text_request(f"{order} and the rest", max_new_tokens=99)
    found = run_all(core, [*clean[:4], bad, *clean[4:]])
    assert found[bad.id].finish_reason == "error"
    for n, one in enumerate(clean):
        said = [200 + n] * (4 + 3 * n)
        assert (found[one.id].ids, found[one.id].finish_reason) == (said, "stop")
        assert heard[200 + n][-len(said) :] == said
    after = front.text_request("as before", max_new_tokens=99)
    assert front.decode(run_all(core, [after])[after.id].ids) == "as before"


@pytest.mark.parametrize("seed", [*range(30), 218])
def test_random_faults_of_a_stream_reach_nobody_else(seed):
    """Every stage orders some; besides, small pools, aborts and offloads."""
    draw = random.Random(seed)
    more = (
        f"engine.preempt={draw.choice(['auto', 'offload', 'recompute'])}",
        f"engine.token_budget={draw.choice([8, 64])}",
        "engine.min_chunk=4",
        "engine.max_context=128",
        "nodes.mouth.resources.kv.page_tokens=8",
        f"nodes.mouth.resources.kv.num_pages={draw.choice([18, 24, 99])}",
    )
    core = open_echo(draw.randint(0, 3), draw.choice([None, Lag(), Lag(seed)]), *more)
    kinds, given = ("!raise", "!oom", "!voice", "!nan", "!hear"), {}
    for n in range(16):
        text = "abcdefgh"[: draw.randint(1, 8)] * draw.randint(1, 6)
        if n % 4 == 0:
            text = f"{draw.choice(kinds)}@{draw.randint(1, 6)} {text}"
        request = front.text_request(text, max_new_tokens=draw.randint(8, 60), id=f"r{n}")
        given[request.id] = (request, text)
    waiting, gone, turns = list(given), set(), 0
    while waiting or core.turn():
        turns += 1
        assert turns < 9000
        if waiting and draw.random() < 0.5:
            core.submit(given[waiting.pop()][0])
        chance, one = draw.random(), draw.choice(list(given))
        if chance < 0.01:
            core.abort(one)
            gone.add(one)
        elif chance < 0.05:
            core.offload(one)
        for each in given:
            core.reload(each)
    found = results(core)
    for name, (request, text) in given.items():
        want = text.encode()[: request.max_new_tokens]
        assert bytes(found[name].ids) == want[: len(found[name].ids)]
        if name in gone:
            continue
        if text[0] == "!":
            assert found[name].finish_reason == "error"
        else:
            assert bytes(found[name].ids) == want
    core.check_conserved()


def test_a_second_run_that_goes_another_way_fails_and_says_so(monkeypatch):
    core = open_echo(1, None)
    mouth = core.nodes["mouth"].submodule
    original, changed = mouth.forward, []

    def forward(walk, inputs, plans):
        outputs = original(walk, inputs, plans)
        if changed:
            outputs["ids"][:] = 1
        return outputs

    monkeypatch.setattr(mouth, "forward", forward)
    one = front.text_request("a long prompt", max_new_tokens=99)
    for each in (one, front.text_request("!raise@5 a", max_new_tokens=99)):
        core.submit(each)
    while core.stats()["caught"] == 0:
        core.turn()
    changed.append(True)
    while core.turn():
        pass
    result = results(core)[one.id]
    assert result.finish_reason == "error"
    assert "token 1 where its first run gave 97" in result.error["got"]


def test_tokens_are_given_out_once(monkeypatch):
    """A stream that was run again has as many events as tokens."""
    core = open_echo(2, Lag(3))
    one = front.text_request("every byte of this once", max_new_tokens=99)
    for each in (one, front.text_request("!raise@9 and on", max_new_tokens=99)):
        core.submit(each)
    while core.turn():
        pass
    events = [event for event in core.drain() if event.request == one.id]
    assert bytes(event.token for event in events[:-1]) == b"every byte of this once"
    assert (events[-1].reason, events[-1].generated) == ("stop", len(events) - 1)
    assert core.stats()["caught"] == 2
