"""Requests and calls that are wrong: each is told its four facts, and nobody else notices."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from mstar_core.engine.engine import Engine
from mstar_core.engine.events import TokenEvent
from mstar_core.engine.texts import stream_text
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.testing.cores import open_wired
from mstar_core.testing.ledger import continuation, ledger_request
from mstar_core.testing.scripted import SCRIPTED, Script

SETS = (
    "engine.max_rows=4",
    "engine.token_budget=32",
    "engine.max_context=128",
    "nodes.ledger.resources.kv.page_tokens=8",
)
SLOW = Script(prompt=5, sleep_s=0.003)


def request(salt, prompt=5, new=8, **more):
    ids = [(salt * 31 + i * 7) % 97 for i in range(prompt)]
    return ledger_request(ids, salt, new, id=more.pop("id", f"r{salt}"), **more)


def right(given):
    ids, salt = given.arrays["ids"].tolist(), int(given.arrays["salt"][0])
    return continuation(ids, salt, given.max_new_tokens)


def told(error, where, got, want):
    """The four facts, in the reader's words."""
    facts = error.facts()
    assert facts["where"] == where
    assert got in facts["got"]
    assert want in facts["want"]
    assert facts["fix"]


@pytest.fixture
def start(tmp_path):
    """Starts an engine over the scripted model."""
    engines = []

    def open_one(**scripts):
        core, wired, report = open_wired(SCRIPTED, tmp_path / str(len(engines)), SETS)
        core.nodes["ledger"].submodule.scripts.update(
            {int(salt.removeprefix("r")): script for salt, script in scripts.items()}
        )
        engines.append(Engine(core, wired, report))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


# -- requests ------------------------------------------------------------------------------

