"""What is told of a request beside its tokens: no speech, and how likely its end was."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch

from mstar_core.config.sampling import SamplingSettings

pytestmark = pytest.mark.shared
NAME = "whisper-tiny-multilingual"
SOT, PREVIOUS, NO_SPEECH = 301, 309, 310
PROMPTS = (
    [SOT, 304, 307],
    [PREVIOUS, 5, 6, 7, 8, 9, 10, 11, SOT, 302, 306],
    [SOT, 303, 307, 311],
    [PREVIOUS, *range(20, 45), SOT, 304, 307],
)


@pytest.fixture(scope="module")
def reference(golden):
    from transformers import WhisperForConditionalGeneration

    return WhisperForConditionalGeneration.from_pretrained(golden / NAME).eval()


@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("engine.graphs=recorder",),
        ("engine.token_budget=8", "engine.min_chunk=2"),
    ],
    ids=["eager", "recorded", "prompts in chunks"],
)
def test_no_speech_is_the_references_behind_the_start_of_each_prompt(
    served, golden, reference, sets
):
    """The prompts run together; a chunk without the start says nothing."""
    engine = served(golden / NAME, "engine.max_rows=4", *sets)
    mel = torch.load(golden / NAME / "mel.pt", weights_only=True)["mel"]
    requests = [
        engine.front.window_request(mel[0].numpy(), prompt, SamplingSettings())
        for prompt in PROMPTS
    ]
    results = engine.run([attrs.evolve(r, max_new_tokens=3) for r in requests])
    for prompt, result in zip(PROMPTS, results, strict=True):
        with torch.inference_mode():
            ids = torch.tensor([prompt])
            logits = reference(input_features=mel, decoder_input_ids=ids).logits
        want = logits[0, prompt.index(SOT)].float().softmax(-1)[NO_SPEECH].item()
        assert result.reported == pytest.approx({"no_speech_prob": want}, rel=1e-4, abs=1e-9)


def test_the_end_of_an_answer_has_its_log_probability(served, golden):
    """The stop id is no token of the answer; an answer that reached its limit has none."""
    engine = served(golden / NAME, "engine.max_rows=4")
    mel = torch.load(golden / NAME / "mel.pt", weights_only=True)["mel"][0].numpy()
    request = engine.front.window_request(mel, PROMPTS[2], SamplingSettings(), timestamps=False)
    (cut_off,) = engine.run([attrs.evolve(request, max_new_tokens=5)])
    assert cut_off.stop_logprob is None
    stop = cut_off.ids[-1]
    ends = attrs.evolve(request, stop_ids=frozenset({stop}), id="ends")
    (stopped,) = engine.run([ends])
    assert stopped.ids == cut_off.ids[: cut_off.ids.index(stop)]
    assert np.isclose(stopped.stop_logprob, cut_off.logprobs[len(stopped.ids)], atol=1e-5)
