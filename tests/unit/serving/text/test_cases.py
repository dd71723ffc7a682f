"""Faults that users of such servers reported: each as a request, and what is right."""

import asyncio
import itertools
import threading
import time

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mstar_core.model.answer import Part, ToolCall
from mstar_core.serving.link import Arrived
from mstar_core.testing.scripted_link import PiecesFront, end, said
from mstar_core.text import TextStream

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TWO = [b"The qu", b"ick br"]
USER = [{"role": "user", "content": "hi"}]
FAILED = {"where": "a step", "got": "values that are not finite", "want": "", "fix": ""}


def refused(told, code, param=None):
    error = told.json()["error"]
    assert (told.status, error["code"]) == (400, code), error
    if param is not None:
        assert error["param"] == param
    return error["message"]


# API-01


@pytest.mark.parametrize(("prompt", "new"), [(60, 10), (64, 1), (65, 1), (60, 2**31), (64, None)])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_prompt_and_answer_beyond_the_context_are_a_400_with_three_numbers(desk, prompt, new, name):
    """API-01"""
    told = desk(max_context=64).chat("a" * prompt, **({} if new is None else {name: new}))
    message = refused(told, "context_length_exceeded")
    assert all(str(number) in message for number in (prompt, new or 1, 64))


def test_without_max_tokens_the_answer_may_fill_the_rest_of_the_context(desk):
    """API-01"""
    made = desk(max_context=64)
    texts, finishes, _ = made.whole(TEXT, prompt="a" * 60)
    assert made.link.generations[0].request.max_new_tokens == 4
    assert (texts, finishes) == ({0: "The quick brown fox runs"}, {0: "length"})


def test_the_two_names_of_the_limit_must_agree(desk):
    """API-01"""
    refused(desk().chat(max_tokens=3, max_completion_tokens=4), "invalid_value")
    assert desk().chat(max_tokens=3, max_completion_tokens=3).status == 200


# API-02


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["ok", ""], [[1, 2], []]])
def test_an_empty_prompt_is_a_400_of_the_whole_request(desk, prompt):
    """API-02"""
    made = desk()
    refused(made.ask(TEXT, prompt=prompt), "empty_prompt", "prompt")
    assert made.link.generations == []


def test_a_chat_without_messages_is_a_400(desk):
    """API-02"""
    refused(desk().ask(CHAT, messages=[]), "invalid_value", "messages")


# API-03


@pytest.mark.parametrize("given", [0, -1, 1.5, "5"])
@pytest.mark.parametrize("more", [{}, {"echo": True, "logprobs": 1}, {"echo": True}])
def test_no_or_less_than_no_tokens_are_a_400(desk, given, more):
    """API-03: 0 with echo and logprobs too; prompts have no log-probabilities here."""
    assert desk().complete(max_tokens=given, **more).status == 400


# API-04


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (TEXT, "suffix", "a"),
        (TEXT, "best_of", 3),
        (TEXT, "guided_regex", "a*"),
        (CHAT, "response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
        (CHAT, "response_format", {"type": "json_object"}),
        (CHAT, "tool_choice", "required"),
        (CHAT, "tool_choice", {"type": "function", "function": {"name": "a"}}),
        (CHAT, "functions", [{"name": "a"}]),
        (CHAT, "modalities", ["text", "audio"]),
        (CHAT, "audio", {"voice": "a", "format": "wav"}),
        (CHAT, "prediction", {"type": "content", "content": "a"}),
        (CHAT, "web_search_options", {}),
        (CHAT, "parallel_tool_calls", False),
        (CHAT, "chat_template", "{{ 1 }}"),
        (CHAT, "chat_template_kwargs", {"documents": []}),
        (CHAT, "reasoning_effort", "low"),
        (CHAT, "tools", [{"type": "function", "function": {"name": "a"}}]),
    ],
)
def test_a_known_field_that_is_not_offered_is_a_400_that_names_it(desk, path, field, value):
    """API-04: the model of this test neither thinks nor calls tools."""
    base = {"prompt": "a"} if path == TEXT else {"messages": USER}
    assert refused(desk().ask(path, **base, **{field: value}), "unsupported_field", field)


def test_values_that_ask_for_nothing_are_taken(desk):
    """API-04"""
    told = desk().complete(
        suffix=None, best_of=1, user="a", prompt_cache_key="k", store=True, metadata={"a": "b"}
    )
    assert told.status == 200
    assert "x-mstar-warning" not in told.headers
    nothing = {"response_format": {"type": "text"}, "tool_choice": "none", "modalities": ["text"]}
    assert desk().chat(**nothing, parallel_tool_calls=True, tools=[]).status == 200


