"""The official client against real servers: every text route and option, streamed and not, both
clients."""

import asyncio
import json
import math

import openai
import pytest

PARTS = ("prepare_ms", "queue_ms", "prefill_ms", "decode_ms")
USER = [{"role": "user", "content": "Hello there, grüße ✅"}]
SAID = USER[0]["content"]
SIZE = len(SAID.encode())
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look something up",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
        },
    }
]


class Both:
    """The sync and the async client, called alike: ``both.chat(...)``, ``both.text(...)``."""

    def __init__(self, server, is_async):
        self.options = {"base_url": f"{server.address}/v1", "api_key": "none", "max_retries": 0}
        self.sync = openai.OpenAI(**self.options, timeout=60)
        self.is_async = is_async
        self.model = None

    def chat(self, **body):
        return self._call("chat", {"model": self.model, "messages": USER, **body})

    def text(self, **body):
        return self._call("text", {"model": self.model, "prompt": SAID, **body})

    def _call(self, kind, body):
        def of(client):
            owner = client.chat.completions if kind == "chat" else client.completions
            return owner.create(**body)

        if not self.is_async:
            made = of(self.sync)
            return list(made) if body.get("stream") else made

        async def run():
            async with openai.AsyncOpenAI(**self.options) as client:
                made = await of(client)
                return [chunk async for chunk in made] if body.get("stream") else made

        return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def both(server, request):
    made = Both(server, request.param == "async")
    made.model = "echo"
    with made.sync:
        yield made


@pytest.fixture(params=["sync", "async"])
def tiny(tiny_server, request):
    made = Both(tiny_server, request.param == "async")
    made.model = "qwen35_tiny"
    with made.sync:
        yield made


def joined(chunks, kind="chat", index=0):
    """(text, reasoning, finish reason) of one choice of a stream."""
    choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
    finishes = [c.finish_reason for c in choices if c.finish_reason is not None]
    assert len(finishes) == 1
    if kind == "text":
        return "".join(c.text for c in choices), "", finishes[0]
    thought = "".join(getattr(c.delta, "reasoning_content", None) or "" for c in choices)
    return "".join(c.delta.content or "" for c in choices), thought, finishes[0]


def refused(call, kind, code, param=None):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.code == code
    if param is not None:
        assert caught.value.param == param
    return caught.value


# echo: the answer is known


def test_a_chat_is_answered_in_one_body_and_as_a_stream(both):
    made = both.chat()
    choice = made.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", SAID)
    assert (choice.finish_reason, made.object, made.model) == ("stop", "chat.completion", "echo")
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (SIZE, SIZE)
    chunks = both.chat(stream=True)
    assert joined(chunks) == (SAID, "", "stop")
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_a_text_is_continued_in_one_body_and_as_a_stream(both):
    made = both.text()
    assert (made.choices[0].text, made.object) == (SAID, "text_completion")
    assert joined(both.text(stream=True), "text") == (SAID, "", "stop")
    assert both.text(echo=True).choices[0].text == SAID + SAID
    assert joined(both.text(echo=True, stream=True), "text")[0] == SAID + SAID


def test_several_prompts_and_choices_come_in_order(both):
    made = both.text(prompt=["ab", "c"], n=2)
    assert [choice.text for choice in made.choices] == ["ab", "ab", "c", "c"]
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (3, 6)
    assert [c.text for c in both.text(prompt=[[97], [98, 99]]).choices] == ["a", "bc"]
    assert both.text(prompt=[97, 98]).choices[0].text == "ab"
    chunks = both.chat(n=3, stream=True)
    assert [joined(chunks, index=i)[0] for i in range(3)] == [SAID] * 3
    assert [c.message.content for c in both.chat(n=3).choices] == [SAID] * 3


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [("there", "Hello ", "there"), ([" g", "lo t"], "Hel", "lo t"), (["never"], SAID, None)],
)
def test_stop_strings_hold_across_chunks(both, stop, text, reason):
    """DT-01: echo gives one byte a token."""
    made = both.chat(stop=stop).choices[0]
    assert (made.message.content, made.stop_reason) == (text, reason)
    chunks = both.chat(stop=stop, stream=True)
    assert joined(chunks) == (text, "", "stop")
    assert both.text(stop=stop).choices[0].text == text
    assert joined(both.text(stop=stop, stream=True), "text")[0] == text


