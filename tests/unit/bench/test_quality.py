"""Held-out questions: their file, who is right, and a run beside another. Echo answers them."""

import gzip
import json

import pytest

from mstar_core.bench.quality import Said, ask, is_right, scores
from mstar_core.bench.quality_reference import Difference, differences, read_reference
from mstar_core.bench.quality_tasks import Question, read_tasks, shipped_tasks
from mstar_core.cli import main
from mstar_core.engine import Engine
from mstar_core.errors import RequestError

SETS = ("engine.max_rows=4", "engine.max_context=128", "engine.kv_memory=4MiB")


def line(said, answer=None, task="echo", **more):
    """A question that echo answers with ``said``."""
    messages = [{"role": "user", "content": said}]
    values = {"task": task, "messages": messages, "answer": answer or said, "max_tokens": 32}
    return {**values, **more}


LINES = [
    line("one"),
    line("two", "four"),
    line("a long answer", max_tokens=4),
    line(" three\n", "three", task="strip"),
    line("x" * 120, task="strip"),
    line("near", task="far", distance=125),
    line("middle", task="far", distance=126),
    line("wrong", "right", task="far", distance=250),
    line("far", task="far", distance=2000),
]


@pytest.fixture
def write(tmp_path):
    """``write(lines, name)``: a file of questions."""

    def write(lines, name="tasks.jsonl"):
        text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def engine():
    with Engine.open("echo", SETS) as opened:
        yield opened


def test_a_file_is_read_plain_and_packed_alike(write):
    plain, packed = read_tasks(write(LINES)), read_tasks(write([*LINES, ""], "tasks.jsonl.gz"))
    assert plain.questions == packed.questions
    assert [q.number for q in plain.questions] == list(range(9))
    assert (plain.file, packed.file) == ("tasks.jsonl", "tasks.jsonl.gz")
    assert plain.questions[5].bucket == "far@125"
    assert [q.bucket for q in plain.questions[6:]] == ["far@250", "far@250", "far@2000"]
    assert plain.names() == ["echo", "strip", "far", "far@125", "far@250", "far@2000"]


def test_a_limit_keeps_the_first_of_each_task_and_their_numbers(write):
    kept = read_tasks(write(LINES)).first(2)
    assert [q.number for q in kept.questions] == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{"], "tasks.jsonl:1"),
        (["[1]"], "a JSON object"),
        ([line("a"), "", line("b", task="a@b")], "tasks.jsonl:3: task"),
        ([line("a", task="")], ":1: task"),
        ([line("a", messages="hello")], ":1: messages"),
        ([line("a", messages=["hello"])], ":1: messages"),
        ([line("a", " a")], ":1: answer"),
        ([line("a", max_tokens=0)], ":1: max_tokens"),
        ([line("a", max_tokens=True)], ":1: max_tokens"),
        ([line("a", distance=-1)], ":1: distance"),
        ([line("a", distance="far")], ":1: distance"),
        ([], "no line"),
    ],
)
def test_a_line_that_is_no_question_is_named_with_its_field(write, lines, said):
    with pytest.raises(RequestError) as caught:
        read_tasks(write(lines))
    assert said in str(caught.value)


def test_a_file_that_cannot_be_read_says_so(write, tmp_path):
    with pytest.raises(RequestError, match="No such file"):
        read_tasks(tmp_path / "nothing.jsonl")
    broken = write(LINES).rename(tmp_path / "broken.jsonl.gz")
    with pytest.raises(RequestError, match="JSON Lines in UTF-8"):
        read_tasks(broken)


def test_a_models_own_tasks_lie_in_its_folder(write, tmp_path):
    with pytest.raises(RequestError, match="--tasks FILE"):
        shipped_tasks(tmp_path)
    assert shipped_tasks(write(LINES, "quality.jsonl.gz").parent).name == "quality.jsonl.gz"


def test_right_is_to_the_letter_and_ended_by_the_model_itself(write, engine):
    questions = read_tasks(write(LINES)).questions
    heard = []
    answers, figures = ask(engine, questions, 3, heard.append)
    right = [is_right(q, said) for q, said in zip(questions, answers, strict=True)]
    assert right == [True, False, False, True, False, True, True, False, True]
    assert [said.number for said in answers] == list(range(9)) == [n - 1 for n in heard]
    assert [said.text for said in answers[:4]] == ["one", "two", "a lo", "three"]
    assert [answers[i].finish for i in (0, 2, 4)] == ["stop", "length", "error"]
    assert "120 prompt tokens" in answers[4].error
    assert (figures.requests, figures.failed) == (9, 1)


def test_scores_are_by_task_and_by_distance_the_nearest_first(write, engine):
    questions = read_tasks(write([*LINES[:5], *LINES[:4:-1]])).questions
    found = scores(questions, ask(engine, questions, 8)[0])
    rows = [(s.name, s.right, s.of, s.cut, s.failed) for s in found.values()]
    assert rows == [
        ("echo", 1, 3, 1, 0),
        ("strip", 1, 2, 0, 1),
        ("far", 3, 4, 0, 0),
        ("far@125", 1, 1, 0, 0),
        ("far@250", 1, 2, 0, 0),
        ("far@2000", 1, 1, 0, 0),
    ]
    assert found["far"].accuracy == 0.75


def said(number, ids, finish="stop"):
    return Said(number=number, text="", ids=tuple(ids), finish=finish)


def test_answers_part_at_the_first_token_or_end_that_differs():
    def part(here, there):
        return Difference(question=None, here=here, there=there).at

    assert part(said(0, [1, 2, 3]), said(0, [1, 5, 3])) == 1
    assert part(said(0, [1, 2, 3]), said(0, [1, 2])) == 2
    assert part(said(0, [1, 2]), said(0, [1, 2], "length")) == 2


