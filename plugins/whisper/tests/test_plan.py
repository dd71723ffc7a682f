"""Plans over tiny checkpoints: the reference's long answers, and what a plan promises."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch
from mstar_whisper.sound import Level

from mstar_core.errors import RequestError
from mstar_core.model.transcription import Answered, Sound

pytestmark = pytest.mark.shared
TINY = ("whisper-tiny-en", "whisper-tiny-multilingual")
FREE = {
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
    "skip_steady": False,
}
"""No threshold: every answer is taken as it is."""
SMALL = ("engine.max_rows=8", "engine.token_budget=64")


class Given:
    """Windows of mel frames that are there already."""

    num_samples = 1

    def __init__(self, mel_CT, width=100):
        self.mel_CT, self.width = mel_CT, width
        self.num_frames = mel_CT.shape[1]
        self.seconds = self.num_frames / 100

    def mel(self, first, num_frames):
        window = np.zeros((len(self.mel_CT), self.width), np.float32)
        window[:, :num_frames] = self.mel_CT[:, first : first + num_frames]
        return window

    def loud(self, first, num_frames):
        return np.ones(num_frames, bool)

    def level(self, first, num_frames):
        return Level(loudest_db=0.0, spread_db=50.0)


def letters(ids, **options):
    return "".join(chr(97 + i % 26) for i in ids)


@pytest.fixture
def tiny(served, golden):
    """Opens an engine over a tiny checkpoint whose text is letters."""

    def serve(name, *sets):
        engine = served(golden / name, *(sets or SMALL))
        engine.front.__dict__["tokenizer"] = SimpleNamespace(
            decode=letters, encode=lambda text, **_: [ord(c) % 200 for c in text]
        )
        return engine

    return serve


def plan_of_mel(engine, mel, **options):
    plan = engine.front.transcription(Sound.of(np.zeros(1, np.float32), 16000), **options)
    plan._windows = Given(mel.numpy()[0])
    return plan


def short(requests, most):
    return [attrs.evolve(r, max_new_tokens=min(most, r.max_new_tokens)) for r in requests]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("name", TINY)
def test_long_sound_is_heard_as_the_reference_hears_it(tiny, golden, name, told):
    """WH-12: times count from the beginning of the sound; WH-11: and end with it."""
    engine = tiny(name)
    want = json.loads((golden / name / "golden.json").read_text())[f"long_cond_{told}"]
    mel = torch.load(golden / name / "mel.pt", weights_only=True)["mel_long"]
    wishes = {"language": "de", "task": "translate"} if "multi" in name else {}
    plan = plan_of_mel(engine, mel, condition_on_previous_text=told, **FREE, **wishes)
    segments = []
    while requests := plan.next():
        for result in engine.run(short(requests, 20)):
            segments += plan.take(Answered.of(result))
    said = [
        (min(start, 4.3), min(end, 4.3), tuple(i for i in ids if i < 300))
        for start, end, ids in want
    ]
    assert [(s.start, s.end, s.ids) for s in segments] == [each for each in said if each[2]]
    assert plan.seconds == plan.duration == 4.3


def test_the_language_is_the_references(tiny, golden):
    """WH-08: found among the languages alone, with a probability."""
    engine = tiny(TINY[1])
    (want,) = json.loads((golden / TINY[1] / "golden.json").read_text())["language"]
    mel = torch.load(golden / TINY[1] / "mel.pt", weights_only=True)["mel"]
    plan = plan_of_mel(engine, mel, **FREE)
    assert plan.language is None
    (request,) = plan.next()
    assert request.arrays["ids"].tolist() == [301]
    (result,) = engine.run([request])
    assert result.ids == [want]
    assert plan.take(Answered.of(result)) == []
    tokens = engine.front.config.tokens
    assert plan.language == tokens.language_of(want) == "es"
    assert 0.25 < plan.language_probability <= 1
    (request,) = plan.next()
    assert request.arrays["ids"].tolist() == [301, want, tokens.tasks["transcribe"]]


def tones(seconds, seed=0):
    draw = np.random.default_rng(seed)
    time = np.arange(int(seconds * 16000)) / 16000
    pitch = np.repeat(draw.uniform(100, 2000, int(seconds * 4) + 1), 4000)[: len(time)]
    loud = np.repeat(draw.uniform(0, 0.6, int(seconds * 8) + 1), 2000)[: len(time)]
    return (loud * np.sin(2 * np.pi * pitch * time)).astype(np.float32)


def facts(segments):
    return [(s.start, s.end, s.ids, round(s.avg_logprob, 3)) for s in segments]


@pytest.mark.parametrize("batched", [False, True])
def test_segments_come_in_order_and_end_within_the_sound(tiny, transcribe, batched):
    """WH-11, WH-12."""
    engine = tiny(TINY[0])
    segments, plan = transcribe(engine, tones(9.37), batched=batched, **FREE)
    assert len(segments) > 5
    times = [time for s in segments for time in (s.start, s.end)]
    assert all(s.start <= s.end for s in segments)
    assert [s.start for s in segments] == sorted(s.start for s in segments)
    assert min(times) >= 0
    assert 8 < max(times) <= plan.duration == 9.37
    assert plan.seconds == 9.37


def test_a_plan_goes_on_where_its_state_says(tiny, transcribe, follow):
    """The state is plain JSON; what was given before is not given again."""
    engine, samples = tiny(TINY[1]), tones(8)
    whole, _ = transcribe(engine, samples, **FREE)
    begun = engine.front.transcription(Sound.of(samples, 16000), **FREE)
    before = follow(engine, begun, most=4)
    state = json.loads(json.dumps(begun.state()))
    after, plan = transcribe(engine, samples, state=state, **FREE)
    assert 0 < len(before) < len(whole)
    assert facts(before + after) == facts(whole)
    assert plan.language == begun.language


def test_windows_together_may_be_answered_in_any_order(tiny, transcribe):
    engine, samples, draw = tiny(TINY[0]), tones(14), random.Random(3)
    want, _ = transcribe(engine, samples, batched=True, **FREE)
    plan = engine.front.transcription(Sound.of(samples, 16000), batched=True, **FREE)
    waiting, segments, widest = [], [], 0
    while waiting := waiting + plan.next():
        widest = max(widest, len(waiting))
        request = waiting.pop(draw.randrange(len(waiting)))
        segments += plan.take(Answered.of(engine.run([request])[0]))
    assert widest == 8
    assert facts(segments) == facts(want)


@pytest.mark.parametrize(
    "at_once", [16, *(pytest.param(n, marks=pytest.mark.long) for n in (8, 32))]
)
def test_transcripts_are_the_same_at_any_concurrency(tiny, transcribe, at_once):
    """WH-16: each as alone, whoever runs beside it."""
    engine = tiny(TINY[1], "engine.max_rows=8")
    sounds = [tones(1 + i % 5, seed=i % 6) for i in range(at_once)]
    wishes = [{"language": "de"} if i % 2 else {} for i in range(at_once)]
    alone = {}
    for i, (sound, more) in enumerate(zip(sounds, wishes, strict=True)):
        if i < 12:
            alone[i] = facts(transcribe(engine, sound, **more, **FREE)[0])
    plans = [
        engine.front.transcription(Sound.of(sound, 16000), **more, **FREE)
        for sound, more in zip(sounds, wishes, strict=True)
    ]
    segments = [[] for _ in plans]
    while asked := [(i, r) for i, plan in enumerate(plans) for r in plan.next()]:
        results = engine.run([request for _, request in asked])
        for (i, _), result in zip(asked, results, strict=True):
            segments[i] += plans[i].take(Answered.of(result))
    assert {i: facts(segments[i]) for i in alone} == alone


def test_a_doubtful_answer_is_drawn_again_at_each_temperature(tiny):
    engine = tiny(TINY[0])
    plan = engine.front.transcription(
        Sound.of(tones(0.5), 16000), temperature=(0, 0.4, 1.0), logprob_threshold=-0.001, seed=5
    )
    asked = []
    while requests := plan.next():
        asked += requests
        for result in engine.run(requests):
            segments = plan.take(Answered.of(result))
    assert [r.sampling.temperature for r in asked[:3]] == [0, 0.4, 1.0]
    assert len({r.sampling.seed for r in asked}) == len(asked)
    assert len({s.temperature for s in segments}) == 1, "one of the answers is taken"


def test_what_was_drawn_hot_is_not_told_to_the_next_window(tiny, golden):
    engine = tiny(TINY[0])
    mel = torch.load(golden / TINY[0] / "mel.pt", weights_only=True)["mel_long"]
    told_before = {"prompt": "before", "condition_on_previous_text": True, **FREE}
    for temperature, told in ((0.4, True), (0.6, False)):
        plan = plan_of_mel(engine, mel, temperature=temperature, **told_before)
        prompts = []
        while requests := plan.next():
            prompts += [r.arrays["ids"].tolist() for r in requests]
            for result in engine.run(requests):
                plan.take(Answered.of(result))
        assert prompts[0][0] == 306, "the prompt comes after its own mark"
        assert all((306 in prompt) == told for prompt in prompts[1:])


def test_hotwords_are_told_to_every_window_before_what_was_said(tiny, golden):
    """WH-10: together they leave room for an answer."""
    engine = tiny(TINY[0])
    mel = torch.load(golden / TINY[0] / "mel.pt", weights_only=True)["mel_long"]
    plan = plan_of_mel(engine, mel, hotwords="abc" * 50, prompt="xyz" * 50, **FREE)
    hot = engine.front.previous_ids("abc" * 50)[:15]
    prompts = []
    while requests := plan.next():
        prompts += [r.arrays["ids"].tolist() for r in requests]
        assert len(prompts[-1]) + requests[-1].max_new_tokens == 64
        for result in engine.run(requests):
            plan.take(Answered.of(result))
    assert len(prompts) > 3
    assert all(prompt[:16] == [306, *hot] and len(prompt) <= 33 for prompt in prompts)
    assert len(prompts[0]) == 33


def test_an_answer_to_nothing_is_refused(tiny):
    engine = tiny(TINY[0])
    plan = engine.front.transcription(Sound.of(tones(1), 16000))
    with pytest.raises(RequestError, match=r"answered\.id"):
        plan.take(Answered(id="other", ids=[], logprobs=[]))


@pytest.mark.parametrize(
    ("name", "wishes", "where"),
    [
        (TINY[1], {"language": "xx"}, "language"),
        (TINY[1], {"language": ""}, "language"),
        (TINY[0], {"language": "de"}, "language"),
        (TINY[0], {"task": "translate"}, "task"),
        (TINY[1], {"temperature": "hot"}, "temperature"),
        (TINY[1], {"hotword": "x"}, "hotword"),
        (TINY[1], {"batched": 1}, "batched"),
        (TINY[1], {"word_timestamps": "yes"}, "word_timestamps"),
    ],
)
def test_wishes_that_the_model_does_not_have_are_refused_at_once(tiny, name, wishes, where):
    """WH-08."""
    engine = tiny(name)
    with pytest.raises(RequestError) as caught:
        engine.front.transcription(Sound.of(tones(1), 16000), **wishes)
    assert caught.value.where == where
