"""What the fields of a text request ask of the engine, and what its answer says."""

import math

import pytest

from mstar_core.serving.link import Arrived
from mstar_core.testing.scripted_link import PiecesFront, end, said

PARTS = ("prepare_ms", "queue_ms", "prefill_ms", "decode_ms")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def asked(made):
    """The last request that the engine got."""
    return made.link.generations[-1].request


def code_of(told):
    return told.status, told.json()["error"]["code"], told.json()["error"]["param"]


def test_every_sampling_field_reaches_the_engine(desk):
    made = desk()
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "repetition_penalty": 1.5,
        "seed": -3,
    }
    for path, base in ((TEXT, {"prompt": "a"}), (CHAT, {"messages": USER})):
        made.ask(path, **base, **given, logit_bias={"3": 1.5}, priority=2, max_tokens=9)
        request, sampling = asked(made), asked(made).sampling
        assert {name: getattr(sampling, name) for name in given} == given
        assert (sampling.logit_bias, request.priority) == ({3: 1.5}, 2)
        assert request.max_new_tokens == 9


def test_what_is_left_open_is_the_checkpoints_and_then_openais(desk):
    class Told(PiecesFront):
        def default_sampling(self):
            return {"top_k": 20}

    made = desk(front=Told([b"a"]))
    made.complete(seed=None, temperature=None)
    assert (asked(made).sampling.temperature, asked(made).sampling.top_k) == (1.0, 20)
    made.complete(temperature=0, top_k=0)
    assert (asked(made).sampling.temperature, asked(made).sampling.top_k) == (0, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("temperature", True),
        ("top_p", 0),
        ("top_k", -2),
        ("presence_penalty", 3),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"1": 101}),
        ("logit_bias", {str(i): 1 for i in range(301)}),
        ("stop", ["a"] * 17),
        ("stop", "a" * 257),
        ("stop", [""]),
        ("stop_token_ids", [-1]),
        ("n", 0),
        ("n", 129),
        ("seed", 1 << 63),
        ("priority", 101),
        ("logprobs", 21),
        ("metadata", {"a": 1}),
        ("stream", "yes"),
    ],
)
def test_a_value_out_of_bounds_is_a_400_that_names_the_field(desk, field, value):
    status, code, param = code_of(desk().complete(**{field: value}))
    assert (status, code) == (400, "invalid_value")
    assert param.startswith(field)


def test_limits_of_the_server_are_400s_with_the_limit(desk):
    made = desk(limits={"max_choices": 2, "max_text_chars": 50, "max_new_tokens": 9})
    assert code_of(made.complete(n=3)) == (400, "limit_exceeded", "n")
    assert code_of(made.complete("a" * 51))[1] == "limit_exceeded"
    assert code_of(made.chat("a" * 51))[1] == "limit_exceeded"
    assert made.chat("삼" * 30).status == 200
    assert code_of(made.complete(max_tokens=10))[1:] == ("limit_exceeded", "max_tokens")
    assert made.complete().status == 200
    assert asked(made).max_new_tokens == 9
    few = desk(limits={"max_messages": 2, "max_prompt_tokens": 3})
    assert code_of(few.ask(CHAT, messages=USER * 3))[1:] == ("limit_exceeded", "messages")
    assert code_of(few.complete("abcd"))[1:] == ("limit_exceeded", "prompt")
    many = desk().ask(TEXT, prompt=["a"] * 65, n=2)
    assert code_of(many)[1:] == ("limit_exceeded", "prompt")


def test_another_model_is_a_404_that_names_the_one_there_is(desk):
    for path, base in ((TEXT, {"prompt": "a"}), (CHAT, {"messages": USER})):
        told = desk().ask(path, **base, model="gpt-9")
        assert code_of(told) == (404, "model_not_found", "model")
        assert "tiny" in told.json()["error"]["message"]
        assert desk().ask(path, **base, model="tiny").status == 200


def test_choices_have_seeds_of_their_own(desk):
    """SM-12"""
    made = desk()
    told = made.complete(n=3, seed=(1 << 63) - 2)
    assert [choice["index"] for choice in told.json()["choices"]] == [0, 1, 2]
    requests = [g.request for g in made.link.generations]
    assert [r.sampling.seed for r in requests] == [(1 << 63) - 2, (1 << 63) - 1, -(1 << 63)]
    assert len({r.id for r in requests}) == 3
    assert told.json()["usage"]["prompt_tokens"] == 2
    assert told.json()["usage"]["completion_tokens"] == 15


def test_no_other_choice_is_handed_in_before_the_first_has_begun(desk):
    began, before = [], []

    def steps(request):
        yield 0.01
        began.append(request.id)
        yield from said([0])

    def script(request):
        before.append(len(began))
        return steps(request)

    assert desk(script).complete(n=4).status == 200
    assert before[0] == 0
    assert min(before[1:]) >= 1


@pytest.mark.parametrize("prompt", [["a", "bc"], [[7], [7, 8]]])
def test_several_prompts_are_answered_in_order(desk, prompt):
    made = desk(lambda request: said([0] * len(request.arrays["ids"])))
    texts, _, _ = made.whole(TEXT, prompt=prompt, n=2)
    assert texts == {0: "The qu", 1: "The qu", 2: "The quThe qu", 3: "The quThe qu"}
    assert made.heard(TEXT, prompt=prompt, n=2).texts == texts


def test_echo_gives_the_prompt_in_front(desk):
    made = desk([[0], [1]])
    for prompt, text in (("say: ", "say: The quick br"), ([4, 0], " runsThe quThe quick br")):
        assert made.whole(TEXT, prompt=prompt, echo=True)[0] == {0: text}
        assert made.heard(TEXT, prompt=prompt, echo=True).texts == {0: text}
    assert code_of(made.complete(echo=True, logprobs=0)) == (400, "unsupported_field", "echo")