def test_lengths_end_an_answer_and_never_inside_a_character(both):
    """DT-04, API-01"""
    made = both.chat(max_completion_tokens=16)
    assert made.choices[0].finish_reason == "length"
    assert made.choices[0].message.content == "Hello there, gr\ufffd"
    assert joined(both.chat(max_tokens=17, stream=True)) == ("Hello there, grü", "", "length")
    assert both.text(max_tokens=5).choices[0].text == "Hello"
    error = refused(
        lambda: both.text(max_tokens=70_000), openai.BadRequestError, "context_length_exceeded"
    )
    assert all(str(n) in error.message for n in (SIZE, 70_000, 65_536))


def test_a_prompt_beyond_the_models_own_context_is_told_the_three_numbers(both):
    """API-01"""
    long = "x" * 70_000
    for call in (
        both.text,
        lambda prompt, **b: both.chat(messages=[{**USER[0], "content": prompt}]),
    ):
        bad = openai.BadRequestError
        error = refused(lambda call=call: call(prompt=long), bad, "context_length_exceeded")
        assert all(number in error.message for number in ("70000", "1 new", "65536"))


def test_stop_ids_and_end_ids(both):
    """DT-03"""
    at = {"stop_token_ids": [ord("t")]}
    made = both.text(extra_body=at).choices[0]
    assert (made.text, made.finish_reason, made.stop_reason) == ("Hello ", "stop", ord("t"))
    more = {**at, "include_stop_str_in_output": True}
    assert both.text(extra_body=more).choices[0].text == "Hello t"
    assert both.text(stop="lo", extra_body=more).choices[0].text == "Hello"
    assert joined(both.text(stream=True, extra_body=more), "text")[0] == "Hello t"


