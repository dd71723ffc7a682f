"""The client, and the measurements, against a real server."""

import asyncio
import io
import json
import shutil
import ssl
import subprocess
import threading
import wave
from pathlib import Path

import pytest

from mstar_core.bench.startup import measure
from mstar_core.cli import main
from mstar_core.client import (
    ApiError,
    AsyncClient,
    Client,
    ConnectFailed,
    ConnectionLost,
    Delta,
    Finish,
    Usage,
)
from mstar_core.errors import MstarError

ODD = "✅ a\u0085b\u2028c\u2029d\x0be\nf 🏔"
HELLO = [{"role": "user", "content": ODD}]
ENDLESS = {"max_tokens": 60000, "ignore_eos": True}


@pytest.fixture
def client(server):
    with Client(f"{server.address}/v1") as opened:
        yield opened


def wav(seconds):
    """A file of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes(bytes(2 * int(16_000 * seconds)))
    return file.getvalue()


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, Delta))


def test_every_text_route_is_answered(client):
    chat = client.chat(HELLO, max_tokens=100, request_id="mine-1")
    assert (chat.text, chat.finish_reason, chat.request_id) == (ODD, "stop", "mine-1")
    assert chat.usage.completion_tokens >= len(ODD.encode())
    done = client.complete("abc", max_tokens=2, n=2)
    assert [(c.text, c.finish_reason) for c in done.choices] == [("ab", "length")] * 2
    assert client.tokenize("ab") == (97, 98)
    assert client.detokenize([97, 98]) == "ab"
    (model,) = client.models()
    assert (model.id, model.raw["limits"]["max_context"]) == ("echo", 65536)
    assert client.live()
    assert client.ready().ready


def test_streams_give_what_was_said_and_how_it_ended(client):
    """API-11: through the server and the client, separators of lines are text."""
    options = {"stream_options": {"include_usage": True}}
    *said, finish, usage = client.stream_chat(HELLO, max_tokens=100, **options)
    assert text_of(said) == ODD
    assert finish == Finish(reason="stop")
    assert isinstance(usage, Usage)
    assert text_of(client.stream_complete("x" * 500, max_tokens=500)) == "x" * 500


def test_sound_is_heard_and_made(client):
    """Echo says how long a sound is, and speaks a tone of 10 ms for each byte."""
    sound = wav(1.5)
    heard = client.transcribe(sound, response_format="verbose_json")
    assert heard.text == "1.50 s of sound"
    assert heard.duration == pytest.approx(1.5)
    assert client.transcribe(sound, response_format="srt").text.startswith("1\n00:00:00,000 --> ")
    assert client.translate(sound).text == heard.text
    *said, whole = client.stream_transcribe(sound)
    assert text_of(said).strip() == whole.text == heard.text
    options = {"voice": "tone", "response_format": "pcm"}
    made = client.speak("hallo", **options)
    assert len(made) == 5 * 240 * 2
    assert b"".join(client.stream_speak("hallo", **options)) == made


def test_many_streams_of_one_loop_are_kept_apart(server):
    async def run():
        async with AsyncClient(server.address) as client:

            async def one(number):
                stream = client.stream_complete(f"{number}," * 50, max_tokens=4096)
                return text_of([event async for event in stream])

            return await asyncio.gather(*(one(number) for number in range(30)))

    assert asyncio.run(run()) == [f"{number}," * 50 for number in range(30)]


def test_errors_are_the_servers_own_words(client):
    with pytest.raises(ApiError) as caught:
        client.chat(HELLO, model="nobody")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert caught.value.request_id
    with pytest.raises(ApiError) as caught:
        client.complete("a", max_tokens=-1)
    assert (caught.value.status, caught.value.param) == (400, "max_tokens")
    with pytest.raises(ApiError) as caught:
        client.cancel("nobody")
    assert caught.value.code == "request_not_found"


def test_a_request_is_cancelled_by_its_id(client):
    with client.stream_complete("abc", request_id="long-1", **ENDLESS) as events:
        next(events)
        client.cancel("long-1")
        with pytest.raises((ApiError, ConnectionLost)):
            list(events)


def test_closing_a_stream_ends_the_request_in_the_server(server, client):
    with client.stream_complete("abc", **ENDLESS) as events:
        next(events)
        assert server.metric("mstar_requests_open") >= 1

    def is_over():
        """no request is open"""
        return server.metric("mstar_requests_open") == 0

    server.until(is_over)


def test_a_load_is_measured_without_a_failed_request(server, capsys):
    command = ["bench", "serve", "--url", server.address, "--requests", "20", "--json", "-"]
    assert main([*command, "--output-tokens", "8", "--processes", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    found, (asked,) = told["results"], told["runs"]
    assert (found["requests"], found["failed"], found["mean_output_tokens"]) == (20, 0, 8.0)
    assert asked["asks"]["model"] == "echo"
    assert told["servers"][0]["models"][0]["limits"]["max_context"] == 65536
    assert 100 < found["mean_prompt_tokens"] < 160


def test_a_start_is_measured_with_the_servers_own_table():
    found = measure(["echo"], 60)
    assert 0 < found.bound_s <= found.live_s <= found.ready_s
    assert found.first_request_s > 0
    assert {"command python", "engine weights", "total"} <= set(found.phases_s)


def test_a_start_that_fails_says_what_the_server_said():
    with pytest.raises(MstarError, match=r"exit code 1[^$]*nowhere\.yaml"):
        measure(["nowhere.yaml"], 60)


def test_a_server_with_tls_and_a_key_is_spoken_to(serve, tmp_path):
    key, cert, keys = (str(tmp_path / name) for name in ("key.pem", "cert.pem", "keys"))
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there is no certificate to serve with")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, "-out", cert, "-days", "2", *names], check=True, capture_output=True)
    secret = "a-key-that-is-long-enough-to-be-one"
    Path(keys).write_text(f"{secret}\n")
    made = serve("--tls-cert", cert, "--tls-key", key, "--api-key-file", keys).bound()
    tls = ssl.create_default_context(cafile=cert)
    with Client(made.address, api_key=secret, tls=tls) as client:
        client.wait_ready(60)
        assert client.complete("ab", max_tokens=2).text == "ab"
        assert text_of(client.stream_complete("ab", max_tokens=2)) == "ab"
    with Client(made.address, tls=tls) as nobody, pytest.raises(ApiError) as caught:
        nobody.models()
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    with Client(made.address) as strict, pytest.raises(ConnectFailed, match="certificate"):
        strict.live()

    async def run():
        async with AsyncClient(made.address, api_key=secret, tls=tls) as client:
            stream = client.stream_complete("ab", max_tokens=2)
            return text_of([event async for event in stream])

    assert asyncio.run(run()) == "ab"


def test_nobody_is_there_before_it_starts_and_waiting_for_it_ends_when_it_is_ready(server):
    with Client("http://127.0.0.1:9") as nobody, pytest.raises(ConnectFailed):
        nobody.live()
    with Client(server.address) as client:
        waiting = threading.Thread(target=client.wait_ready, args=(30,))
        waiting.start()
        waiting.join(30)
        assert not waiting.is_alive()