WRONG = {
    "no stop ids": ({"stop_ids": None}, "stop_ids", "None", "set of token ids"),
    "one stop id": ({"stop_ids": 5}, "stop_ids", "5", "set of token ids"),
    "stop ids of text": ({"stop_ids": ["a"]}, "stop_ids", "'a'", "set of token ids"),
    "true as a stop id": ({"stop_ids": {True}}, "stop_ids", "True", "set of token ids"),
    "stop ids in a list": ({"stop_ids": [[1]]}, "stop_ids", "[[1]]", "set of token ids"),
    "no sampling": ({"sampling": None}, "sampling", "None", "SamplingSettings"),
    "sampling as a mapping": ({"sampling": {}}, "sampling", "{}", "SamplingSettings"),
    "settings that are none": ({"settings": 5}, "settings", "5", "mapping of names"),
    "settings by number": ({"settings": {1: 2}}, "settings", "1", "mapping of names"),
    "an id that is none": ({"id": None}, "id", "None", "text"),
    "an empty id": ({"id": ""}, "id", "''", "text"),
    "gated by number": ({"gated": 1}, "gated", "1", "true or false"),
    "stop ids kept by text": ({"ignore_stop_ids": "no"}, "ignore_stop_ids", "'no'", "true or"),
    "a stop that is one text": ({"stop": "END"}, "stop", "'END'", "tuple of texts"),
    "an empty stop": ({"stop": ("",)}, "stop", "''", "none of them empty"),
    "arrays that are none": ({"arrays": None}, "arrays", "None", "names to arrays"),
    "true as a number": ({"max_new_tokens": True}, "max_new_tokens", "True", "an integer"),
    "half a token": ({"max_new_tokens": np.float32(1.5)}, "max_new_tokens", "1.5", "an integer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_field_of_another_type_is_refused_as_the_request_is_built(case):
    changed, *facts = WRONG[case]
    with pytest.raises(RequestError) as caught:
        Request(**{"arrays": {}, **changed})
    told(caught.value, *facts)


def test_a_long_value_is_told_in_short():
    with pytest.raises(RequestError) as caught:
        Request(arrays={}, settings=list(range(10_000)))
    assert len(caught.value.facts()["got"]) < 120


def test_numbers_of_numpy_and_lists_are_taken_as_what_they_mean(start):
    engine = start()
    given = request(1, new=np.int64(8), stop_ids=[np.int64(500), 600], stop=["x"])
    assert (given.max_new_tokens, given.stop_ids, given.stop) == (8, {500, 600}, ("x",))
    assert engine.run([given])[0].ids == right(given)


def test_ids_outside_the_vocabulary_are_one_request_s_error(start):
    engine = start()
    bad = [np.array([97]), np.array([-1]), np.array([2**63], np.uint64)]
    wrong = [Request(arrays={"ids": ids, "salt": np.ones(1, np.int64)}) for ids in bad]
    first, *found, last = engine.run([request(1), *wrong, request(2)])
    assert [r.error["where"] for r in found] == ["arrays.ids"] * 3
    assert [r.error["got"] for r in found] == ["97", "-1", str(2**63)]
    assert all("0 to 96" in r.error["want"] for r in found)
    assert (first.ids, last.ids) == (right(request(1)), right(request(2)))


@pytest.mark.parametrize("name", ["kv", "rules", "sampler"])
def test_settings_that_nobody_reads_are_refused_by_name(start, name):
    engine = start()
    first, found, last = engine.run([request(1), request(2, settings={name: 5}), request(3)])
    facts = found.error
    assert facts["where"] == f"settings.{name}"
    assert "no resource" in facts["got"]
    assert facts["want"] == "one of: prefix"
    assert facts["fix"]
    assert (first.ids, last.ids) == (right(request(1)), right(request(3)))


def test_what_is_no_request_is_refused_before_anything_of_it_is_used(start):
    engine = start()
    with pytest.raises(RequestError) as caught:
        engine.run(["hello"])
    told(caught.value, "request", "a str", "a Request")
    assert engine.run([request(1)])[0].ids == right(request(1))


# -- calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", ["x", None, -1, 1.5, True])
def test_a_count_that_is_none_is_refused_and_its_request_goes_on(start, accepted):
    engine = start(r1=SLOW)
    events = engine.stream(request(1, new=20))
    first = next(events)
    with pytest.raises(RequestError) as caught:
        engine.stop("r1", accepted)
    told(caught.value, "accepted", repr(accepted), "at least 0")
    tokens = [first.token, *(e.token for e in events if isinstance(e, TokenEvent))]
    assert tokens == right(request(1, new=20))


@pytest.mark.parametrize("wrong", [[1], None, 5])
def test_an_id_that_is_none_is_refused(start, wrong):
    engine = start()
    for call in (engine.abort, lambda one: engine.stop(one, 1)):
        with pytest.raises(RequestError) as caught:
            call(wrong)
        told(caught.value, "request_id", repr(wrong), "the id of a request")
    assert engine.run([request(1)])[0].ids == right(request(1))


def test_a_call_that_raises_in_the_engine_s_thread_is_logged_and_is_nobody_s_end(start, caplog):
    engine = start(r1=SLOW)
    events = engine.stream(request(1, new=20))
    first = next(events)
    engine._driver.call([].pop)
    tokens = [first.token, *(e.token for e in events if isinstance(e, TokenEvent))]
    assert tokens == right(request(1, new=20))
    assert "a call to the engine failed" in caplog.text
    assert engine.run([request(2)])[0].ids == right(request(2))


# -- failures after the first token --------------------------------------------------------


def test_a_text_that_fails_in_the_middle_is_given_out_and_then_raises(start):
    engine = start(r1=Script(prompt=5, raise_at=4))
    text = []
    with pytest.raises(RequestError) as caught:
        text.extend(delta.text for delta in stream_text(engine, request(1)))
    told(caught.value, "request r1", "an internal error", "")
    assert "".join(text) == engine.front.decode(right(request(1))[:4])
    assert engine.run([request(2)])[0].ids == right(request(2))


# -- engines that nobody closes ------------------------------------------------------------


def test_an_engine_that_nobody_holds_ends_its_thread(start, tmp_path):
    core, wired, report = open_wired(SCRIPTED, tmp_path / "own", SETS)
    engine = Engine(core, wired, report)
    thread, gone = engine._driver.thread, weakref.ref(engine)
    assert engine.run([request(1)])[0].ids == right(request(1))
    del engine
    gc.collect()
    assert gone() is None
    thread.join(10)
    assert not thread.is_alive()
    assert not wired.nodes
    assert not any(t is thread for t in threading.enumerate())


UNCLOSED = """
import sys
from pathlib import Path
from mstar_core.engine.engine import Engine
from mstar_core.testing.cores import open_wired
from mstar_core.testing.ledger import ledger_request
from mstar_core.testing.scripted import SCRIPTED, Script

core, wired, report = open_wired(SCRIPTED, Path(sys.argv[1]), ("engine.max_rows=4",))
core.nodes["ledger"].submodule.scripts[1] = Script(prompt=3, sleep_s=0.002)
engine = Engine(core, wired, report)
events = engine.stream(ledger_request([1, 2, 3], 1, 200))
print(next(events).token)
"""


def test_a_process_that_ends_in_the_middle_of_a_stream_ends_cleanly(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == continuation([1, 2, 3], 1, 1)[0]
