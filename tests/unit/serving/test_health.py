"""``/live`` and ``/ready``: what they say in each phase."""

import pytest

from mstar_core.serving.link import EngineState


def ready_at(rig, standing_link, card, **state):
    return rig(link=standing_link(EngineState(**state)), **card).ask("/ready")


@pytest.mark.parametrize("phase", ["starting", "ready", "draining", "stalled"])
def test_live_answers_in_every_phase(rig, standing_link, phase):
    told = rig(link=standing_link(EngineState(phase=phase))).ask("/live")
    assert (told.status, told.json()) == (200, {"status": "live"})


def test_ready_is_a_200_once_requests_are_taken(rig, standing_link):
    told = ready_at(rig, standing_link, {}, phase="ready", done=3, total=3, eta_s=0.0)
    assert (told.status, told.json()) == (
        200,
        {"phase": "ready", "done": 3, "total": 3, "eta_s": 0.0, "start_up": None},
    )


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        ("starting", "not_ready"),
        ("weights", "not_ready"),
        ("stalled", "not_ready"),
        ("restarting", "not_ready"),
        ("draining", "draining"),
    ],
)
def test_before_it_is_a_503_that_says_how_far(rig, standing_link, phase, code):
    told = ready_at(rig, standing_link, {}, phase=phase, done=1, total=4, eta_s=2.5)
    assert (told.status, told.headers["retry-after"]) == (503, "3")
    body = told.json()
    assert body.pop("error")["code"] == code
    assert body == {"phase": phase, "done": 1, "total": 4, "eta_s": 2.5}
    assert told.headers["content-length"] == str(len(told.body))


def test_to_ask_whether_it_is_ready_is_no_error(rig, standing_link):
    """A probe asks many times while the server starts, and got its answer each time."""
    server = rig(link=standing_link(EngineState(phase="starting")))
    assert server.ask("/ready").status == 503
    told = server.service.metrics.render({}, 0).decode()
    assert 'mstar_requests_total{outcome="ok",route="other"} 1.0' in told
    assert "mstar_errors_total{" not in told


def test_an_engine_that_is_ready_before_the_front_is_not(rig, standing_link):
    told = ready_at(rig, standing_link, {"card": None}, phase="ready")
    assert (told.status, told.json()["phase"]) == (503, "starting")
