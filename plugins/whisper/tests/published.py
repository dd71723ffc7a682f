"""What is said in the recordings, and what transformers hears in sound of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mstar_core.model.segment import Segment, Word

SAID = {
    "librivox_austen_0870": "And Mr. John Dashwood had then leisure to consider how much there "
    "might be prudently in his power to do for them.",
    "librivox_austen_0880": "He was not an ill-disposed young man.",
    "librivox_austen_0890": "Unless to be rather cold-hearted and rather selfish is to be "
    "ill-disposed.",
    "librivox_austen_0920": "Had he married a more amiable woman, he might have been made still "
    "more respectable than he was.",
    "cards_001": "10 of clubs.",
    "flite_rms_train": "The train to London leaves at half past seven.",
    "espeak_weather": "Good morning, what is the weather like today?",
    "espeak_fox": "The quick brown fox jumps over the lazy dog.",
}


def heard(folder: Any, samples_T: np.ndarray, **how: Any) -> list[dict[str, Any]]:
    """The segments of ``generate``, greedy, with timestamps; ``how`` are its further options."""
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    sound = WhisperFeatureExtractor.from_pretrained(folder)(
        samples_T,
        sampling_rate=16_000,
        return_tensors="pt",
        truncation=False,
        padding="longest",
        return_attention_mask=True,
    )
    out = model.generate(
        sound.input_features,
        attention_mask=sound.attention_mask,
        return_timestamps=True,
        return_segments=True,
        num_beams=1,
        **how,
    )
    return out["segments"][0]


def heard_words(folder: Any, samples_T: np.ndarray, **how: Any) -> list[Segment]:
    """The same with words and their times, grouped as its pipeline does."""
    from transformers import AutoTokenizer
    from transformers.models.whisper import tokenization_whisper as published

    tokenizer, found = AutoTokenizer.from_pretrained(folder), []
    for one in heard(folder, samples_T, return_token_timestamps=True, **how):
        every, times = one["tokens"].tolist(), one["token_timestamps"].tolist()
        at = [i for i, id_ in enumerate(every) if id_ < tokenizer.eos_token_id]
        ids = tuple(every[i] for i in at)
        texts, _, groups = published._combine_tokens_into_words(tokenizer, ids, "english")
        words = tuple(
            Word(start=times[at[g[0]] - 1], end=times[at[g[-1]]], text=text, probability=1.0)
            for text, g in zip(texts, groups, strict=True)
        )
        start, end, text = float(one["start"]), float(one["end"]), tokenizer.decode(ids)
        if ids:
            found.append(Segment(start=start, end=end, text=text, ids=ids, words=words))
    return found
