"""What is told of a request beside its tokens: no speech, how likely its end was, and where in its
window each token was said."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from mstar_whisper.asking import alignment_request
from mstar_whisper.judging import Judged

from mstar_core.config.sampling import SamplingSettings
from mstar_core.model.transcription import Answered

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


def answered(ids, ended=True):
    stop = -0.1 if ended else None
    told = Answered(id="a", ids=ids, logprobs=[-0.1] * len(ids), stop_logprob=stop)
    return Judged.of(told, 0.0, 50.0, lambda ids: "")


def reference_firsts(reference, mel, prompt, ids, positions):
    """The published way, from the attention of a pass over prompt and answer."""
    from transformers.models.whisper import generation_whisper as published

    with torch.inference_mode():
        out = reference(
            input_features=mel,
            decoder_input_ids=torch.tensor([[*prompt, *ids]]),
            output_attentions=True,
        )
    heads = reference.generation_config.alignment_heads
    weights = torch.stack([out.cross_attentions[layer][0, head] for layer, head in heads])
    weights = weights[:, len(prompt) :, :positions]
    std, mean = torch.std_mean(weights, dim=1, keepdim=True, unbiased=False)
    match = published._median_filter(((weights - mean) / std)[None], 7)[0].mean(0)
    tokens, places = published._dynamic_time_warping(-match.double().numpy())
    return places[np.pad(np.diff(tokens), (1, 0), constant_values=1).astype(bool)].tolist()


@pytest.mark.parametrize("name", ["whisper-tiny-en", NAME])
def test_tokens_begin_where_the_reference_finds_them(served, golden, name):
    """Windows with different prompts, answers and sound together, one as long as positions are."""
    from transformers import WhisperForConditionalGeneration

    reference = WhisperForConditionalGeneration.from_pretrained(
        golden / name, attn_implementation="eager"
    ).eval()
    engine = served(golden / name, "engine.max_rows=4")
    tokens = engine.front.config.tokens
    mel = torch.load(golden / name / "mel.pt", weights_only=True)["mel"]
    asked = [
        ([SOT], [320, 7, 8, 9, 30, 340], True, 50),
        ([PREVIOUS, 5, 6, 7, SOT], [321, *range(40, 60), 345], True, 37),
        ([SOT], [320, *range(62)], False, 50),
    ]
    requests = [
        alignment_request(tokens, mel[0].numpy(), prompt, answered(ids, ended), positions)
        for prompt, ids, ended, positions in asked
    ]
    for (prompt, ids, ended, positions), result in zip(asked, engine.run(requests), strict=True):
        assert result.error is None
        fed = ids if ended else ids[:-1]
        want = reference_firsts(reference, mel, prompt, fed, positions)
        begins = answered(ids, ended).aligned(Answered.of(result)).begins
        assert begins == (0, *want, *([] if ended else want[-1:]))
        assert len(begins) == len(ids) + 1
