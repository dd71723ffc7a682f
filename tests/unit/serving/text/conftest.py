"""The text routes over a link that answers by a script."""

import asyncio
import json

import pytest
from attrs import define

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.testing.asgi import call
from mstar_core.testing.scripted_link import PiecesFront, ScriptedLink, said

PIECES = [b"The qu", b"ick br", b"own", b" fox", b" runs", b"<end>"]
END = 5
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@define
class Heard:
    """What a stream of chunks says, put together per choice."""

    texts: dict
    reasoning: dict
    calls: dict
    finishes: dict
    stops: dict
    scores: dict
    last: dict
    """``usage`` and ``timings``."""
    error: str | None
    is_done: bool
    num_chunks: int


@define
class Desk:
    """An application with a scripted engine behind it."""

    app: object
    link: ScriptedLink
    service: Service

    def ask(self, path, headers=(), **body):
        """The answer to a JSON body."""
        return asyncio.run(self.asked(path, headers, **body))

    def asked(self, path, headers=(), **body):
        data = json.dumps(body, ensure_ascii=False).encode()
        return call(self.app, path, data, headers=headers)

    def chat(self, text="hi", **body):
        return self.ask(CHAT, **{"messages": [{"role": "user", "content": text}], **body})

    def complete(self, prompt="hi", **body):
        return self.ask(TEXT, prompt=prompt, **body)

    def heard(self, path, **body):
        """A stream, put together."""
        told = self.ask(path, stream=True, **body)
        assert told.status == 200, told.body
        return heard(told.body)

    def whole(self, path, **body):
        """The same of an answer in one body: texts, finishes, stops."""
        told = self.ask(path, **body)
        assert told.status == 200, told.body
        choices = told.json()["choices"]
        texts = {c["index"]: c["text"] if "text" in c else c["message"]["content"] for c in choices}
        finishes = {c["index"]: c["finish_reason"] for c in choices}
        return texts, finishes, {c["index"]: c["stop_reason"] for c in choices}


def heard(body):
    """The events of a stream, put together."""
    out = Heard({}, {}, {}, {}, {}, {}, {}, None, False, 0)
    for block in body.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        assert block.startswith("data: ")
        assert "\n" not in block
        assert not out.is_done
        if block == "data: [DONE]":
            out.is_done = True
            continue
        event = json.loads(block.removeprefix("data: "))
        if "error" in event:
            out.error = event["error"]["code"]
            continue
        out.num_chunks += 1
        out.last |= {k: event[k] for k in ("usage", "timings") if event.get(k) is not None}
        for choice in event["choices"]:
            add(out, choice)
    return out


def add(out, choice):
    at, delta = choice["index"], choice.get("delta", {})
    text = choice.get("text", delta.get("content", ""))
    out.texts[at] = out.texts.get(at, "") + text
    out.reasoning[at] = out.reasoning.get(at, "") + delta.get("reasoning_content", "")
    out.calls.setdefault(at, []).extend(delta.get("tool_calls", []))
    out.scores.setdefault(at, []).append(choice["logprobs"])
    if choice["finish_reason"] is not None:
        assert at not in out.finishes
        out.finishes[at] = choice["finish_reason"]
        out.stops[at] = choice["stop_reason"]


@pytest.fixture
def desk():
    """``desk(script or groups of tokens, front=, limits=, server=, max_context=)`` → Desk."""

    def make(
        script=([0, 1, 2, 3, 4],),
        *,
        front=None,
        limits=None,
        server=None,
        max_context=4096,
        reason="length",
    ):
        groups = script
        front = front or PiecesFront(PIECES, {END})
        link = ScriptedLink(script if callable(script) else lambda _: said(*groups, reason=reason))
        service = Service(
            limits=LimitsConfig(**(limits or {})),
            server=ServerConfig(**(server or {})),
            link=link,
            card=ModelCard(
                name="tiny", capabilities=front.capabilities(), max_context=max_context, created=7
            ),
            front=front,
        )
        return Desk(create_app(service), link, service)

    return make
