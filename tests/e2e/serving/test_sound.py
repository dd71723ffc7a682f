"""Sound and speech in a real server: clients that leave, faults, and processes that end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time

import pytest

from mstar_core.testing.sound import children, encoded, memory_kib, silence, tone

from .conftest import is_alive

HEAD = {"content-type": "multipart/form-data; boundary=x"}
PATH = "/v1/audio/transcriptions"
SECOND = encoded(tone(1, 16_000), 16_000)


def form(data, **fields):
    parts = [
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return b"".join(parts) + head + data + b"\r\n--x--\r\n"


def hear(server, data=SECOND, **fields):
    return server.ask("POST", PATH, form(data, **fields), content_type=HEAD["content-type"])


def within(seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return False


def decoder_of(server):
    """The process that forks for each sound: the API process's only child."""
    (pid,) = children(server.api())
    return pid


def test_a_client_that_leaves_while_its_sound_is_decoded_leaves_nothing_behind(server):
    assert hear(server).status == 200
    decoder = decoder_of(server)
    body = form(silence(1500, 48_000, "FLAC"))
    connection = server.connect()
    connection.request("POST", PATH, body, HEAD)
    assert within(10, lambda: children(decoder))
    connection.close()
    assert within(5, lambda: not children(decoder))
    assert within(5, lambda: server.metric("mstar_requests_open") == 0)
    assert hear(server).json["text"] == "1.00 s of sound"


def test_sound_comes_in_a_file_or_from_an_address_and_neither_is_ignored(server):
    told = hear(server, url="https://media.example/a.wav")
    assert told.status == 400
    assert (told.json["error"]["code"], told.json["error"]["param"]) == ("invalid_value", "url")


def test_a_client_that_leaves_in_the_middle_of_speech_leaves_nothing_behind(server):
    connection = server.connect()
    body = json.dumps({"input": "x" * 9_000, "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert len(answer.read(4096)) == 4096
    answer.close()
    connection.close()
    assert within(5, lambda: server.metric("mstar_requests_open") == 0)


def test_the_decoder_is_started_again_where_it_was_killed(server):
    assert hear(server).status == 200
    os.kill(decoder_of(server), signal.SIGKILL)
    assert hear(server).status == 200


def test_the_decoder_ends_with_its_api_process(tough):
    assert hear(tough).status == 200
    api, decoder = tough.api(), decoder_of(tough)
    os.kill(api, signal.SIGKILL)
    assert within(5, lambda: not is_alive(decoder))
    tough.replaced("API process 0", api)
    assert hear(tough).status == 200


def test_a_fault_at_one_sound_is_told_and_the_next_is_heard(tough):
    told = hear(tough, prompt="!raise@1 abc")
    assert (told.status, told.json["error"]["code"]) == (500, "request_failed")
    told = hear(tough, prompt="!raise@1 abc", stream="true")
    assert told.status in (200, 500)
    assert b"request_failed" in told.body
    assert b"[DONE]" not in told.body
    assert hear(tough).json["text"] == "1.00 s of sound"


def test_speech_that_breaks_off_is_seen_to_be_broken(tough):
    """Bytes have no room for an error, so the connection ends before the body does."""
    body = {"input": "!exit@300 " + "x" * 2_000, "response_format": "pcm"}
    before = tough.engine
    try:
        told = tough.post("/v1/audio/speech", body)
    except http.client.IncompleteRead:
        pass
    else:
        assert told.json["error"]["code"] == "engine_restarted"
    tough.replaced("engine", before)
    events = tough.post("/v1/audio/speech", {**body, "stream_format": "sse"})
    assert b"engine_restarted" in events.body
    assert b"[DONE]" not in events.body
    tough.replaced("engine", before)


@pytest.mark.parametrize("stream", ["true", "false"])
def test_the_completion_line_tells_seconds_and_no_words(server, stream):
    server.mark()
    hear(server, prompt="a secret", stream=stream)

    def is_told():
        """the line is written"""
        return [line for line in server.news.splitlines() if PATH in line]

    (line,) = server.until(is_told)
    assert "audio_s" in line
    assert "secret" not in server.news


@pytest.mark.parametrize(
    ("rounds", "most_kib"), [(10, 1024), pytest.param(1000, 3000, marks=pytest.mark.long)]
)
def test_sound_and_speech_leave_memory_and_descriptors_as_they_were(server, rounds, most_kib):
    """Three requests a round, one of them refused; the long run allows 1 kB for each."""
    connection = server.connect()
    broken = form(SECOND.replace(b"WAVE", b"WAXE"))
    speech = json.dumps({"input": "x" * 100, "response_format": "mp3"})

    def ask(path, body, head):
        connection.request("POST", path, body, head)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def play(times):
        for _ in range(times):
            assert ask(PATH, form(SECOND), HEAD) == 200
            assert ask(PATH, broken, HEAD) == 400
            assert ask("/v1/audio/speech", speech, {"content-type": "application/json"}) == 200

    def held():
        pids = [server.api(), decoder_of(server)]
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids], sum(map(memory_kib, pids))

    play(50)
    files, memory = held()
    play(rounds)
    files_after, memory_after = held()
    connection.close()
    assert files_after == files
    assert memory_after - memory < most_kib
