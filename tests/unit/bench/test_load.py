"""Load on a server over real sockets, from processes of their own."""

import asyncio
import json
import time
import wave

import pytest

from mstar_core.bench.load import Load, Part, columns, rows
from mstar_core.bench.prompts import Asks
from mstar_core.bench.serve import Run, compare, measure, prompt_words, spreads
from mstar_core.bench.stats import Sample, figures
from mstar_core.cli import main
from mstar_core.client import Client
from mstar_core.errors import MstarError

CHAT = "/v1/chat/completions"


def run_of(stand_in, **more):
    asks = Asks(route=more.pop("route", "chat"), **{"output_tokens": 5, **more.pop("asks", {})})
    facts = {"requests": 6, "concurrency": 2, **more}
    return Run(url=stand_in.url, asks=asks, **facts)


def seen(run):
    """The figures of a run's one process, played in this one."""
    (part,) = run.parts()
    load = Load(part)
    return figures(asyncio.run(load.run(load.built(), time.monotonic())), run.promises)


def test_every_request_is_sent_once_and_its_tokens_are_counted(stand_in):
    found = measure(run_of(stand_in, processes=2, warmup=3, concurrency=3))
    assert (found.requests, found.failed, found.errors) == (6, 0, {})
    assert (found.mean_output_tokens, found.tokens_per_chunk) == (5.0, 1.0)
    assert found.mean_prompt_tokens > 60
    assert found.client_busy > 0
    assert (found.ttft_ms.count, found.itl_ms.count, found.tpot_ms.count) == (6, 24, 6)
    bodies = [each.body for each in stand_in.asked]
    assert len(bodies) == len(set(bodies)) == 9
    assert stand_in.connections == 3


def test_the_first_text_is_the_first_token_not_the_first_event(stand_in, wire):
    events = [wire.event(wire.chat_chunk(""))] * 3 + [wire.event(wire.chat_chunk("a"))]
    end = [wire.event(wire.chat_chunk(finish="stop")), wire.event("[DONE]")]
    stand_in.pause_s = 0.02
    stand_in.answers[CHAT] = wire.chunked(events + end)
    found = seen(run_of(stand_in, requests=1, concurrency=1))
    assert found.ttft_ms.mean > 60
    assert (found.mean_output_tokens, found.itl_ms) == (1.0, None)


def test_an_answer_that_is_taken_whole_has_tokens_and_one_time(stand_in, wire):
    found = seen(run_of(stand_in, asks={"stream": False}))
    assert (found.failed, found.mean_output_tokens, found.e2el_ms.count) == (0, 5.0, 6)
    assert (found.ttft_ms, found.tpot_ms, found.itl_ms, found.events_per_s) == (None,) * 3 + (0.0,)
    assert all("stream" not in each.json for each in stand_in.asked)
    for body, error in ((b"no", "no answer in JSON"), (b"{}", "answer without choices")):
        stand_in.answers[CHAT] = wire.answer(body)
        assert seen(run_of(stand_in)).errors == {error: 6}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("busy", "429 overloaded"),
        ("odd", "500"),
        ("in stream", "in stream: request_failed"),
        ("no end", "stream without its end"),
        ("cut", "ConnectionLost"),
        ("no http", "BadAnswer"),
        ("no json", "JSONDecodeError"),
    ],
)
def test_what_goes_wrong_is_counted_by_its_name(stand_in, wire, answer, error):
    text, failed = wire.event(wire.chat_chunk("a")), {"error": {"code": "request_failed"}}
    stand_in.answers[CHAT] = {
        "busy": wire.answer({"error": {"code": "overloaded"}}, status=429, retry_after="1"),
        "odd": wire.answer(b"<html>", status=500),
        "in stream": wire.chunked([text, wire.event(failed)]),
        "no end": wire.chunked([text, wire.event("[DONE]")]),
        "cut": wire.chunked([text], whole=False),
        "no json": wire.chunked([wire.event("{")]),
        "no http": [b"SMTP\r\n\r\n", None],
    }[answer]
    found = seen(run_of(stand_in))
    assert (found.failed, found.errors) == (6, {error: 6})
    assert found.requests_per_s == 0


def test_nobody_at_the_address_is_counted_too(stand_in):
    stand_in.stop()
    assert seen(run_of(stand_in, requests=2)).errors == {"connection": 2}


def test_in_an_open_loop_a_request_is_sent_when_it_is_due(stand_in):
    """The server answers slowly, and yet nobody waits for the one before."""
    stand_in.pause_s = 0.03
    found = seen(run_of(stand_in, requests=20, concurrency=1, rate=200.0))
    assert (found.requests, found.failed) == (20, 0)
    assert stand_in.connections > 3
    assert found.late_ms.count == 20


def test_sound_is_measured_by_its_seconds(stand_in, wire, tmp_path):
    stand_in.answers["/v1/audio/speech"] = wire.chunked([bytes(48_000)] * 2, "audio/pcm")
    stand_in.pause_s = 0.02
    found = seen(run_of(stand_in, route="speech", requests=2))
    assert found.audio_s_per_s * found.duration_s == pytest.approx(4.0)
    assert (found.ttft_ms.count, found.rtf.count, found.tokens_per_chunk) == (2, 2, None)
    assert 0 < found.itl_ms.count <= 2
    kind = "audio/pcm;rate=48000;channels=2"
    stand_in.answers["/v1/audio/speech"] = wire.chunked([bytes(48_000)], kind)
    found = seen(run_of(stand_in, route="speech", requests=2))
    assert found.audio_s_per_s * found.duration_s == pytest.approx(0.5)
    file = tmp_path / "a.wav"
    file.write_bytes(b"RIFF")
    stand_in.answers["/v1/audio/transcriptions"] = wire.answer({"text": "hi"})
    asks = {"audio": [str(file)], "audio_s": [3.0]}
    found = seen(run_of(stand_in, route="transcriptions", requests=2, asks=asks))
    assert found.audio_s_per_s * found.duration_s == pytest.approx(6.0)
    assert (found.failed, found.ttft_ms) == (0, None)


