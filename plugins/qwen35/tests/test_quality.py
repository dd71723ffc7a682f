"""Held-out questions to a model with a sampler: how little apart are answers that differ."""

from __future__ import annotations

import json

import attrs
import pytest

from mstar_core.bench.quality_report import measure
from mstar_core.bench.quality_tasks import read_tasks
from mstar_core.cli import main
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine


@pytest.fixture
def tasks(tmp_path):
    file = tmp_path / "tasks.jsonl"
    texts = ("one and one", "name a river", "say it again", "count to three", "the end")
    lines = [
        {
            "task": "say",
            "messages": [{"role": "user", "content": text}],
            "answer": "nothing",
            "max_tokens": 12,
        }
        for text in texts
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return read_tasks(file)


def test_where_answers_part_the_margin_is_from_the_likeliest_to_the_less_likely_taken(tasks):
    with Engine.open("qwen35_tiny") as engine:
        first = measure(engine, tasks, 4)
        asked = engine.front.chat_request(
            tasks.questions[2].messages, sampling=SamplingSettings(logprobs=4)
        )
        (whole,) = engine.run([asked])
        there = {said.number: said for said in first.answers}
        third, unlikely = list(first.answers[2].ids), list(first.answers[1].ids)
        third[5] = whole.top[5][2][0]
        unlikely[3] = -1
        there[1] = attrs.evolve(first.answers[1], ids=tuple(unlikely))
        there[2] = attrs.evolve(first.answers[2], ids=tuple(third))
        there[3] = attrs.evolve(there[3], ids=there[3].ids[:4], finish="stop")
        there[4] = attrs.evolve(there[4], ids=there[4].ids[:4], finish="length")
        second = measure(engine, tasks, 1, there)
        judged = second.judged(engine, 100.0)
    assert (first.compared, first.differences) == (0, ())
    assert second.answers == first.answers
    assert second.compared == 5
    found = {one.question.number: one for one in judged.differences}
    assert {number: one.at for number, one in found.items()} == {1: 3, 2: 5, 3: 4, 4: 4}
    gap = whole.top[5][0][1] - whole.top[5][2][1]
    assert found[2].margin == pytest.approx(gap, abs=1e-4)
    assert (found[1].margin, found[4].margin) == (None, None)
    assert 2 in {one.question.number for one in judged.ties}
    assert {1, 4} <= {one.question.number for one in judged.apart}
    assert len(second.apart) == 4


def test_ties_are_no_failure_where_they_are_allowed(tasks, tmp_path, capsys):
    report = tmp_path / "report.json"
    command = ["bench", "quality", "qwen35_tiny", "--tasks", str(tmp_path / "tasks.jsonl")]
    assert main([*command, "--out", str(report)]) == 0
    told = json.loads(report.read_text())
    with Engine.open("qwen35_tiny") as engine:
        asked = engine.front.chat_request(
            tasks.questions[0].messages, sampling=SamplingSettings(logprobs=2)
        )
        (whole,) = engine.run([asked])
    told["answers"][0]["ids"][0] = whole.top[0][1][0]
    report.write_text(json.dumps(told))
    capsys.readouterr()
    assert main([*command, "--against", str(report)]) == 1
    assert "differ     1 of 5 answers from the reference's, 0 of them" in capsys.readouterr().out
    assert main([*command, "--against", str(report), "--tie", "100"]) == 0
    assert "1 of them by a tie (at most 100 nats)" in capsys.readouterr().out


def test_a_run_in_bf16_is_held_against_fp32_by_the_error_that_it_has(tasks, tmp_path, capsys):
    report, other = tmp_path / "report.json", tmp_path / "other.json"
    command = ["bench", "quality", "qwen35_tiny", "--tasks", str(tmp_path / "tasks.jsonl")]
    assert main([*command, "--set", "model.dtype=fp32", "--out", str(report)]) == 0
    told = json.loads(report.read_text())
    told["answers"][0]["ids"][2] = -1
    report.write_text(json.dumps(told))
    capsys.readouterr()
    account = ("--against", str(report), "--account", "4", "--out", str(other))
    assert main([*command, "--set", "model.dtype=bf16", *account]) == 1
    found, printed = json.loads(other.read_text()), capsys.readouterr().out
    assert found["tie"] == pytest.approx(4 * found["account"]["error"])
    assert 0 < found["account"]["error"] < 0.5
    assert "log probabilities; up to 4 times that is a tie" in printed
    apart = {one["number"]: one["margin"] for one in found["differences"] if not one["is_tie"]}
    assert apart == {0: None}
    assert all(one["margin"] <= found["tie"] for one in found["differences"] if one["is_tie"])
