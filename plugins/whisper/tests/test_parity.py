"""The model against transformers on tiny checkpoints, resources and all but the engine."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import WhisperForConditionalGeneration

TINY = ("whisper-tiny-en", "whisper-tiny-multilingual")
TOLERANCE = 5e-4


def reference(folder):
    return WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def two_windows(folder):
    mel = torch.load(folder / "mel.pt", weights_only=True)
    return torch.cat([mel["mel"], mel["mel_long"][:, :, 200:300]])


@pytest.mark.shared
@pytest.mark.parametrize("name", TINY)
def test_the_encoder_is_the_references(bench, golden, name):
    mel = two_windows(golden / name)
    run = bench(golden / name)
    got = run.hear([run.open(), run.open()], mel)
    want = reference(golden / name).model.encoder(mel).last_hidden_state
    assert (got - want).abs().max() < 1e-5


@pytest.mark.shared
@pytest.mark.parametrize("page_tokens", [8, 64])
@pytest.mark.parametrize("name", TINY)
def test_logits_of_prompt_and_of_every_step_are_the_references(bench, golden, name, page_tokens):
    """WH-16: two rows with prompts of different lengths, each with its own window."""
    mel = two_windows(golden / name)
    run = bench(golden / name, page_tokens=page_tokens)
    prompts = [[301, 5, 9, 20, 33], [301, 77]]
    rows = run.greedy(mel, prompts, 12)
    ref = reference(golden / name)
    for i, row in enumerate(rows):
        ids = torch.tensor([row])
        want = ref(input_features=mel[i : i + 1], decoder_input_ids=ids).logits[0]
        for n in range(len(row) - len(prompts[i])):
            got = run.logits[n][i]
            assert (got - want[len(prompts[i]) - 1 + n]).abs().max() < TOLERANCE


@pytest.mark.shared
@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("name", TINY)
def test_one_window_gives_the_golden_tokens(bench, golden, name, timestamps):
    want = json.loads((golden / name / "golden.json").read_text())[f"one_window_ts_{timestamps}"]
    run = bench(golden / name)
    prompt = want[: (3 if run.config.tokens.multilingual else 1) + (not timestamps)]
    got = run.greedy(two_windows(golden / name)[:1], [prompt], 30, timestamps)
    assert got == [want]


@pytest.mark.shared
@pytest.mark.parametrize("name", TINY)
def test_a_row_gives_the_same_tokens_alone_and_beside_another(bench, golden, name):
    """WH-16."""
    mel = two_windows(golden / name)
    prompts = [[301, 5, 9, 20, 33], [301, 77]]
    together = bench(golden / name).greedy(mel, prompts, 20)
    alone = [bench(golden / name).greedy(mel[i : i + 1], prompts[i : i + 1], 20)[0] for i in (0, 1)]
    assert together == alone


@pytest.mark.shared
def test_a_window_that_is_left_does_not_shine_through(bench, golden):
    """A second request on the pages of the first hears its own window only."""
    name = TINY[0]
    mel = two_windows(golden / name)
    used = bench(golden / name, rows=1)
    first = used.open()
    used.hear([first], mel[:1])
    used.step("prefill", [first], [[301, 308]])
    used.world.close(first)
    used.world.retire()
    got = used.greedy(mel[1:], [[301, 308]], 8)
    assert got == bench(golden / name, rows=1).greedy(mel[1:], [[301, 308]], 8)