def test_usage_comes_at_the_end_of_a_stream_where_it_is_asked_for(both):
    chunks = both.chat(stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 2 * SIZE
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens >= 0
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 0


def test_timings_add_up(both):
    timings = both.chat(extra_body={"timings": True}).timings
    parts = [timings[name] for name in PARTS]
    assert math.isclose(sum(parts), timings["total_ms"], rel_tol=1e-6)
    chunks = both.chat(stream=True, extra_body={"timings": True})
    assert set(chunks[-1].timings) == set(timings)


def test_what_is_not_offered_is_refused_by_name(both):
    """API-04, API-07"""
    bad = openai.BadRequestError
    formats = ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a"}})
    for given in formats:
        refused(
            lambda given=given: both.chat(response_format=given),
            bad,
            "unsupported_field",
            "response_format",
        )
    assert both.chat(response_format={"type": "text"}).choices[0].message.content == SAID
    refused(lambda: both.chat(tools=TOOLS), bad, "unsupported_field", "tools")
    refused(lambda: both.text(suffix="a"), bad, "unsupported_field", "suffix")
    for name, given in (("response_format", {"type": "json_object"}), ("tools", TOOLS)):
        extra = {name: given}
        refused(lambda extra=extra: both.text(extra_body=extra), bad, "unsupported_field", name)
    refused(lambda: both.text(best_of=2), bad, "unsupported_field", "best_of")
    refused(lambda: both.chat(n=9), bad, "limit_exceeded", "n")
    refused(lambda: both.chat(temperature=3), bad, "invalid_value", "temperature")
    refused(lambda: both.chat(messages=[]), bad, "invalid_value", "messages")
    refused(lambda: both.text(prompt=""), bad, "empty_prompt", "prompt")
    refused(lambda: both.chat(model="other"), openai.NotFoundError, "model_not_found", "model")


def test_fields_that_change_nothing_are_taken(both):
    made = both.chat(
        user="me", metadata={"a": "b"}, store=False, seed=4, extra_body={"priority": 1}
    )
    assert made.choices[0].message.content == SAID


def test_models_are_listed(both):
    assert [model.id for model in both.sync.models.list()] == ["echo"]
    assert both.sync.models.retrieve("echo").id == "echo"


def test_the_clients_own_stream_helper_puts_an_answer_together(both):
    with both.sync.chat.completions.stream(model="echo", messages=USER) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == SAID


def test_texts_and_ids(server):
    ids = list(SAID.encode())
    told = server.post("/tokenize", {"prompt": SAID})
    assert told.json == {"tokens": ids, "count": SIZE, "max_model_len": 65536}
    assert server.post("/tokenize", {"messages": USER}).json["tokens"] == ids
    assert server.post("/detokenize", {"tokens": ids}).json == {"prompt": SAID}


def test_ids_that_the_model_does_not_have_are_no_text(server):
    """API-10"""
    told = server.post("/detokenize", {"tokens": [104, 1 << 30]})
    assert (told.status, told.json["error"]["code"]) == (400, "invalid_value")
    assert server.post("/detokenize", {"tokens": []}).json == {"prompt": ""}


def test_line_breaks_of_unicode_come_through(both):
    """API-11"""
    text = "a\u2705b\u0085c\u2028d\ne\r\nf"
    said = [{"role": "user", "content": text}]
    assert joined(both.chat(messages=said, stream=True))[0] == text
    assert both.chat(messages=said).choices[0].message.content == text


# Qwen3.5: a real tokenizer, template and sampler


def greedy(tiny, **body):
    return tiny.chat(temperature=0, max_tokens=12, **body)


def test_a_stream_says_what_a_body_says(tiny):
    made = greedy(tiny).choices[0]
    assert joined(greedy(tiny, stream=True)) == (made.message.content, "", made.finish_reason)
    text = tiny.text(temperature=0, max_tokens=12).choices[0].text
    assert joined(tiny.text(temperature=0, max_tokens=12, stream=True), "text")[0] == text
    stop = made.message.content[5:8]
    cut = made.message.content.partition(stop)[0]
    assert greedy(tiny, stop=stop).choices[0].message.content == cut
    assert joined(greedy(tiny, stop=stop, stream=True)) == (cut, "", "stop")


def test_thinking_is_told_apart(tiny):
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    message = greedy(tiny, extra_body=on).choices[0].message
    assert message.reasoning_content
    assert greedy(tiny, reasoning_effort="high").choices[0].message == message
    _, thought, _ = joined(greedy(tiny, extra_body=on, stream=True))
    assert thought == message.reasoning_content
    usage = greedy(tiny, extra_body=on).usage
    assert 0 < usage.completion_tokens_details.reasoning_tokens <= usage.completion_tokens
    for off in ({"reasoning_effort": "none"}, {}):
        assert not hasattr(greedy(tiny, **off).choices[0].message, "reasoning_content")
    other = {"chat_template_kwargs": {"documents": []}}
    refused(lambda: tiny.chat(extra_body=other), openai.BadRequestError, "unsupported_field")


def test_a_seed_repeats_an_answer_and_choices_differ(tiny):
    """SM-12"""

    def texts(**body):
        made = tiny.text(temperature=1.5, max_tokens=12, **body)
        return [choice.text for choice in made.choices]

    three = texts(n=3, seed=5)
    assert texts(n=3, seed=5) == three
    assert texts(seed=6) == three[1:2]
    assert len(set(three)) == 3


def test_more_choices_than_the_engine_has_rows_are_all_given(tiny):
    """SM-12: eight rows, 24 choices, each with an end of its own."""
    body = {"prompt": ["a", "b", "c"], "n": 8, "seed": 7, "temperature": 1.5, "max_tokens": 20}
    made = tiny.text(**body, stop="in")
    assert made.usage.completion_tokens <= 24 * 20
    chunks = tiny.text(**body, stop="in", stream=True)
    for index, choice in enumerate(made.choices):
        assert joined(chunks, "text", index) == (choice.text, "", choice.finish_reason)
    assert len({choice.text for choice in made.choices}) > 12
    for n in (0, 9, 1_000_000):
        with pytest.raises(openai.BadRequestError):
            tiny.text(n=n)


def test_unlikely_tokens_have_finite_logprobs(tiny):
    """SM-09: one candidate, and a token that is banned."""
    only = {"top_k": 1}
    made = tiny.text(logprobs=5, temperature=1, max_tokens=3, extra_body=only).choices[0].logprobs
    banned = tiny.text(logprobs=5, max_tokens=3, logit_bias={"1": -100}).choices[0].logprobs
    values = [v for columns in (made, banned) for top in columns.top_logprobs for v in top.values()]
    assert all(-9999 <= value <= 0 for value in values)


def test_logprobs_of_a_chat(tiny):
    made = greedy(tiny, logprobs=True, top_logprobs=3).choices[0]
    content = made.logprobs.content
    assert len(content) == 12
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == pytest.approx(entry.logprob)
        assert entry.top_logprobs[0].token == entry.token
    assert (
        bytes(b for e in content for b in e.bytes).decode(errors="replace") == made.message.content
    )
    chunks = greedy(tiny, logprobs=True, top_logprobs=3, stream=True)
    streamed = [e for c in chunks for x in c.choices if x.logprobs for e in x.logprobs.content]
    assert [e.token for e in streamed] == [e.token for e in content]


def test_logprobs_of_a_completion(tiny):
    made = tiny.text(temperature=0, max_tokens=6, logprobs=2).choices[0].logprobs
    assert [len(column) for column in (made.tokens, made.token_logprobs, made.text_offset)] == [
        6
    ] * 3
    for token, logprob, top in zip(
        made.tokens, made.token_logprobs, made.top_logprobs, strict=True
    ):
        assert top[token] == pytest.approx(logprob)


def test_biases_and_penalties_change_what_is_picked(tiny):
    told = tiny.sync.post("../tokenize", body={"prompt": "e"}, cast_to=object)
    (token,) = told["tokens"]

    def text(**body):
        biased = {"logit_bias": {str(token): 12}, "temperature": 0, "max_tokens": 5}
        return tiny.text(**biased, **body).choices[0].text

    assert text() == "eeeee"
    assert text(frequency_penalty=2, presence_penalty=2).startswith("eeee ")
    assert text(extra_body={"repetition_penalty": 10}).count("e") < 5
    assert text(top_p=0.5, extra_body={"top_k": 50, "min_p": 0.01}) == "eeeee"


def test_ids_of_the_prompt_are_checked_against_the_embedding(tiny):
    """API-10"""
    bad = openai.BadRequestError
    refused(lambda: tiny.text(prompt=[[5, 999_999_999]]), bad, "invalid_value")
    refused(lambda: tiny.text(prompt=[[-1]]), bad, "invalid_value")
    assert tiny.text(prompt=[[5, 1009]], max_tokens=2).usage.prompt_tokens == 2


def test_the_turns_of_an_agent_are_taken(tiny):
    """API-05"""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"what": 1}'}}
    turns = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "42"},
    ]
    assert greedy(tiny, messages=turns, tools=TOOLS).usage.prompt_tokens > 40
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert greedy(tiny, messages=parts).choices
    plain = [*USER, {"role": "assistant", "content": "x", "tool_calls": []}, *USER]
    assert greedy(tiny, messages=plain).choices
    robot = [{"role": "robot", "content": "a"}]
    refused(lambda: tiny.chat(messages=robot), openai.BadRequestError, "invalid_value")
    late = [*USER, {"role": "system", "content": "a"}]
    refused(lambda: tiny.chat(messages=late), openai.BadRequestError, "invalid_value")


