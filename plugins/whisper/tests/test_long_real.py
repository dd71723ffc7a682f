"""Published tiny.en weights on long sound: the reference's segments, and nothing from silence."""

from __future__ import annotations

import tracemalloc

import attrs
import long_sound
import numpy as np
import pytest
from published import heard

from mstar_core.audio import read_audio
from mstar_core.engine import Engine
from mstar_core.model.transcription import Sound

pytestmark = [pytest.mark.shared, pytest.mark.weights]
RATE = 16000
PUBLISHED = {"skip_steady": False, "compression_ratio_threshold": None}
"""The reference measures repetition in token ids; with no threshold the rest is the same."""


@pytest.fixture(scope="module")
def clips(speech):
    return {file.stem: read_audio(file).samples_T for file in sorted(speech.glob("*.wav"))}


def joined(clips, seconds, seed=0):
    """Recordings in any order, with noise of any length between them."""
    draw = np.random.default_rng(seed)
    names, parts, count = sorted(clips), [], 0
    while count < seconds * RATE:
        noise = 0.003 * draw.standard_normal(int(RATE * draw.uniform(0.2, 1.5)))
        parts += [clips[names[draw.integers(len(names))]], noise.astype(np.float32)]
        count += sum(map(len, parts[-2:]))
    return np.concatenate(parts)[: int(seconds * RATE)]


def reference(folder, samples_T, **how):
    """The reference's segments: start, end, ids of the text."""
    seconds = len(samples_T) // 160 / 100
    for one in heard(folder, samples_T, **how):
        ids = tuple(i for i in one["tokens"].tolist() if i < 50256)
        if ids:
            start, end = (min(round(float(one[side]), 2), seconds) for side in ("start", "end"))
            yield start, end, ids


def facts(segments):
    return [(round(s.start, 2), round(s.end, 2), s.ids) for s in segments]


@pytest.mark.parametrize("told", [False, True])
def test_long_sound_is_heard_as_the_reference_hears_it(
    engine, real_weights, clips, transcribe, told
):
    """WH-03, WH-04, WH-12: over window borders, token for token and time for time."""
    samples = joined(clips, 47)
    segments, plan = transcribe(engine, samples, condition_on_previous_text=told, **PUBLISHED)
    want = list(reference(real_weights, samples, condition_on_prev_tokens=told, temperature=0.0))
    assert len(want) > 8
    assert facts(segments) == want
    assert plan.duration == 47


@pytest.mark.long
def test_five_minutes_are_heard_as_the_reference_hears_them(
    engine, real_weights, clips, transcribe
):
    """With the published thresholds of likelihood and of no speech."""
    samples = joined(clips, 300, seed=1)
    how = {"logprob_threshold": -1.0, "no_speech_threshold": 0.6, "temperature": 0.0}
    segments, _ = transcribe(engine, samples, condition_on_previous_text=False, **PUBLISHED, **how)
    how |= {"compression_ratio_threshold": 1e9, "condition_on_prev_tokens": False}
    assert facts(segments) == list(reference(real_weights, samples, **how))


@pytest.mark.long
def test_no_more_words_are_lost_than_the_reference_loses(engine, real_weights, speech):
    """Of four minutes with eight borders of windows, heard once."""
    sound = long_sound.LongSound(speech, 240)
    segments, _ = long_sound.hear(engine, sound, temperature=0.0)
    how = {"logprob_threshold": -1.0, "no_speech_threshold": 0.6, "temperature": 0.0}
    how |= {"compression_ratio_threshold": 1e9, "condition_on_prev_tokens": False}
    theirs = reference(real_weights, np.concatenate([*sound.parts()]), **how)
    told = "".join(engine.front.decode(ids) for _, _, ids in theirs)
    missing, said = sound.missing("".join(s.text for s in segments))
    assert said > 300
    assert missing <= sound.missing(told)[0]


def test_thresholds_and_retries_are_the_references(engine, real_weights, clips, transcribe):
    """Speech, noise, speech: a retry that is all but greedy, and windows that are left out."""
    draw = np.random.default_rng(4)
    noise = (0.1 * draw.standard_normal(31 * RATE)).astype(np.float32)
    samples = np.concatenate([joined(clips, 14), noise, clips["librivox_austen_0870"]])
    how = {"logprob_threshold": -0.35, "no_speech_threshold": 0.6, "temperature": (0.0, 1e-4)}
    segments, _ = transcribe(engine, samples, condition_on_previous_text=False, **PUBLISHED, **how)
    want = list(
        reference(
            real_weights,
            samples,
            condition_on_prev_tokens=False,
            compression_ratio_threshold=1e9,
            **how,
        )
    )
    assert facts(segments) == want
    assert {s.temperature for s in segments} == {0.0, 1e-4}


def silence(seconds):
    return np.zeros(int(seconds * RATE), np.float32)


def white(seconds, db):
    draw = np.random.default_rng(0)
    return (10 ** (db / 20) * draw.standard_normal(int(seconds * RATE))).astype(np.float32)


