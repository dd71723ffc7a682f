"""Published tiny.en weights: words and their times beside the reference's, and beside the sound."""

from __future__ import annotations

import numpy as np
import pytest
from published import heard

from mstar_core.audio import read_audio

pytestmark = [pytest.mark.shared, pytest.mark.weights]
RATE = 16000
PUBLISHED = {"skip_steady": False, "compression_ratio_threshold": None}
EOT = 50256


@pytest.fixture(scope="module")
def clips(speech):
    return {file.stem: read_audio(file).samples_T for file in sorted(speech.glob("*.wav"))}


@pytest.fixture(scope="module")
def tokenizer(real_weights):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(real_weights)


def reference(folder, samples_T, told):
    """The reference's segments: ids of the text, and where each of them begins and ends."""
    how = {"return_token_timestamps": True, "condition_on_prev_tokens": told, "temperature": 0.0}
    for one in heard(folder, samples_T, **how):
        ids, times = one["tokens"].tolist(), one["token_timestamps"].tolist()
        text = [i for i, id_ in enumerate(ids) if id_ < EOT]
        if text:
            yield [ids[i] for i in text], [(times[i - 1], times[i]) for i in text]


def reference_words(tokenizer, ids, times):
    """Its grouping into words; the time of a word is that of its tokens without punctuation."""
    from transformers.models.whisper import tokenization_whisper as published

    whole, _, _ = published._combine_tokens_into_words(tokenizer, ids, "english")
    _, _, groups = published._split_tokens_on_spaces(tokenizer, ids)
    spoken = [g for g in groups if tokenizer.decode([ids[i] for i in g]).strip() not in ",.?!"]
    assert len(spoken) == len(whole)
    return [(t, times[g[0]][0], times[g[-1]][1]) for t, g in zip(whole, spoken, strict=True)]


@pytest.mark.parametrize("told", [False, True])
def test_words_are_the_references_and_lie_within_its_times(
    engine, real_weights, clips, transcribe, tokenizer, told
):
    """In windows that are whole and in the last one, behind what was said before and without. A
    word behind a mark may begin sooner, where the sound behind a pause does."""
    names = ("espeak_weather", "librivox_austen_0920", "ps_numbers", "librivox_austen_0870")
    samples = np.concatenate([clips[name] for name in names * 2])
    wishes = {"word_timestamps": True, "condition_on_previous_text": told, **PUBLISHED}
    segments, plan = transcribe(engine, samples, **wishes)
    want = [
        word
        for ids, times in reference(real_weights, samples, told)
        for word in reference_words(tokenizer, ids, times)
    ]
    words = [word for segment in segments for word in segment.words]
    assert len(words) > 60
    assert [word.text for word in words] == [text for text, _, _ in want]
    ours = np.array([(word.start, word.end) for word in words])
    theirs = np.minimum([(start, end) for _, start, end in want], plan.duration)
    off = np.abs(ours - theirs).max(1)
    assert (off < 0.015).mean() > 0.75, "but at pauses, and where the second window begins"
    sooner = ours[:, 0] < theirs[:, 0] - 0.015
    first = [word is segment.words[0] for segment in segments for word in segment.words]
    behind_mark = [False, *(word.text.endswith((".", ",", "?")) for word in words[:-1])]
    assert not (sooner & ~np.logical_or(first, behind_mark)).any()
    assert (ours[:, 0] > theirs[:, 0] - 0.25).all()
    assert (ours[:, 1] < theirs[:, 1] + 0.015).all()


@pytest.mark.parametrize("batched", [False, True])
def test_words_join_to_the_text_and_follow_each_other_within_the_sound(
    engine, clips, transcribe, batched
):
    """WH-02, WH-11, WH-12: and a segment lasts from its first word to its last."""
    samples = np.concatenate([*clips.values()])
    plain, _ = transcribe(engine, samples, batched=batched)
    segments, plan = transcribe(engine, samples, batched=batched, word_timestamps=True)
    assert [s.text for s in segments] == [s.text for s in plain]
    assert all((s.start, s.end) == (s.words[0].start, s.words[-1].end) for s in segments)
    assert ["".join(w.text for w in s.words) for s in segments] == [s.text for s in segments]
    words = [word for segment in segments for word in segment.words]
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= plan.duration
    assert all(0 < word.probability <= 1 for word in words)
    assert all(s.words is None for s in plain)
