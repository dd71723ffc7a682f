"""The host alone, measured: what it needs, and what it leaves behind however it ends."""

import gc
import json

import pytest

from mstar_core.bench import host, sched
from mstar_core.bench.resting import resting
from mstar_core.cli import main
from mstar_core.engine.opening import resolve_config
from mstar_core.errors import RequestError


@pytest.mark.usefixtures("nothing_frozen")
def test_what_lives_already_is_left_alone_within_and_collected_again_behind():
    with resting():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
    with pytest.raises(ZeroDivisionError), resting():
        _ = 1 / 0
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("nothing_frozen")
def test_what_was_left_alone_before_is_left_alone_behind():
    gc.freeze()
    with resting():
        pass
    assert gc.get_freeze_count() > 1000


@pytest.mark.usefixtures("nothing_frozen")
def test_a_measurement_that_fails_amid_its_steps_leaves_nothing_frozen():
    with pytest.raises(TypeError):
        sched.measure(2, 3, None)
    assert gc.get_freeze_count() == 0
    with pytest.raises(TypeError):
        host.measure(resolve_config("echo", ("engine.max_rows=2",)), 1, None, (1, 2))
    assert gc.get_freeze_count() == 0


def test_the_host_s_part_of_a_step_is_measured_for_a_model_with_more_inputs_than_ids(capsys):
    """``echo`` takes the length of a prompt beside its ids, which its front knows."""
    command = ["bench", "host", "echo", "--rows", "2", "--steps", "4", "--json"]
    assert main([*command, "--set", "engine.max_context=512"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(one["rows"], one["resident"]) for one in results] == [(2, "auto"), (2, "off")]
    assert all(one["plan_and_launch_us"] > 0 for one in results)


def test_steps_that_the_requests_do_not_all_live_through_are_refused(capsys):
    command = ["bench", "host", "echo", "--rows", "2", "--set", "engine.max_context=300"]
    assert main([*command, "--steps", "300"]) == 1
    err = capsys.readouterr().err
    assert "got   300 steps of 2 requests" in err
    assert "the context of 300 tokens" in err


def test_requests_that_are_over_before_all_decode_together_are_refused():
    """Eight prompts, one a step, and two tokens for each: the first is over by then."""
    sets = ("engine.max_rows=8", "engine.max_context=18", "engine.token_budget=16")
    with pytest.raises(RequestError, match="do not all decode so long together"):
        host.measure(resolve_config("echo", sets), 8, 4, (16, 16))