def test_tools_are_shown_to_the_model_unless_there_is_no_choice(tiny):
    shown = greedy(tiny, tools=TOOLS, tool_choice="auto").usage.prompt_tokens
    hidden = greedy(tiny, tools=TOOLS, tool_choice="none").usage.prompt_tokens
    assert hidden == greedy(tiny).usage.prompt_tokens < shown
    forced = {"type": "function", "function": {"name": "look"}}
    for choice in ("required", forced):
        call = lambda choice=choice: tiny.chat(tools=TOOLS, tool_choice=choice)  # noqa: E731
        refused(call, openai.BadRequestError, "unsupported_field", "tool_choice")


def test_the_shape_of_a_raw_event_is_one_line_of_json(server):
    """API-11: charset, framing, and the end."""
    connection = server.connect()
    try:
        body = json.dumps({"messages": USER, "stream": True})
        connection.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        *events, last = answer.read().decode().split("\n\n")
        assert (events[-1], last) == ("data: [DONE]", "")
        assert all(json.loads(event.removeprefix("data: ")) for event in events[:-1])
    finally:
        connection.close()


# A server whose requests may fail


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("order", "code", "said"),
    [
        ("!raise@3", "request_failed", "!ra"),
        ("!nan@3", "request_failed", "!na"),
        ("!decode", "internal_error", None),
        ("!front", "internal_error", ""),
    ],
)
def test_a_request_that_fails_is_an_error_to_the_client_and_to_nobody_else(
    tough, is_async, order, code, said
):
    """API-08: in a body, and in a stream whose beginning was good."""
    both = Both(tough, is_async)
    both.model = "echo"
    heard = []

    def listen():
        with both.sync.completions.create(model="echo", prompt=order, stream=True) as stream:
            heard.extend(chunk.choices[0].text for chunk in stream)

    with both.sync:
        refused(lambda: both.text(prompt=order), openai.InternalServerError, code)
        with pytest.raises(openai.APIError) as caught:
            listen()
        assert caught.value.code == code
        assert "!decode".startswith("".join(heard)) if said is None else "".join(heard) == said
        assert both.text().choices[0].text == SAID