def test_the_command_knows_how_long_a_file_is(stand_in, wire, tmp_path, capsys):
    file = tmp_path / "a.wav"
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", ""))
        out.writeframes(bytes(2 * 8000))
    stand_in.answers["/v1/audio/transcriptions"] = wire.answer({"text": "hi"})
    command = ["bench", "serve", "--url", stand_in.url, "--route", "transcriptions"]
    assert main([*command, "--audio", str(file), "--requests", "3", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"][0]["asks"]["audio_s"] == [0.5]
    assert told["results"]["rtf"]["count"] == 3


def test_a_process_that_ends_is_an_error(stand_in, tmp_path, capfd):
    gone = {"audio": [str(tmp_path / "gone.wav")], "audio_s": [1.0]}
    with pytest.raises(MstarError, match="a process of the load"):
        measure(run_of(stand_in, route="transcriptions", asks=gone))
    assert "gone.wav" in capfd.readouterr().err


def test_words_are_as_many_as_make_the_tokens_that_were_asked_for(stand_in, wire):
    def counts(asked):
        words = len(asked.json["messages"][0]["content"].split())
        choices = [{"index": 0, "message": {"content": "x"}, "finish_reason": "length"}]
        return wire.answer({"choices": choices, "usage": {"prompt_tokens": 10 + 2 * words}})

    stand_in.answers[CHAT] = counts
    with Client(stand_in.url) as client:
        assert prompt_words(client, Asks(route="chat"), 512) == 251


def test_two_servers_take_turns(stand_in, unix_stand_in):
    first, second = run_of(stand_in), run_of(unix_stand_in)
    a, b = compare(first, second, 2)
    assert (len(a), len(b), len(stand_in.asked), len(unix_stand_in.asked)) == (2, 2, 12, 12)
    found = spreads(a)
    assert found["requests"].median == 6
    assert found["ttft_ms p99"].low <= found["ttft_ms p99"].median <= found["ttft_ms p99"].high


def test_samples_and_parts_cross_a_pipe():
    samples = [Sample(due_s=1, sent_s=2, end_s=3), Sample(due_s=1, sent_s=2, end_s=4, gaps_s=[1])]
    assert rows(json.loads(json.dumps(columns(samples)))) == samples
    asks = Asks(route="chat", prompts=["a"], audio_s=[1.5])
    part = Part(url="u", asks=asks, requests=10, concurrency=2, part=1, parts=3)
    assert Part.of_json(part.to_json()) == part
    assert list(part.numbers()) == [1, 4, 7]


def test_the_command_writes_figures_with_the_machine_and_the_server(
    stand_in, wire, tmp_path, capsys
):
    stand_in.answers["/v1/models"] = wire.answer({"data": [{"id": "m", "routes": ["chat"]}]})
    key, file = tmp_path / "key", tmp_path / "out.json"
    key.write_text("# mine\nsecret\n")
    command = ["bench", "serve", "--url", stand_in.url, "--requests", "4", "--concurrency", "2"]
    options = ["--output-tokens", "3", "--goodput", "ttft:60000", "--api-key-file", str(key)]
    assert main([*command, *options, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "ttft_ms" in out
    assert "goodput" in out
    text = file.read_text()
    told = json.loads(text)
    assert told["servers"][0]["models"] == [{"id": "m", "routes": ["chat"]}]
    assert told["runs"][0]["asks"]["model"] == "m"
    assert (told["results"]["requests"], told["results"]["failed"]) == (4, 0)
    assert {"machine", "commit", "command"} <= set(told)
    assert "secret" not in text
    assert {each.headers["authorization"] for each in stand_in.asked} == {"bearer secret"}


def test_the_command_compares_and_says_when_all_failed(stand_in, wire, capsys):
    stand_in.answers["/v1/models"] = wire.answer({"data": [{"id": "m"}]})
    command = ["bench", "serve", "--url", stand_in.url, "--requests", "2", "--json", "-"]
    assert main([*command, "--compare", stand_in.url, "--rounds", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["A"]), len(told["B"]), len(told["servers"])) == (1, 1, 2)
    prompts = ["--vocab", "100", "--route", "completions"]
    stand_in.answers["/v1/completions"] = wire.answer(status=500)
    assert main([*command, *prompts]) == 1
    assert json.loads(capsys.readouterr().out)["results"]["errors"] == {"500": 2}


@pytest.mark.parametrize(
    "options",
    [
        ["--rate", "1", "--concurrency", "2"],
        ["--rate", "nan"],
        ["--goodput", "itl:5"],
        ["--goodput", "ttft"],
        ["--audio", "a.wav"],
        ["--route", "transcriptions"],
        ["--vocab", "9"],
        ["--requests", "0"],
    ],
)
def test_arguments_that_make_no_sense_exit_2(options, capsys):
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9", *options]) == 2
    assert "Error: " in capsys.readouterr().err


def test_a_file_without_prompts_is_refused(stand_in, tmp_path, capsys):
    file = tmp_path / "none"
    file.write_text("\n\n")
    assert main(["bench", "serve", "--url", stand_in.url, "--prompt-file", str(file)]) == 1
    assert "no line" in capsys.readouterr().err
    command = ["bench", "serve", "--url", stand_in.url, "--requests", "1"]
    assert main([*command, "--json", str(tmp_path / "none" / "x.json")]) == 1
    assert "--json" in capsys.readouterr().err
