"""The shipped checkpoint through the engine: chats answered, failures told, the rest going on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mstar_qwen35.model import Qwen35
from mstar_qwen35.text import TextSubmodule

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine

SETS = ("device=cpu", "model.dtype=fp32", "engine.max_rows=4", "engine.token_budget=64")
CHATS = ["Hello", "What is a licence?", "Grüße! " * 20]


def answers(*sets):
    """The ids of seeded answers to each chat, run together, then alone."""
    sampling = SamplingSettings(temperature=0.8, top_k=50, top_p=0.9, seed=7)
    with Engine.open("qwen35_tiny", (*SETS, *sets)) as engine:
        requests = [
            engine.front.chat_request(
                [{"role": "user", "content": text}], max_new_tokens=12, sampling=sampling
            )
            for text in CHATS
        ]
        together = [result.ids for result in engine.run(requests)]
        alone = [engine.run([request])[0].ids for request in requests]
        texts = [engine.front.decode(ids) for ids in together]
    return together, alone, texts


def test_seeded_answers_do_not_depend_on_company_or_on_capture():
    together, alone, texts = answers("engine.graphs=off")
    assert alone == together
    assert len({tuple(ids) for ids in together}) == 3
    assert all(texts)
    recorded = answers("engine.graphs=recorder", "engine.capture.require=true")
    assert recorded == (together, alone, texts)


def test_logprobs_come_with_each_token():
    with Engine.open("qwen35_tiny", (*SETS, "engine.graphs=off")) as engine:
        sampling = SamplingSettings(logprobs=3)
        (result,) = engine.run(
            [engine.front.text_request("Hello", max_new_tokens=4, sampling=sampling)]
        )
    assert [top[0][0] for top in result.top] == result.ids
    assert [top[0][1] for top in result.top] == pytest.approx(result.logprobs)
    assert all(a[1] >= b[1] for top in result.top for a, b in pairwise(top))


def test_the_text_node_asks_for_resident_decode(tiny, node):
    built = node(tiny)
    assert isinstance(built.model, Qwen35)
    assert isinstance(built.submodule, TextSubmodule)
    assert built.submodule.resident_walks() == {"decode"}
