"""The trained checkpoint that this package holds: what it is, and that it is right."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import attrs
import mstar_qwen35
import pytest
import torch
from mstar_qwen35.config import read_config
from mstar_qwen35.front import tokenizer_size

from mstar_core.bench.quality_report import measure
from mstar_core.bench.quality_tasks import read_tasks, shipped_tasks
from mstar_core.cli import main
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine

MICRO = Path(mstar_qwen35.__file__).parent / "micro"
ROOT = Path(__file__).parents[3]
AT_ONCE = 16


@pytest.fixture(scope="module")
def engine():
    with Engine.open("qwen35_micro", ("device=cpu", f"engine.max_rows={AT_ONCE}")) as engine:
        yield engine


@pytest.fixture
def training(monkeypatch):
    """The modules that made the checkpoint are importable."""
    monkeypatch.syspath_prepend(str(ROOT))


def said(engine, text, **sampling):
    """The answers to one chat, drawn with each of the seeds."""
    requests = [
        engine.front.chat_request(
            [{"role": "user", "content": text}],
            max_new_tokens=32,
            sampling=SamplingSettings(seed=seed, **sampling),
        )
        for seed in range(100)
    ]
    results = engine.run(requests)
    return [(engine.front.decode(result.ids), result.finish_reason) for result in results]


def test_it_has_both_kinds_of_layers_at_published_head_sizes_and_fits_in_14_mb():
    config = read_config(MICRO)
    assert (config.num_full, config.num_linear) == (2, 6)
    assert (config.head_dim, config.rope.rotary_dim, config.rope.sections) == (
        256,
        64,
        (11, 11, 10),
    )
    assert (config.k_dim, config.v_dim, config.conv_taps) == (128, 128, 4)
    assert config.num_heads > config.num_kv_heads
    assert config.tied
    assert sum(file.stat().st_size for file in MICRO.iterdir()) <= 14_000_000


def test_its_card_names_the_hash_of_its_weights():
    (written,) = re.findall(r"\b[0-9a-f]{64}\b", (MICRO / "README.md").read_text())
    assert hashlib.sha256((MICRO / "model.safetensors").read_bytes()).hexdigest() == written


def test_its_logits_are_those_of_the_model_that_was_trained(training, node):
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    from tools.train_micro.model import ROOT as PREFIX
    from tools.train_micro.model import MicroModel
    from tools.train_micro.tokenizer import Encoder

    trained, built = MicroModel(), node(MICRO)
    stored = load_file(MICRO / "model.safetensors")
    trained.load_state_dict({n.removeprefix(PREFIX): w.float() for n, w in stored.items()})
    encoder = Encoder(Tokenizer.from_file(str(MICRO / "tokenizer.json")))
    ids = encoder.prompt("Two painters sleep. The value of raven is 590. What is 345 + 678?" * 4)
    got = built.step("prefill", [(built.open(ids), ids)])["logits"][0]
    with torch.no_grad():
        want = trained(torch.tensor([ids]))[0, -1]
    torch.testing.assert_close(got, want, atol=2e-3, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_it_and_gives_the_same_logits(node):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    turns = [{"role": "user", "content": "Reverse QXKBD and repeat: kite lamp. What is 3 + 4?"}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    model = AutoModelForCausalLM.from_pretrained(MICRO, dtype=torch.float32).eval()
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids])).logits[0, -1]
    built = node(MICRO)
    got = built.step("prefill", [(built.open(ids), ids)])["logits"][0]
    size = tokenizer_size(MICRO)
    torch.testing.assert_close(got[:size], want[:size], atol=2e-3, rtol=1e-4)


def test_it_answers_held_out_questions(engine):
    tasks = read_tasks(shipped_tasks(MICRO))
    near = tuple(q for q in tasks.first(12).questions if q.task != "recall_far")
    measured = measure(engine, attrs.evolve(tasks, questions=near), AT_ONCE)
    required = {q.task: 0.85 if q.task == "story" else 0.95 for q in near}
    assert measured.below(required) == []


def test_it_finds_a_value_that_was_given_2000_tokens_ago(engine):
    tasks = read_tasks(shipped_tasks(MICRO))
    far = [q for q in tasks.questions if q.task == "recall_far"][:3]
    assert min(q.distance for q in far) >= 1800
    measured = measure(engine, attrs.evolve(tasks, questions=tuple(far)), AT_ONCE)
    assert measured.below({"recall_far": 1.0}) == []


def test_it_draws_sentences_of_its_grammar(engine, training):
    from tools.train_micro.grammar import parses

    drawn = said(engine, "Write a sentence.", temperature=1.0)
    assert sum(parses(text) and reason == "stop" for text, reason in drawn) >= 95
    assert len(set(drawn)) > 60


def test_it_keeps_to_the_point_in_a_conversation(engine):
    turns = []
    for asked, answer in (
        ("Who are you?", "I am a very small model."),
        ("What is 348 + 275?", "623"),
        ("Reverse QXKBD", "DBKXQ"),
        ("What is 40 - 75?", "-35"),
        ("How many A are in BANANA?", "3"),
        ("What is the capital of France?", "The capital of France is Paris."),
    ):
        turns.append({"role": "user", "content": asked})
        request = engine.front.chat_request(turns, max_new_tokens=24)
        (result,) = engine.run([request])
        assert (engine.front.decode(result.ids), result.finish_reason) == (answer, "stop")
        turns.append({"role": "assistant", "content": answer})


def test_generate_greets_it_where_nothing_is_asked(capsys):
    assert generated(capsys) == "Hello! What can I do for you?\n"


def generated(capsys, *arguments):
    assert main(["generate", "qwen35_micro", "--set", "device=cpu", *arguments]) == 0
    return capsys.readouterr().out


def test_generate_knows_it_by_its_name_with_and_without_a_chat(capsys):
    assert generated(capsys, "--chat", "--prompt", "What is 348 + 275?") == "623\n"
    assert generated(capsys, "--prompt", "What is 348 + 275?\n") == "623\n"


def test_a_question_that_is_no_turn_of_a_chat_is_told_how_it_is_answered(capsys):
    assert main(["generate", "qwen35_micro", "--prompt", "What is 12 + 30?"]) == 0
    told = capsys.readouterr()
    assert (told.out.strip(), "--chat" in told.err) == ("", True)


def test_several_prompts_are_the_turns_of_one_chat(capsys):
    turns = ("--prompt", "Anna is in the park.\nWhere is Anna?", "--prompt", "Reverse A1B2")
    assert generated(capsys, "--chat", *turns) == (
        "> Anna is in the park.\nWhere is Anna?\nAnna is in the park.\n> Reverse A1B2\n2B1A\n"
    )
    told = json.loads(generated(capsys, "--chat", "--json", *turns))
    assert [one["text"] for one in told] == ["Anna is in the park.", "2B1A"]
    asked = ("--prompt", "The value of mint is 512.\nWhat is the value of mint?")
    again = ("--prompt", "What is the value of mint?")
    said = generated(capsys, "--chat", *asked, *again).splitlines()
    assert said[2] == said[4] == "The value of mint is 512."


def test_several_prompts_without_a_chat_are_refused(capsys):
    command = ["generate", "qwen35_micro", "--prompt", "one", "--prompt", "two"]
    assert main(command) == 2
    assert "add --chat, or give one --prompt" in capsys.readouterr().err


def test_the_same_seed_draws_the_same_held_out_questions(training, tmp_path):
    from tokenizers import Tokenizer

    from tools.train_micro import heldout
    from tools.train_micro.tokenizer import Encoder

    encoder = Encoder(Tokenizer.from_file(str(MICRO / "tokenizer.json")))
    heldout.write(tmp_path / "quality.jsonl.gz", encoder, 24)
    assert (
        read_tasks(tmp_path / "quality.jsonl.gz").sha256 == read_tasks(shipped_tasks(MICRO)).sha256
    )