def tone(seconds):
    time = np.arange(int(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    "samples",
    [silence(1), silence(35), white(35, -50), white(5, -40), white(10, -20), tone(5), tone(33)],
    ids=["silence 1 s", "silence 35 s", "-50 dB", "-40 dB", "-20 dB", "tone 5 s", "tone 33 s"],
)
def test_silence_noise_and_tones_say_nothing(engine, transcribe, samples, batched):
    """WH-05; WH-06: no speech at all is an answer, with the sound's duration."""
    segments, plan = transcribe(engine, samples, batched=batched)
    assert segments == []
    assert plan.seconds == plan.duration == len(samples) / RATE


@pytest.mark.parametrize("still", [silence(10), white(10, -50)], ids=["silence", "noise"])
def test_speech_after_silence_is_found(engine, transcribe, clips, still):
    """WH-05."""
    samples = np.concatenate([still, clips["librivox_austen_0870"], still])
    segments, _ = transcribe(engine, samples)
    text = "".join(s.text for s in segments)
    assert "John Dashwood" in text
    assert "power to do for them." in text
    assert all(s.end <= 27.1 for s in segments)


LONGER = [pytest.param(seconds, marks=pytest.mark.long) for seconds in (59.9, 61, 600)]


@pytest.mark.parametrize("seconds", [0.05, 1, 29.99, 30.0, 30.01, *LONGER])
def test_the_last_word_is_there_at_any_length(engine, transcribe, clips, seconds):
    """WH-04, WH-11: and segments begin and end within the sound."""
    last = clips["librivox_austen_0920"]
    room = int(seconds * RATE) - len(last)
    samples = (
        last[-int(seconds * RATE) :]
        if room < 0
        else np.concatenate([joined(clips, room / RATE + 1)[:room], last])
    )
    segments, plan = transcribe(engine, samples)
    assert plan.duration == len(samples) / RATE
    times = [time for s in segments for time in (s.start, s.end)]
    assert times == sorted(times)
    assert all(0 <= time <= plan.duration for time in times)
    if room >= 0:
        assert "".join(s.text for s in segments)[-40:].rstrip(" .").endswith("he was")


@pytest.mark.parametrize("batched", [False, True])
def test_words_at_a_border_of_windows_are_heard_once(engine, transcribe, clips, batched):
    """WH-03: sentences joined without a pause, over a border."""
    sentences = [clips[name] for name in sorted(clips) if name.startswith("librivox")]
    segments, _ = transcribe(engine, np.concatenate(sentences * 2), batched=batched)
    text = "".join(s.text for s in segments).lower()
    for phrase in ("john dashwood", "his power to do for", "amiable woman", "still more"):
        assert text.count(phrase) == 2, text


def test_the_texts_of_all_segments_are_the_transcript(engine, transcribe, clips):
    """WH-02: nothing is said beside them, and the end of the sound is in the last."""
    segments, _ = transcribe(engine, joined(clips, 45))
    ids = [i for s in segments for i in s.ids]
    assert engine.front.decode(ids) == "".join(s.text for s in segments)
    assert all(None not in (s.avg_logprob, s.compression_ratio, s.no_speech_prob) for s in segments)


def test_the_probability_of_no_speech_is_low_where_somebody_speaks(engine, clips):
    requests = [
        engine.front.audio_request(samples, RATE, timestamps=True)
        for samples in (clips["librivox_austen_0870"], white(5, -40))
    ]
    speech, noise = (r.reported["no_speech_prob"] for r in engine.run(requests))
    assert speech < 0.1
    assert noise > 0.6


@pytest.mark.long
def test_windows_at_any_concurrency_are_equal_and_rows_are_right(real_weights, clips, tmp_path):
    """WH-16: 1, 8 and 32 at once; resident rows are compared with the host's in each step."""
    file = tmp_path / "whisper.yaml"
    file.write_text(f"model: {{name: whisper, path: '{real_weights}', dtype: fp32}}\n")
    sets = ["engine.graphs=recorder", "engine.capture.rows=[1,8,32]", "engine.capture.tokens=[]"]
    sets += ["engine.max_rows=32", "debug.row_check=true"]
    with Engine.open(file, sets, offline=True) as engine:

        def run(samples):
            plans = (engine.front.transcription(Sound.of(s, RATE)) for s in samples)
            requests = [attrs.evolve(p.next()[0], max_new_tokens=12) for p in plans]
            return [(r.ids, r.stop_logprob is None) for r in engine.run(requests)]

        sounds = list(clips.values())[:4]
        alone = [run([sound])[0] for sound in sounds]
        assert run(sounds * 2) == alone * 2
        assert run(sounds * 8) == alone * 8
        check = engine.stats()["row_check"]
    assert check["mismatches"] == 0
    assert check["rows"] > 300


@pytest.mark.long
@pytest.mark.parametrize("minutes", [5, 60])
def test_memory_is_flat_in_the_length_of_the_sound(engine, follow, clips, minutes):
    """And it is all heard: as many segments a minute as in the first."""
    minute = joined(clips, 60)

    def blocks():
        for _ in range(minutes):
            yield minute

    plan = engine.front.transcription(Sound(rate=RATE, blocks=blocks))
    tracemalloc.start()
    segments = follow(engine, plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6
    assert plan.seconds == 60 * minutes
    first = sum(s.end <= 60 for s in segments)
    assert len(segments) > 0.8 * first * minutes
