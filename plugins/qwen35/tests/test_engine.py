"""The shipped checkpoint through the engine: chats answered, failures told, the rest going on."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from mstar_qwen35.model import Qwen35
from mstar_qwen35.text import TextSubmodule

from mstar_core.cli import main
from mstar_core.config.sampling import MAX_LOGPROBS, SamplingSettings
from mstar_core.engine import Engine
from mstar_core.model.front import Request

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


def test_ids_outside_the_vocabulary_fail_their_own_request_alone():
    wrong = [np.array([1024]), np.array([5, -1]), np.array([2**63], np.uint64)]
    with Engine.open("qwen35_tiny", (*SETS, "engine.graphs=off")) as engine:
        good = [engine.front.ids_request([3, 5, 7], max_new_tokens=4) for _ in range(2)]
        (want,) = engine.run(good[:1])
        bad = [Request(arrays={"ids": ids}, max_new_tokens=4) for ids in wrong]
        first, *found, last = engine.run([good[0], *bad, good[1]])
        (after,) = engine.run(good[:1])
    assert [r.error["where"] for r in found] == ["arrays.ids"] * 3
    assert [r.error["got"] for r in found] == ["1024", "-1", str(2**63)]
    assert {r.error["want"] for r in found} == {"ids from 0 to 1023"}
    assert all(r.error["fix"] for r in found)
    assert first.ids == last.ids == after.ids == want.ids


SETTINGS = [
    ({"kv": 5}, "settings.kv", "no resource", "position, prefix, sampler_rules", "position"),
    ({"rules": 5}, "settings.rules", "no resource", "sampler_rules", "'sampler_rules'"),
    ({"sampler_rules": 5}, "settings.sampler_rules", "5", "a mapping", "leave it out"),
    ({"sampler_rules": {"x": True}}, "settings.sampler_rules.x", "a rule", "nothing", "remove it"),
    ({"position": 5}, "settings.position", "5", "an offset", "leave it out"),
    ({"position": {"ofset": 1}}, "settings.position", "ofset", "an offset", "offset"),
    ({"position": {"offset": "1"}}, "position.offset", "'1'", "a whole number", "nothing"),
]


def test_settings_that_cannot_be_used_fail_their_own_request_alone():
    with Engine.open("qwen35_tiny", (*SETS, "engine.graphs=off")) as engine:
        good = engine.front.ids_request([3, 5, 7], max_new_tokens=4)
        (want,) = engine.run([good])
        bad = [engine.front.ids_request([3], settings=given) for given, *_ in SETTINGS]
        *found, last = engine.run([*bad, good])
    for result, (_, where, *facts) in zip(found, SETTINGS, strict=True):
        assert result.error["where"] == where
        for name, part in zip(("got", "want", "fix"), facts, strict=True):
            assert part in result.error[name]
    assert last.ids == want.ids


@pytest.mark.parametrize("json_too", [False, True])
def test_a_text_that_is_cut_by_a_failure_exits_1_behind_it(monkeypatch, capsys, json_too):
    command = ["generate", "qwen35_tiny", "--prompt", "hi", "--max-tokens", "8"]
    command += ["--set", "device=cpu", "--offline"]
    assert main(command) == 0
    whole, forward, calls = capsys.readouterr().out, TextSubmodule.forward, []

    def fails(self, walk, inputs, plans):
        calls.append(walk)
        if len(calls) == 5:
            raise ArithmeticError("the fifth")
        return forward(self, walk, inputs, plans)

    monkeypatch.setattr(TextSubmodule, "forward", fails)
    assert main([*command, "--json"] if json_too else command) == 1
    said = capsys.readouterr()
    assert "Error: request" in said.err
    assert "an internal error" in said.err
    if json_too:
        read = json.loads(said.out)
        assert (read["tokens"], read["finish_reason"]) == (4, "error")
        assert whole.startswith(read["text"])
    else:
        assert said.out.endswith("\n")
        assert whole.startswith(said.out.rstrip("\n"))


def test_logprobs_come_with_each_token():
    with Engine.open("qwen35_tiny", (*SETS, "engine.graphs=off")) as engine:
        sampling = SamplingSettings(logprobs=3)
        (result,) = engine.run(
            [engine.front.text_request("Hello", max_new_tokens=4, sampling=sampling)]
        )
    assert [top[0][0] for top in result.top] == result.ids
    assert [top[0][1] for top in result.top] == pytest.approx(result.logprobs)
    assert all(a[1] >= b[1] for top in result.top for a, b in pairwise(top))


@pytest.mark.parametrize("rows", [1, 4])
def test_every_row_may_ask_for_the_most_logprobs_and_no_step_fails(rows, caplog):
    sampling = SamplingSettings(logprobs=MAX_LOGPROBS)
    with Engine.open("qwen35_tiny", (*SETS, f"engine.max_rows={rows}")) as engine:
        asked = [
            engine.front.text_request(text, max_new_tokens=4, sampling=sampling)
            for text in ("Hello", "you", "there", "all")
        ]
        results = list(engine.run(asked))
    assert [len(top) for result in results for top in result.top] == [MAX_LOGPROBS] * 16
    assert not caplog.records


def test_the_text_node_asks_for_resident_decode(tiny, node):
    built = node(tiny)
    assert isinstance(built.model, Qwen35)
    assert isinstance(built.submodule, TextSubmodule)
    assert built.submodule.resident_walks() == {"decode"}
