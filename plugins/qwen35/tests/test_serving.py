"""Qwen3.5 behind the HTTP routes: its template, tokenizer and answers; the engine is a script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from mstar_qwen35.config import read_config
from mstar_qwen35.front import Qwen35Front

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.testing.asgi import call
from mstar_core.testing.scripted_link import ScriptedLink, said

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]
CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
TAGS = "<tool_call>\n<function=look>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>"
USER = [{"role": "user", "content": "hi"}]


class Desk:
    """The routes; ``answers`` sets what the model will say, in so many tokens at once."""

    def __init__(self, front):
        self.front = front
        self.steps = []
        self.link = ScriptedLink(lambda request: self.steps)
        card = ModelCard(
            name="tiny", capabilities=front.capabilities(), max_context=4096, created=7
        )
        self.app = create_app(
            Service(limits=LimitsConfig(), link=self.link, card=card, front=front)
        )

    def answers(self, text, reason="stop", group=1):
        ids = self.front.encode(text)
        self.steps = said(*[ids[i : i + group] for i in range(0, len(ids), group)], reason=reason)
        return len(ids)

    def ask(self, **body):
        data = json.dumps({"messages": USER, **body}).encode()
        return asyncio.run(call(self.app, "/v1/chat/completions", data))

    def whole(self, **body):
        """(reasoning, content, calls, finish reason) of an answer."""
        told = self.ask(**body)
        assert told.status == 200, told.body
        choice = told.json()["choices"][0]
        return taken(choice["message"], choice["finish_reason"])

    def streamed(self, **body):
        """The same of a stream."""
        message = {"content": "", "reasoning_content": "", "tool_calls": []}
        finish = None
        for event in self.ask(stream=True, **body).body.decode().split("\n\n")[:-2]:
            choice = json.loads(event.removeprefix("data: "))["choices"][0]
            for name in message:
                message[name] += choice["delta"].get(name, type(message[name])())
            finish = finish or choice["finish_reason"]
        return taken(message, finish)

    def prompt(self, **body):
        """What the model would be given."""
        self.answers("ok")
        assert self.ask(**body).status == 200
        ids = self.link.generations[-1].request.arrays["ids"].tolist()
        return self.front.tokenizer.decode(ids)


def taken(message, finish):
    calls = [call["function"] for call in message.get("tool_calls", [])]
    listed = [(call["name"], json.loads(call["arguments"])) for call in calls]
    return message.get("reasoning_content", ""), message["content"] or "", listed, finish


@pytest.fixture(scope="module")
def desk():
    tiny = Path(__file__).parents[1] / "mstar_qwen35" / "tiny"
    return Desk(Qwen35Front(tiny, read_config(tiny)))


THINK = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.mark.parametrize("group", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "reason", "body", "expected"),
    [
        (
            "<think>a" + CALL,
            "stop",
            {"tools": TOOLS},
            ("a", "", [("look", {"a": 1})], "tool_calls"),
        ),
        (
            "a" + CALL + "\n" + TAGS,
            "stop",
            {"tools": TOOLS, **THINK},
            ("a", "", [("look", {"a": 1}), ("look", {"a": 2})], "tool_calls"),
        ),
        ('<tool_call>{"na', "length", {"tools": TOOLS}, ("", '<tool_call>{"na', [], "length")),
        ("b" + CALL, "stop", {"tools": TOOLS, "tool_choice": "none"}, ("", "b" + CALL, [], "stop")),
        ("b" + CALL, "stop", {}, ("", "b" + CALL, [], "stop")),
        ("Hi\n</think>\n\nok", "stop", THINK, ("Hi", "ok", [], "stop")),
        ("Hi</think>ok", "length", {"stop": "zzzzzzzzzz", **THINK}, ("Hi", "ok", [], "length")),
        ('{"answer":42}', "stop", {}, ("", '{"answer":42}', [], "stop")),
        ("so far", "length", THINK, ("so far", "", [], "length")),
        ("Hi</think>a STOP b", "stop", {"stop": "STOP", **THINK}, ("Hi", "a ", [], "stop")),
    ],
)
def test_an_answer_is_taken_apart_streamed_and_not(desk, text, reason, body, expected, group):
    """API-06, API-07, DT-02"""
    desk.answers(text, reason, group)
    assert desk.whole(**body) == expected
    assert desk.streamed(**body) == expected


def test_every_token_of_an_answer_is_counted(desk):
    """API-06"""
    size = desk.answers("<think>a" + CALL)
    usage = desk.ask(tools=TOOLS).json()["usage"]
    assert usage["completion_tokens"] == size
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 1}


def test_a_second_turn_with_calls_and_their_results_is_rendered(desk):
    """API-05"""
    called = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    result = {"role": "tool", "tool_call_id": "a", "content": "42"}
    for content in ({"content": None}, {}, {"content": "I look."}):
        turns = [*USER, {"role": "assistant", **content, "tool_calls": [called]}, result]
        assert "<tool_response>\n42\n</tool_response>" in desk.prompt(messages=turns, tools=TOOLS)
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    empty = {"role": "assistant", "content": "x", "tool_calls": []}
    assert "<|im_start|>user\nab<|im_end|>" in desk.prompt(messages=[parts, empty, *USER])
    brief = {"role": "developer", "content": "brief"}
    assert "system\nbrief" in desk.prompt(messages=[brief, *USER])


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "a"}],
        [*USER, {"role": "system", "content": "late"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [
            *USER,
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1]"}}],
            },
        ],
    ],
)
def test_a_conversation_that_the_template_refuses_is_a_400(desk, messages):
    """API-05: never a 500."""
    told = desk.ask(messages=messages)
    error = told.json()["error"]
    assert (told.status, error["code"]) == (400, "invalid_value")
    assert error["param"].startswith("messages")


def test_tools_are_shown_as_they_were_given(desk):
    assert '"name": "look"' in desk.prompt(tools=TOOLS)
    assert "look" not in desk.prompt(tools=TOOLS, tool_choice="none")
