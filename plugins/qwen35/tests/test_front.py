"""Prompts and chats to token ids, token ids to text."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from mstar_qwen35.config import read_config
from mstar_qwen35.front import Qwen35Front, tokenizer_size

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import CheckpointError, RequestError
from mstar_core.model.hub import resolve_checkpoint


@pytest.fixture
def front(tiny):
    return Qwen35Front(tiny, read_config(tiny))


@pytest.fixture(scope="session")
def chat_front(chat_folder):
    return Qwen35Front(chat_folder, read_config(chat_folder))


def user(content):
    return [{"role": "user", "content": content}]


@pytest.mark.shared
def test_twenty_chats_render_and_encode_as_transformers_does(shared, chat_front):
    golden = json.loads((shared / "chat" / "golden.json").read_text())
    assert len(golden["conversations"]) == 20
    for case in golden["conversations"]:
        options = dict(case["kwargs"])
        text = chat_front.render(
            case["messages"],
            think=options.pop("enable_thinking", None),
            tools=options.pop("tools", None),
            answer=options.pop("add_generation_prompt"),
        )
        assert not options
        assert text == case["text"]
        assert chat_front.tokenizer.encode(text, add_special_tokens=False) == case["ids"]


@pytest.mark.shared
def test_the_request_of_a_chat_holds_the_golden_ids(shared, chat_front):
    case = json.loads((shared / "chat" / "golden.json").read_text())["conversations"][1]
    request = chat_front.chat_request(case["messages"], think=True, max_new_tokens=3)
    assert request.arrays["ids"].tolist() == case["ids"]
    assert request.arrays["ids"].dtype == np.int64
    assert request.max_new_tokens == 3
    assert request.stop_ids == {500, 502}


@pytest.mark.shared
def test_chats_that_the_template_refuses_are_request_errors(shared, chat_front):
    refused = json.loads((shared / "chat" / "golden.json").read_text())["refused"]
    assert len(refused) == 4
    for messages in refused:
        with pytest.raises(RequestError) as caught:
            chat_front.chat_request(messages)
        assert caught.value.where == "messages"


def test_thinking_is_opened_closed_or_left_to_the_template(front):
    opened, closed = "<think>\n", "<think>\n\n</think>\n\n"
    assert front.render(user("hi"), think=True).endswith("assistant\n" + opened)
    assert front.render(user("hi"), think=False).endswith("assistant\n" + closed)
    assert front.render(user("hi")).endswith("assistant\n" + closed)


def test_stop_ids_are_the_tokenizers_and_the_configurations(front):
    """QW-07"""
    vocab = front.tokenizer.get_vocab()
    assert front.stop_ids == {vocab["<|im_end|>"], vocab["<|endoftext|>"]}
    assert front.text_request("hi").stop_ids == front.stop_ids


def test_text_comes_back_whole_and_thinking_tags_stay(front):
    for text in ("plain", "Grüße 日本語 👩‍👩‍👧", "a\n\tb", "<think>\nhm\n</think>\n\nyes"):
        assert front.decode(front.text_request(text).arrays["ids"].tolist()) == text
    assert front.decode(front.text_request("<|im_start|>x<|im_end|>").arrays["ids"].tolist()) == "x"


@pytest.mark.parametrize("arguments", ["{nope", "[1]", 5])
def test_arguments_that_are_no_object_are_refused_where_they_are(front, arguments):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*user("hi"), {"role": "assistant", "content": None, "tool_calls": [call]}]
    with pytest.raises(RequestError) as caught:
        front.chat_request(messages)
    assert caught.value.where == "messages[1].tool_calls.function.arguments"
    assert caught.value.got == arguments


@pytest.mark.parametrize("kind", ["image", "image_url", "video"])
def test_an_image_is_refused_in_words(front, kind):
    with pytest.raises(RequestError, match="images are not served yet") as caught:
        front.chat_request(user([{"type": "text", "text": "look"}, {"type": kind}]))
    assert caught.value.where == "messages[0].content"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        5,
        ["hi"],
        [{"content": "no role"}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "system", "content": "alone"}],
        [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}],
    ],
)
def test_a_chat_of_the_wrong_shape_is_a_request_error(front, messages):
    with pytest.raises(RequestError) as caught:
        front.chat_request(messages)
    assert caught.value.where.startswith("messages")


@pytest.mark.parametrize(
    ("ids", "where"),
    [
        ([], "prompt"),
        ([5, 1024], "prompt, token 1"),
        ([-1], "prompt, token 0"),
    ],
)
def test_a_prompt_that_cannot_be_served_says_where_what_and_how(front, ids, where):
    with pytest.raises(RequestError) as caught:
        front.ids_request(ids)
    assert caught.value.where == where
    assert caught.value.want
    assert caught.value.fix


@pytest.mark.parametrize(
    ("ids", "where", "got"),
    [
        (None, "prompt", "NoneType"),
        ("ab", "prompt", "str"),
        ({1: 2}, "prompt", "dict"),
        (np.zeros((2, 2), np.int64), "prompt", "ndarray of shape [2, 2]"),
        ([3, 1.5], "prompt, token 1", "1.5"),
        ([True], "prompt, token 0", "True"),
        (np.array([1.0]), "prompt, token 0", "1.0"),
        (["a"], "prompt, token 0", "'a'"),
        ([2**63], "prompt, token 0", str(2**63)),
    ],
)
def test_what_is_no_list_of_ids_is_refused_and_nothing_is_rounded(front, ids, where, got):
    with pytest.raises(RequestError) as caught:
        front.ids_request(ids)
    facts = caught.value.facts()
    assert (facts["where"], facts["got"]) == (where, got)
    assert "token id" in facts["want"]
    assert facts["fix"]


def test_ids_of_numpy_are_taken(front):
    for ids in (np.array([3, 5]), [np.int64(3), np.uint8(5)], (3, 5)):
        assert front.ids_request(ids).arrays["ids"].tolist() == [3, 5]


@pytest.mark.parametrize(
    ("text", "got"),
    [(None, "NoneType"), (5, "int"), (b"hi", "bytes"), ("a\udcff", r"'\udcff' at character 1")],
)
def test_what_is_no_text_is_refused(front, text, got):
    with pytest.raises(RequestError) as caught:
        front.text_request(text)
    facts = caught.value.facts()
    assert (facts["where"], facts["got"]) == ("prompt", got)
    assert facts["want"].startswith("text")
    assert facts["fix"]


def test_the_length_of_a_text_is_left_to_the_door_and_no_library_warns_of_it(front, caplog):
    """API-01: the door knows the context that there is, and says all three numbers."""
    assert len(front.text_request("hello you " * 2000).arrays["ids"]) > 4096
    assert not caplog.records


def test_an_empty_text_is_refused(front):
    with pytest.raises(RequestError, match="no tokens"):
        front.text_request("")


def test_the_generation_config_gives_the_sampling_that_a_request_does_not(front, folder, tiny):
    assert front.default_sampling() == {}
    at = folder()
    settings = {"do_sample": True, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    (at / "generation_config.json").write_text(json.dumps(settings))
    sampled = Qwen35Front(at, read_config(at))
    want = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    assert sampled.default_sampling() == want
    assert sampled.ids_request([1]).sampling == SamplingSettings(**want)
    chosen = SamplingSettings(temperature=0.5)
    assert sampled.ids_request([1], sampling=chosen).sampling is chosen
    settings["do_sample"] = False
    (at / "generation_config.json").write_text(json.dumps(settings))
    assert sampled.default_sampling() == {"repetition_penalty": 1.05}


def test_a_setting_of_the_generation_config_that_cannot_be_used_names_the_file(folder):
    at = folder()
    file = at / "generation_config.json"
    file.write_text(json.dumps({"do_sample": True, "temperature": "hot"}))
    front = Qwen35Front(at, read_config(at))
    with pytest.raises(CheckpointError) as caught:
        front.ids_request([1])
    facts = caught.value.facts()
    assert (facts["where"], facts["got"]) == (f"{file}: temperature", "'hot'")
    assert "finite number" in facts["want"]
    assert "mend the file" in facts["fix"]
    assert front.ids_request([1], sampling=SamplingSettings()).arrays["ids"].tolist() == [1]


def test_a_tokenizer_that_is_half_there_names_the_missing_file(folder, tiny):
    at = folder()
    shutil.copy(tiny / "tokenizer_config.json", at)
    front = Qwen35Front(at, read_config(at))
    with pytest.raises(CheckpointError) as caught:
        front.text_request("hi")
    assert caught.value.where == str(at / "tokenizer.json")
    assert caught.value.fix


def test_a_folder_without_a_tokenizer_still_takes_ids(folder):
    at = folder()
    front = Qwen35Front(at, read_config(at))
    assert tokenizer_size(at) is None
    assert front.ids_request([3]).stop_ids == {1000}
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        front.text_request("hi")


@pytest.mark.parametrize("text", ["", "{", '{"model": 3}'])
def test_a_broken_tokenizer_is_a_checkpoint_error(folder, text):
    at = folder()
    (at / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        tokenizer_size(at)
    with pytest.raises(CheckpointError, match="tokenizer"):
        Qwen35Front(at, read_config(at)).text_request("hi")


def test_ids_behind_the_tokenizers_last_are_known_to_be_unused(tiny, front):
    assert tokenizer_size(tiny) == len(front.tokenizer) == 1009 < front.config.vocab_size


def test_the_plugin_module_imports_neither_torch_nor_transformers():
    code = (
        "import sys, mstar_qwen35.plugin, mstar_qwen35.front, mstar_qwen35.config;"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_shipped_configurations_name_the_checkpoint_inside_the_package(tiny):
    assert resolve_checkpoint("package:mstar_qwen35/tiny", offline=True) == tiny
    for name in ("package:mstar_qwen35/nothing", "package:no_such_package/tiny", "package:"):
        with pytest.raises(CheckpointError) as caught:
            resolve_checkpoint(name, offline=True)
        assert caught.value.where == name
