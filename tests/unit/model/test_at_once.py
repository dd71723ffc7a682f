"""The plan of a front that has none: all of the sound in one request."""

from __future__ import annotations

import numpy as np
import pytest

from mstar_core.echo.front import EchoFront
from mstar_core.errors import RequestError
from mstar_core.model.front import Front
from mstar_core.model.transcription import Answered, Sound

SOUND = Sound.of(np.zeros(16_000 * 45, np.float32), 16_000)


class OneWindow(EchoFront):
    """Echo without a plan of its own."""

    transcription = Front.transcription


def answer(request, text):
    ids = list(text.encode())
    return Answered(id=request.id, ids=ids, logprobs=[-0.5] * len(ids))


def test_the_sound_is_heard_in_one_request_however_many_blocks_it_has():
    plan = OneWindow().transcription(SOUND)
    assert (plan.duration, plan.seconds) == (None, 0.0)
    (request,) = plan.next()
    assert bytes(request.arrays["ids"].tolist()) == b"45.00 s of sound"
    assert (plan.next(), plan.duration, plan.seconds) == ([], 45.0, 0.0)
    (segment,) = plan.take(answer(request, "said"))
    assert (segment.start, segment.end, segment.text) == (0.0, 45.0, "said")
    assert (segment.avg_logprob, segment.temperature) == (-0.5, 0.0)
    assert (plan.next(), plan.seconds) == ([], 45.0)


def test_an_answer_without_text_is_no_segment():
    plan = OneWindow().transcription(SOUND)
    (request,) = plan.next()
    assert plan.take(answer(request, "")) == []


def test_wishes_reach_the_request():
    plan = OneWindow().transcription(SOUND, prompt="hello", temperature=0.5, seed=0)
    (request,) = plan.next()
    assert bytes(request.arrays["ids"].tolist()) == b"hello"
    assert (request.sampling.temperature, request.sampling.seed) == (0.5, 0)


@pytest.mark.parametrize("wish", ["batched", "word_timestamps", "hotwords"])
def test_what_only_a_plan_of_the_models_own_grants_is_refused_at_once(wish):
    with pytest.raises(RequestError) as error:
        OneWindow().transcription(SOUND, **{wish: True})
    assert error.value.where == wish
    OneWindow().transcription(SOUND, **{wish: None})


def test_an_answer_is_taken_once():
    plan = OneWindow().transcription(SOUND)
    (request,) = plan.next()
    plan.take(answer(request, "a"))
    for told in (answer(request, "a"), Answered(id="other", ids=[], logprobs=[])):
        with pytest.raises(RequestError, match="runs"):
            plan.take(told)
