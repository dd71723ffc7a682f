"""The pytest plugin: what it costs to have it, its fixtures, and what a failing suite says."""

import subprocess
import sys

import pytest
import torch

from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.plugins import Wiring
from mstar_core.testing.hooks import hooks_watched

SUITE = """
import pytest
from mstar_core.plugins import Wiring
from mstar_core.testing import ModelContract
from mstar_core.testing.contracts.opened import Opened
from mstar_core.testing.cores import open_ledger, open_wired, run_all, LEDGER
from mstar_core.testing.ledger import LedgerModel, LedgerSubmodule, ledger_request

class TestLedger(ModelContract):
    def open(self, folder, *sets, lag=None):
        core, wired, report = open_wired(LEDGER, folder, ("engine.max_rows=4", *sets), lag)
        return Opened(core=core, wired=wired, report=report)

    def requests(self, front):
        return [ledger_request([i], i, 2) for i in range(3)]

    def oracle(self, request):
        return [-1, -1]

def test_asks(no_hook_in_a_step):
    wiring = Wiring.of_core()
    wiring.seal()
    with pytest.raises(Exception, match="asked while the engine serves"):
        wiring.ask("stopping", reason="test")
"""


@pytest.fixture
def ledger_offer(plugin):
    """A plugin that offers the ledger model, and the ``model:`` section that names it."""
    plugin("bound")
    return {"name": "bound", "path": "package:bound/tiny", "load": "random"}


def test_a_run_without_engines_imports_neither_torch_nor_numpy():
    code = (
        "import sys, mstar_core.testing, mstar_core.testing.plugin; "
        "print(sorted({'torch', 'numpy', 'attrs', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_the_kit_does_not_have_is_an_attribute_error():
    import mstar_core.testing

    with pytest.raises(AttributeError, match="NoContract"):
        _ = mstar_core.testing.NoContract


def test_an_engine_opens_over_any_model_offer(tiny_engine, ledger_offer, assert_conserved):
    engine = tiny_engine(
        ledger_offer, "engine.graphs=recorder", "engine.max_rows=2", device=CpuDevice(Lag())
    )
    requests = [engine.front.text_request(text) for text in ("1 2 3", "4")]
    assert [len(result.ids) for result in engine.run(requests)] == [8, 8]
    assert_conserved(engine)


def test_something_that_is_held_is_told(tiny_engine, ledger_offer, assert_conserved):
    engine = tiny_engine(ledger_offer, "engine.max_rows=2")
    held = engine.stats()["held"]
    unit = next(iter(held))

    class Leaking:
        def stats(self):
            return {"held": held | {unit: (0, 1)}}

    with pytest.raises(AssertionError, match=unit.split()[0]):
        assert_conserved(Leaking())


def test_the_recorder_replays(recorder):
    x = torch.zeros(3)
    graph = recorder.capture("twice", lambda: {"y": x * 2}, [x])
    x.fill_(4)
    graph.replay()
    assert graph.outputs["y"].tolist() == [8, 8, 8]


def test_code_runs_where_torch_cannot_be_imported(without_torch):
    assert without_torch("print(len(sys.argv))", "one") == "2\n"
    with pytest.raises(AssertionError, match="torch"):
        without_torch("import torch")


def test_hooks_may_be_asked_while_nothing_serves():
    wiring = Wiring.of_core()
    with hooks_watched() as asked:
        wiring.ask("stopping", reason="test")
    assert asked == []


def test_a_failing_suite_shows_values_and_a_hook_in_a_step_fails_a_test(tmp_path):
    """In a process of its own, from the checkout as it is installed."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k"]
    done = subprocess.run(
        [*command, "oracle or asks", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "asked during a step: stopping" in done.stdout
    assert "At index 0 diff" in done.stdout, "the kit's own asserts are rewritten"