def test_an_unknown_field_is_told_in_a_header_or_refused_where_the_server_is_strict(desk):
    """API-04"""
    body = {"max_token": 5, "b\r\nx: y": 1}
    told = desk().complete(**body)
    assert (told.status, told.headers["x-mstar-warning"]) == (200, "unknown fields: max_token, ?")
    message = refused(desk(server={"strict": True}).complete(**body), "unknown_field", "max_token")
    assert "max_token" in message


# API-05 (with a real template: plugins/qwen35/tests/test_serving.py)


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant"},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "42"},
    ],
)
def test_every_legal_shape_of_a_message_is_taken(desk, turn):
    """API-05"""
    assert desk().ask(CHAT, messages=[*USER, turn]).status == 200


def test_an_unknown_role_is_a_400(desk):
    """API-05"""
    told = desk().ask(CHAT, messages=[{"role": "robot", "content": "a"}])
    refused(told, "invalid_value", "messages[0].role")


# API-06


class Calling:
    """An answer whose ``!`` are calls, and whose text in brackets is reasoning."""

    def __init__(self):
        self.thinks = False

    def push(self, text):
        content, reasoning, calls = "", "", []
        for character in text:
            if character in "[]":
                self.thinks = character == "["
            elif character == "!":
                calls.append(ToolCall(name="look", arguments='{"a": 1}'))
            elif self.thinks:
                reasoning += character
            else:
                content += character
        return Part(content=content, reasoning=reasoning, calls=tuple(calls))

    def finish(self):
        return Part()


class CallingFront(PiecesFront):
    """Every token is one character."""

    def __init__(self):
        super().__init__([bytes([i]) for i in range(128)])

    def chat_options(self):
        return frozenset({"think", "tools"})

    def chat_request(self, messages, think=None, tools=(), **options):
        return super().chat_request(messages, **options)

    def answer(self, request, tools=()):
        return Calling() if tools else super().answer(request)


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(("reason", "finish"), [("stop", "tool_calls"), ("length", "length")])
def test_calls_come_out_as_calls_streamed_and_not(desk, grouped, reason, finish):
    """API-06"""
    ids = list(b"[ab]c!d!")
    groups = [ids] if grouped else [[i] for i in ids]
    made = desk(groups, front=CallingFront(), reason=reason)
    choice = made.chat(tools=TOOLS).json()["choices"][0]
    message = choice["message"]
    assert (choice["finish_reason"], message["content"]) == (finish, "cd")
    assert message["reasoning_content"] == "ab"
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["look", "look"]
    heard = made.heard(CHAT, messages=USER, tools=TOOLS)
    assert (heard.texts, heard.reasoning, heard.finishes) == ({0: "cd"}, {0: "ab"}, {0: finish})
    assert [call["index"] for call in heard.calls[0]] == [0, 1]
    assert {call["function"]["arguments"] for call in heard.calls[0]} == {'{"a": 1}'}
    assert len({call["id"] for call in heard.calls[0] + message["tool_calls"]}) == 4


def test_an_answer_of_calls_alone_has_no_content(desk):
    """API-06"""
    choice = desk([list(b"!")], front=CallingFront(), reason="stop").chat(tools=TOOLS).json()
    assert choice["choices"][0]["message"]["content"] is None
    assert "reasoning_content" not in choice["choices"][0]["message"]


def test_tool_choice_none_shows_the_model_no_tools_and_reads_no_calls(desk):
    """API-06"""
    made = desk([list(b"a!")], front=CallingFront(), reason="stop")
    choice = made.chat(tools=TOOLS, tool_choice="none").json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a!", "stop")