def test_usage_is_the_last_event_where_it_is_asked_for(desk):
    ended = end("length", 2, cached_tokens=1)
    made = desk(lambda _: [Arrived(tokens=[0, 1]), Arrived(ended=ended)])
    usage = {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert made.chat().json()["usage"] == usage
    heard = made.heard(CHAT, messages=USER, stream_options={"include_usage": True})
    assert heard.last == {"usage": usage}
    assert made.heard(CHAT, messages=USER).last == {}
    more = {"include_usage": True, "continuous_usage_stats": True}
    assert code_of(made.chat(stream=True, stream_options=more))[1] == "unsupported_field"


def test_timings_add_up(desk):
    ended = Arrived(ended=end("length", 2, queued_s=0.005))
    made = desk(lambda _: [0.02, Arrived(tokens=[0]), 0.03, Arrived(tokens=[1]), ended])
    told = made.chat(timings=True).json()
    streamed = made.heard(CHAT, messages=USER, timings=True).last
    for timings in (told["timings"], streamed["timings"]):
        parts = [timings[name] for name in PARTS]
        assert math.isclose(sum(parts), timings["total_ms"], rel_tol=1e-9)
        assert parts[1] == 5
        assert parts[2] >= 14
        assert parts[3] >= 29
    assert "timings" not in made.chat().json()


SPLIT = PiecesFront([b"\xe2", b"\x9c", b"\x85", b"ab"])


def scored(_):
    tops = [((0, -0.1), (3, -2.0)), ((1, -0.2),), ((2, -math.inf),)]
    first = Arrived(tokens=[0, 1], logprobs=[-0.1, -0.2], tops=tops[:2])
    second = Arrived(tokens=[2], logprobs=[-math.inf], tops=tops[2:])
    return [first, second, Arrived(ended=end("length", 3))]


def test_logprobs_have_the_bytes_of_tokens_that_are_parts_of_characters(desk):
    """DT-04, SM-09: what is impossible has a number too."""
    made = desk(scored, front=SPLIT)
    choice = made.chat(logprobs=True, top_logprobs=2).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert choice["message"]["content"] == "\u2705"
    assert bytes(b for entry in content for b in entry["bytes"]).decode() == "\u2705"
    assert [entry["logprob"] for entry in content] == [-0.1, -0.2, -9999.0]
    assert [entry["token"] for entry in content] == ["\ufffd"] * 3
    assert content[0]["top_logprobs"][1] == {"token": "ab", "logprob": -2.0, "bytes": [97, 98]}
    heard = made.heard(CHAT, messages=USER, logprobs=True, top_logprobs=2)
    assert [e for s in heard.scores[0] if s for e in s["content"]] == content
    assert asked(made).sampling.logprobs == 2
    assert code_of(made.chat(top_logprobs=2))[1:] == ("invalid_value", "top_logprobs")
    assert made.chat().json()["choices"][0]["logprobs"] is None


def test_logprobs_of_completions_are_columns(desk):
    made = desk(scored, front=SPLIT)
    columns = made.complete(logprobs=2).json()["choices"][0]["logprobs"]
    assert columns["token_logprobs"] == [-0.1, -0.2, -9999.0]
    assert columns["tokens"] == ["\ufffd"] * 3
    assert columns["text_offset"] == [0, 1, 2]
    assert columns["top_logprobs"][0] == {"\ufffd": -0.1, "ab": -2.0}
    heard = made.heard(TEXT, prompt="a", logprobs=2)
    joined = {name: [x for s in heard.scores[0] if s for x in s[name]] for name in columns}
    assert joined == columns


def test_tokens_behind_a_stop_string_have_no_logprobs(desk):
    tokens = Arrived(tokens=[3, 3, 3], logprobs=[-1.0] * 3, tops=[()] * 3)
    made = desk(lambda _: [tokens, 60.0], front=SPLIT)
    columns = made.complete(logprobs=0, stop="ba").json()["choices"][0]["logprobs"]
    assert columns["tokens"] == ["ab", "ab"]


def test_a_stream_says_the_same_as_a_body_about_itself(desk):
    made = desk()
    body = made.chat().json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert body["id"].startswith("chatcmpl-")
    told = made.ask(CHAT, [("x-request-id", "my-1")], messages=USER, stream=True)
    assert b'"id":"chatcmpl-my-1"' in told.body
    assert told.headers["cache-control"] == "no-cache"
    assert body["system_fingerprint"].encode() in told.body


def test_texts_and_ids_are_turned_into_each_other(desk):
    made = desk()
    told = made.ask("/tokenize", prompt="abc").json()
    assert told == {"tokens": [1, 1, 1], "count": 3, "max_model_len": 4096}
    assert made.ask("/tokenize", messages=USER).json()["count"] == 2
    assert made.ask("/detokenize", tokens=[0, 1]).json() == {"prompt": "The quick br"}
    assert code_of(made.ask("/tokenize"))[1] == "invalid_value"
    assert code_of(made.ask("/tokenize", prompt="a", messages=USER))[1] == "invalid_value"
    assert code_of(made.ask("/tokenize", prompt="a", model="b"))[1] == "model_not_found"
    assert code_of(made.ask("/detokenize", tokens=[-1]))[1] == "invalid_value"


def test_long_texts_are_encoded_beside_the_event_loop(desk):
    made = desk(max_context=100_000)
    assert made.complete("a" * 50_000).status == 200
    assert made.ask("/tokenize", prompt="a" * 50_000).json()["count"] == 50_000
