"""How far a run is from fp32, and what that excuses. Results are written by hand."""

import pytest

from mstar_core.bench.quality_account import account, plain_sets
from mstar_core.cli import main
from mstar_core.engine import Engine
from mstar_core.engine.events import Result


def result(*places):
    """An answer: at each place the likeliest tokens, of which the first was taken."""
    return Result(id="", ids=[top[0][0] for top in places], top=list(places))


def test_the_error_is_the_largest_gap_of_a_leading_token_while_the_text_is_the_same():
    plain = [
        result(((5, -0.1), (6, -2.0), (7, -9.0)), ((1, -0.5), (2, -0.75))),
        result(((1, -0.5), (2, -0.75)), ((3, -0.1), (4, -3.0))),
    ]
    ours = [
        result(((5, -0.2), (7, -4.0), (6, -2.3)), ((1, -0.5), (9, -1.0))),
        result(((2, -0.6), (1, -0.7)), ((3, -8.0), (4, -1.0))),
    ]
    told = account(4, ours, plain)
    assert told.error == pytest.approx(0.3)
    assert told.compared == 5
    assert told.bound == pytest.approx(1.2)
    assert account(4, plain, plain).error == account(4, [], []).error == 0.0


def test_a_model_in_fp32_runs_step_by_step_and_by_the_definitions_where_there_are_any():
    with Engine.open("echo", ("engine.max_rows=2", "engine.kv_memory=4MiB")) as engine:
        sets = plain_sets(engine.report)
    assert {"model.dtype=fp32", "engine.graphs=off", "engine.in_flight=0"} <= set(sets)
    named = [one for one in sets if ".backends." in one]
    assert named
    assert all(one.endswith("=torch") for one in named)


def test_nothing_is_accounted_for_without_a_run_to_differ_from(tmp_path, capsys):
    (tmp_path / "quality.jsonl").write_text(
        '{"task": "a", "messages": [{"role": "user", "content": "b"}], "answer": "b",'
        ' "max_tokens": 4}'
    )
    command = ["bench", "quality", "echo", "--tasks", str(tmp_path / "quality.jsonl")]
    assert main([*command, "--account", "4"]) == 2
    assert "add --against REPORT" in capsys.readouterr().err
    assert main([*command, "--account", "0"]) == 2
    assert main([*command, "--account", "4", "--tie", "1"]) == 2