def test_reasoning_tokens_are_counted(desk):
    usage = desk([list(b"[ab]c")], front=CallingFront()).chat(tools=TOOLS).json()["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}


# API-07: test_a_known_field_that_is_not_offered_is_a_400_that_names_it, and the plugin's parser


# API-08


def failing(request):
    """The second of four requests fails at its third step."""
    steps = said([0], [1], [2], [3])
    if request.max_new_tokens == 2:
        steps[2] = Arrived(ended=end("error", 2, FAILED, code="request_failed"))
    return steps


def test_only_the_request_that_fails_is_told_of_it(desk):
    """API-08: at once, in one shape, in a body and inside a stream."""
    made = desk(failing)
    began = time.perf_counter()
    for new in (1, 2, 3, 4):
        told = made.complete(max_tokens=new)
        heard = made.heard(TEXT, prompt="a", max_tokens=new)
        if new == 2:
            error = told.json()["error"]
            assert (told.status, error["code"]) == (500, "request_failed")
            assert "not finite" in error["message"]
            assert (heard.error, heard.is_done, heard.finishes) == ("request_failed", False, {})
            assert heard.texts == {0: "The quick br"}
        else:
            assert (told.status, heard.error, heard.is_done) == (200, None, True)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("code", ["engine_restarted", "draining"])
def test_an_engine_that_goes_away_is_an_error_of_the_servers(desk, code):
    """API-08"""
    lost = end("error", 1, code=code)
    made = desk(lambda _: [Arrived(tokens=[0]), Arrived(ended=lost)])
    assert made.complete().status == 503
    heard = made.heard(TEXT, prompt="a")
    assert (heard.error, heard.is_done, heard.texts) == (code, False, {0: "The qu"})


def test_what_came_with_the_failure_is_given_in_front_of_it(desk):
    """API-08"""
    lost = Arrived(tokens=[0, 1], ended=end("error", 2, code="engine_restarted"))
    heard = desk(lambda _: [lost]).heard(TEXT, prompt="a")
    assert (heard.texts, heard.error) == ({0: "The quick br"}, "engine_restarted")


def test_what_fails_before_the_first_token_has_its_own_status_in_a_stream_too(desk):
    """API-08"""
    refusal = evolve(end("error", 0, FAILED), prompt_items=0)
    told = desk(lambda _: [Arrived(ended=refusal)]).complete(stream=True)
    assert (told.status, told.json()["error"]["code"]) == (400, "invalid_value")


def test_one_choice_that_fails_ends_the_others(desk):
    """API-08"""

    def script(request):
        if request.sampling.seed == 8:
            return [
                Arrived(tokens=[0]),
                Arrived(ended=end("error", 1, FAILED, code="request_failed")),
            ]
        return [Arrived(tokens=[0]), 60.0]

    made = desk(script)
    assert made.complete(n=3, seed=7).json()["error"]["code"] == "request_failed"
    assert [g.was_aborted for g in made.link.generations] == [True, False, True]


def test_a_prompt_that_takes_long_to_encode_holds_up_nobody(desk):
    """API-08: a long text is encoded in a thread of its own."""

    class Slow(PiecesFront):
        def text_request(self, prompt, **options):
            if len(prompt) > 10_000:
                assert go.wait(10)
            return super().text_request(prompt, **options)

    go = threading.Event()
    made = desk(front=Slow(TWO), max_context=1 << 20)

    async def run():
        slow = asyncio.ensure_future(made.asked(TEXT, prompt="a" * 20_000))
        quick = await made.asked(TEXT, prompt="a")
        assert not slow.done()
        go.set()
        return quick.status, (await slow).status

    assert asyncio.run(run()) == (200, 200)


# API-10


@pytest.mark.parametrize(
    "prompt", [[[-1]], [[1.5]], [["a"]], [1, "a"], [[1], "a"], [True], {"a": 1}]
)
def test_ids_that_are_no_ids_are_a_400(desk, prompt):
    """API-10"""
    made = desk()
    refused(made.ask(TEXT, prompt=prompt), "invalid_value")
    assert made.link.generations == []


def test_ids_behind_the_tokenizer_have_no_text(desk):
    """API-10: the embedding may be longer than the vocabulary."""
    assert desk([[0, 99, 1]]).whole(TEXT, prompt=[[99]])[0] == {0: "The quick br"}
    assert desk().ask("/detokenize", tokens=[0, 99]).json() == {"prompt": "The qu"}


# API-11


def test_no_character_of_the_text_breaks_a_line_of_the_stream(desk):
    """API-11"""
    text = "a\u2705b\u0085c\u2028d\u2029e\nf\r\ng\u000bh\u001ci"
    made = desk([[0]], front=PiecesFront([text.encode()]))
    for path, body in ((TEXT, {"prompt": "a"}), (CHAT, {"messages": USER})):
        told = made.ask(path, stream=True, **body)
        assert told.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert told.body.decode().splitlines() == told.body.decode().split("\n")[:-1]
        assert made.heard(path, **body).texts == {0: text}
        assert made.whole(path, **body)[0] == {0: text}


# API-12


def test_each_model_answers_through_its_own_front_alone(desk):
    """API-12: two services in one process give the same as each alone."""

    class Prefixed(PiecesFront):
        def chat_request(self, messages, **options):
            return super().chat_request([{"content": "SYSTEM"}, *messages], **options)

    one, two = desk(), desk(front=Prefixed([b"x"]))
    for _ in range(2):
        one.chat("abc")
        two.chat("abc")
    sizes = [[len(g.request.arrays["ids"]) for g in d.link.generations] for d in (one, two)]
    assert sizes == [[3, 3], [9, 9]]


# DT-01 to DT-06, over HTTP


def every_way(ids):
    """All ways to cut a short list of ids into groups."""
    for size in range(len(ids)):
        for cuts in itertools.combinations(range(1, len(ids)), size):
            marks = [0, *cuts, len(ids)]
            yield [ids[a:b] for a, b in itertools.pairwise(marks)]


@pytest.mark.parametrize(
    ("stops", "text", "stop", "kept"),
    [
        (["own fox"], "The quick br", "own fox", 4),
        (["The qu"], "", "The qu", 1),
        (["ick", "ick br"], "The qu", "ick", 2),
        (["zzzz"], "The quick brown fox runs", None, 5),
        ("uns", "The quick brown fox r", "uns", 5),
    ],
)
def test_stops_hold_whatever_the_grouping_of_tokens(desk, stops, text, stop, kept):
    """DT-01, DT-02: streamed and not; the usage counts the tokens up to the stop."""
    finish = "length" if stop is None else "stop"
    for groups in every_way([0, 1, 2, 3, 4]):
        made = desk(groups)
        assert made.whole(TEXT, prompt="a", stop=stops) == ({0: text}, {0: finish}, {0: stop})
        options = {"stream_options": {"include_usage": True}}
        heard = made.heard(TEXT, prompt="a", stop=stops, **options)
        assert (heard.texts, heard.finishes, heard.stops) == ({0: text}, {0: finish}, {0: stop})
        assert heard.last["usage"]["completion_tokens"] == kept
        last = made.link.generations[-1]
        assert last.stopped_after == (kept if stop and last.stopped_after is not None else None)


def test_a_stop_ends_the_request_in_the_engine(desk):
    """DT-01"""
    made = desk(lambda _: [Arrived(tokens=[0, 1, 2, 3]), 60.0])
    assert made.whole(TEXT, prompt="a", stop="own fox")[0] == {0: "The quick br"}
    assert made.link.generations[0].stopped_after == 4


@pytest.mark.parametrize(("included", "text"), [(False, "The qu"), (True, "The quown")])
def test_tokens_behind_a_stop_id_are_dropped(desk, included, text):
    """DT-03: the step returns [5, 7 (stop), 9]."""
    made = desk(lambda _: [Arrived(tokens=[0, 2, 4]), 60.0])
    options = {"stop_token_ids": [2], "include_stop_str_in_output": included}
    assert made.whole(TEXT, prompt="a", **options) == ({0: text}, {0: "stop"}, {0: 2})
    assert made.heard(TEXT, prompt="a", **options).texts == {0: text}
    assert made.link.generations[0].stopped_after == 2


def test_an_end_id_of_the_model_is_no_stop_reason_and_can_be_ignored(desk):
    """DT-03"""
    made = desk([[0]], reason="stop")
    assert made.whole(TEXT, prompt="a") == ({0: "The qu"}, {0: "stop"}, {0: None})
    made.whole(TEXT, prompt="a", ignore_eos=True)
    request = made.link.generations[-1].request
    assert (request.ignore_stop_ids, request.stop_ids) == (True, frozenset())


CHARACTERS = "\U0001f600 삼 ď \U0001f468\u200d\U0001f469\u200d\U0001f467"
BYTES = PiecesFront([bytes([i]) for i in range(256)])


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_characters_of_several_tokens_come_out_whole(desk, cut):
    """DT-04: one byte a token; the generation may end inside a character."""
    data = CHARACTERS.encode()
    ids = list(data[: len(data) - cut])
    made = desk([[i] for i in ids], front=BYTES)
    text = bytes(ids).decode(errors="replace")
    assert made.heard(TEXT, prompt="a").texts == {0: text}
    assert made.whole(TEXT, prompt="a")[0] == {0: text}
    assert text.count("\ufffd") == (1 if cut else 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.text(max_size=12),
    stops=st.lists(st.text(min_size=1, max_size=3), max_size=2),
    cuts=st.lists(st.integers(0, 48), max_size=8),
)
def test_the_text_is_the_same_streamed_or_not_in_any_groups(desk, text, stops, cuts):
    """DT-01, DT-04: any text, any stops, any grouping."""
    ids = list(text.encode())
    marks = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    groups = [ids[a:b] for a, b in itertools.pairwise(marks) if a < b]
    alone = TextStream(BYTES.decode, stops=stops)
    expected = alone.push(ids).text + alone.finish().text
    made = desk(groups, front=BYTES)
    assert made.heard(TEXT, prompt="a", stop=stops).texts == {0: expected}
    assert made.whole(TEXT, prompt="a", stop=stops)[0] == {0: expected}


def test_a_stop_with_a_leading_space_matches_the_text(desk):
    """DT-06"""
    stops = [" any", "atoms with 11 protons", "ionized"]
    pieces = [b"Is there", b" any", b"one"]
    texts, _, stopped = desk([[0], [1], [2]], front=PiecesFront(pieces)).whole(
        TEXT, prompt="a", stop=stops
    )
    assert (texts, stopped) == ({0: "Is there"}, {0: " any"})