def test_only_questions_that_both_were_asked_are_compared():
    values = {"task": "t", "messages": (), "answer": "", "max_tokens": 1, "distance": None}
    questions = [Question(number=n, **values) for n in range(4)]
    here = [said(0, [1]), said(1, [1]), said(2, [1]), said(3, [1])]
    there = {0: said(0, [1]), 1: said(1, [2]), 3: said(3, [1], "length")}
    found = differences(questions, here, there)
    assert [one.question.number for one in found] == [1, 3]
    assert not found[0].is_tie(1.0)
    assert Difference(question=None, here=here[0], there=here[1], margin=0.5).is_tie(0.5)


@pytest.fixture
def command(write):
    """``command(*words)``: the verb over an echo whose questions lie beside its configuration."""
    file = write(LINES, "quality.jsonl").with_name("own.yaml")
    file.write_text("model: {name: echo}\n")
    sets = [word for each in SETS for word in ("--set", each)]
    return lambda *words: main(["bench", "quality", str(file), *sets, *map(str, words)])


def test_the_command_prints_accuracy_and_speed_and_writes_a_report(command, tmp_path, capsys):
    assert command("--out", tmp_path / "a.json", "--at-once", 2) == 0
    printed = capsys.readouterr().out
    assert "far@2000  1      1   100.0%" in printed
    assert "echo      1      3   33.3%" in printed
    assert "output tokens/s" in printed
    told = json.loads((tmp_path / "a.json").read_text())
    assert {"machine", "commit", "command", "config", "sets", "report", "stats"} <= set(told)
    assert told["scores"]["strip"]["accuracy"] == 0.5
    assert told["answers"][1]["text"] == "two"
    assert (told["answers"][1]["task"], told["answers"][1]["right"]) == ("echo", False)
    assert command("--json", "--limit", 1) == 0
    assert len(json.loads(capsys.readouterr().out)["answers"]) == 3


def test_the_command_fails_where_fewer_are_right_than_required(command, capsys):
    assert command("--require", "far=0.75,far@250=0.5") == 0
    assert "BELOW" not in capsys.readouterr().out
    assert command("--require", "far=0.75,far@250=0.51") == 1
    assert "50.0% BELOW" in capsys.readouterr().out
    for wrong, told in (("fare=1", "far"), ("far=2", "far=2"), ("far", "NAME=SHARE")):
        assert command("--require", wrong) == 2
        assert told in capsys.readouterr().err


def test_the_command_compares_with_an_earlier_run_of_the_same_tasks(command, tmp_path, capsys):
    report = tmp_path / "a.json"
    assert command("--out", report) == 0
    assert command("--against", report, "--at-once", 1, "--limit", 2) == 0
    assert "differ     0 of 6 answers" in capsys.readouterr().out
    assert command("--out", tmp_path / "less.json", "--limit", 1) == 0
    capsys.readouterr()
    assert command("--against", tmp_path / "less.json") == 0
    printed = capsys.readouterr().out
    assert "differ     0 of 3 answers" in printed
    assert "6 answers that the reference has not" in printed
    told = json.loads(report.read_text())
    told["answers"][1]["ids"][1] = 7
    report.write_text(json.dumps(told))
    assert command("--against", report) == 1
    printed = capsys.readouterr().out
    assert "differ     1 of 9 answers from the reference's, 0 of them by a tie" in printed
    assert "echo 1: 'two', there 'two', right 'four'; token 1, margin unknown" in printed


def test_a_reference_must_be_a_report_over_the_same_tasks(write, tmp_path):
    tasks = read_tasks(write(LINES))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"answers": [], "tasks": {"sha256": "0"}}))
    with pytest.raises(RequestError, match="answers to other tasks"):
        read_reference(other, tasks)
    other.write_text(json.dumps({"answers": [], "tasks": {"sha256": tasks.sha256}}))
    with pytest.raises(RequestError, match="0 answers, none to a question that is asked"):
        read_reference(other, tasks)
    other.write_text("[]")
    with pytest.raises(RequestError, match="a report of mstar-core bench quality"):
        read_reference(other, tasks)


def test_a_report_goes_to_stdout_by_json_and_not_to_a_file_called_so(command, capsys):
    assert command("--out", "-") == 2
    assert "--json prints the report" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--tie", "--account"])
def test_a_tie_without_a_run_to_compare_with_is_refused(command, flag, capsys):
    assert command(flag, 0.5) == 2
    assert f"Error: {flag}\n  got   no --against" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["", "none/a.json"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_asked(
    command, tmp_path, file, capsys
):
    assert command("--out", tmp_path / file) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "Error: --out")


def test_a_run_in_which_every_request_failed_fails_also_beside_one_that_failed_alike(
    command, write, tmp_path, capsys
):
    """Two runs without a single token are equal to the last of them, and prove nothing."""
    tasks = write([{**LINES[4]}], "failing.jsonl")
    report = tmp_path / "a.json"
    assert command("--tasks", tasks, "--out", report) == 1
    assert command("--tasks", tasks, "--against", report) == 1
    assert "differ     0 of 1 answers" in capsys.readouterr().out


def test_messages_that_the_model_does_not_take_name_their_question(write, engine):
    lines = [LINES[0], {**LINES[1], "messages": [{"role": "user", "content": 5}]}]
    with pytest.raises(RequestError) as caught:
        ask(engine, read_tasks(write(lines)).questions, 1)
    assert caught.value.where.startswith("question 1.messages")
