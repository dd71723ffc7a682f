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


def test_where_answers_part_the_margin_is_that_of_the_two_likeliest_tokens(tasks):
    with Engine.open("qwen35_tiny") as engine:
        first = measure(engine, tasks, 4)
        there = {said.number: said for said in first.answers}
        assert (first.compared, first.differences) == (0, ())
        changed = list(first.answers[2].ids)
        changed[5] = 7
        there[2] = attrs.evolve(first.answers[2], ids=tuple(changed))
        there[3] = attrs.evolve(there[3], ids=there[3].ids[:4], finish="stop")
        second = measure(engine, tasks, 1, there)
        asked = engine.front.chat_request(
            tasks.questions[2].messages, sampling=SamplingSettings(logprobs=4)
        )
        (whole,) = engine.run([asked])
    assert second.answers == first.answers
    assert second.compared == 5
    assert [(one.question.number, one.at) for one in second.differences] == [(2, 5), (3, 4)]
    (_, likeliest), (_, next_one), *_ = whole.top[5]
    assert second.differences[0].margin == pytest.approx(likeliest - next_one, abs=1e-4)
    assert second.differences[1].margin > 0
    assert len(second.apart(0.0)) == 2
    assert second.apart(100.0) == []


def test_ties_are_no_failure_where_they_are_allowed(tasks, tmp_path, capsys):
    report = tmp_path / "report.json"
    command = ["bench", "quality", "qwen35_tiny", "--tasks", str(tmp_path / "tasks.jsonl")]
    assert main([*command, "--out", str(report)]) == 0
    told = json.loads(report.read_text())
    told["answers"][0]["ids"][0] += 1
    report.write_text(json.dumps(told))
    capsys.readouterr()
    assert main([*command, "--against", str(report)]) == 1
    assert "differ     1 of 5 answers from the reference's, 0 of them" in capsys.readouterr().out
    assert main([*command, "--against", str(report), "--tie", "100"]) == 0
    assert "1 of them by a tie (at most 100 nats)" in capsys.readouterr().out
