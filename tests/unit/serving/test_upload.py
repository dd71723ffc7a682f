"""The fields of a form, and what is said of those that are not known."""

from __future__ import annotations

import asyncio

import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.engine import Engine
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.media import decoder
from mstar_core.testing.asgi import call
from mstar_core.testing.serving import LocalLink
from mstar_core.testing.sound import encoded, tone

PATH = "/v1/audio/transcriptions"
SOUND = encoded(tone(1, 8_000), 8_000)
HEAD = [("content-type", "multipart/form-data; boundary=x")]


def form(**fields):
    parts = [
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return b"".join(parts) + head + SOUND + b"\r\n--x--\r\n"


@pytest.fixture(scope="module")
def engine():
    with Engine.open("echo") as engine:
        yield engine


@pytest.fixture
def ask(engine):
    """``ask(form, **server)``: the answer of a server with such settings."""
    made = []

    def send(body, headers=HEAD, limits=None, **server):
        service = Service(
            limits=LimitsConfig(**(limits or {})),
            server=ServerConfig(**server),
            link=LocalLink(engine),
            card=ModelCard(
                name="echo",
                capabilities=engine.front.capabilities(),
                max_context=65_536,
                created=0,
            ),
            front=engine.front,
        )
        made.append(service)
        return asyncio.run(call(create_app(service), PATH, body, headers=headers))

    yield send
    for service in made:
        service.close()


def test_a_field_that_nobody_knows_is_told_or_refused_where_the_server_is_strict(ask):
    told = ask(form(colour="red"))
    assert (told.status, told.headers["x-mstar-warning"]) == (200, "unknown fields: colour")
    told = ask(form(colour="red"), strict=True)
    assert (told.status, told.json()["error"]["code"]) == (400, "unknown_field")


@pytest.mark.parametrize(
    "fields",
    [
        {"chunking_strategy[type]": "server_vad"},
        {"chunking_strategy": "server_vad"},
        {"known_speaker_names[]": "a"},
        {"include[]": "logprobs"},
    ],
)
def test_a_field_that_is_known_and_not_offered_is_refused(ask, fields):
    assert ask(form(**fields)).json()["error"]["code"] == "unsupported_field"


@pytest.mark.parametrize(
    "fields",
    [{"chunking_strategy": "auto"}, {"timestamp_granularities": "segment"}, {"stream": "false"}],
)
def test_a_value_that_asks_for_nothing_else_is_taken(ask, fields):
    told = ask(form(**fields))
    assert (told.status, told.headers.get("x-mstar-warning")) == (200, None)
    assert told.json()["text"] == "1.00 s of sound"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": "1e999"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"stream": "perhaps"}, "stream"),
        ({"response_format": "docx"}, "response_format"),
        ({"seed": "1.5"}, "seed"),
        ({"timestamp_granularities": "word"}, "timestamp_granularities"),
        ({"language": ""}, "language"),
    ],
)
def test_text_that_is_not_what_its_field_is_is_refused_with_the_fields_name(ask, fields, param):
    error = ask(form(**fields)).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", param)


def test_a_prompt_that_reads_null_is_a_prompt(ask):
    assert ask(form(prompt="null")).json()["text"] == "null"


def test_json_without_a_url_has_no_sound(ask):
    headers = [("content-type", "application/json")]
    error = ask(b'{"model": "echo"}', headers).json()["error"]
    assert (error["code"], error["param"]) == ("missing_field", "file")


def test_without_the_library_that_reads_sound_the_route_says_so(ask, monkeypatch):
    monkeypatch.setattr(decoder, "find_spec", lambda name: None)
    told = ask(form())
    assert (told.status, told.json()["error"]["code"]) == (404, "route_not_offered")


def test_no_transcript_is_longer_than_the_server_allows(ask):
    told = ask(form(prompt="abcdef"), limits={"max_new_tokens": 3})
    assert (told.status, told.json()["text"]) == (200, "abc")
