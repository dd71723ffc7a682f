"""The built-in echo model: its answers, its stream, its faults, and the contracts of the kit."""

import subprocess
import sys
import time

import numpy as np
import pytest

from mstar_core.echo.faults import EXIT_CODE, NO_BYTE, Order, ScriptedFault, order_of
from mstar_core.echo.front import CONTEXT, END, EchoFront
from mstar_core.engine import Engine
from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.opening import open_core
from mstar_core.engine.texts import stream_text
from mstar_core.errors import ConfigError, RequestError
from mstar_core.testing import ModelContract, PluginContract
from mstar_core.testing.cores import run_all

TEXT = "Grüße, 世界!"
BYTES = list(TEXT.encode())
FAULTS = ("model.options.faults=true",)


def answer(prompt, count):
    """The definition: the prompt, an end, the prompt, an end …"""
    return [(*prompt, END)[i % (len(prompt) + 1)] for i in range(count)]


class TestEchoKeepsTheContract(ModelContract):
    config = "echo"
    sets = ("device=cpu", "engine.max_context=256", "nodes.mouth.resources.kv.page_tokens=8")
    poisoned = ("kv",)

    def requests(self, front):
        texts = ("a", "bcd", TEXT, "e f" * 30)
        return [
            front.text_request(text, max_new_tokens=9 + 5 * i, ignore_stop_ids=i % 2 == 1)
            for i, text in enumerate(texts)
        ]

    def oracle(self, request):
        ids = answer(request.arrays["ids"].tolist(), request.max_new_tokens)
        cuts = END in ids and not request.ignore_stop_ids
        return ids[: ids.index(END)] if cuts else ids


class TestThePlugin(PluginContract):
    name = "echo"
    config = "echo"


@pytest.fixture(params=[0, 1, 2], ids="in-flight-{}".format)
def core(request):
    sets = (*FAULTS, f"engine.in_flight={request.param}", "engine.max_rows=4")
    return open_core("echo", sets, device=CpuDevice(Lag(3)))[0]


front = EchoFront(faults=True)


def finish(core, *texts, new=40, **more):
    given = [front.text_request(text, max_new_tokens=new, **more) for text in texts]
    found = run_all(core, given)
    return [found[request.id] for request in given]


def test_the_answer_is_the_prompt_and_ends_by_itself(core):
    whole, cut = finish(core, TEXT)[0], finish(core, TEXT, new=5)[0]
    assert (whole.ids, whole.finish_reason) == (BYTES, "stop")
    assert (cut.ids, cut.finish_reason) == (BYTES[:5], "length")


def test_without_its_end_the_answer_repeats_the_prompt(core):
    (found,) = finish(core, "ab", new=8, ignore_stop_ids=True)
    assert (found.ids, found.finish_reason) == ([*b"ab", END, *b"ab", END, *b"ab"], "length")
    assert front.decode(found.ids) == "ababab"


@pytest.mark.parametrize("name", ["echo", "echo.yaml"])
def test_an_engine_opens_by_the_name_of_the_config_and_streams_whole_characters(name):
    with Engine.open(name) as engine:
        request = engine.front.text_request(TEXT, max_new_tokens=99)
        pieces = [delta.text for delta in stream_text(engine, request)]
        assert engine.report.max_context == CONTEXT
    assert "".join(pieces) == TEXT
    assert not any("�" in piece for piece in pieces)


def test_a_chat_is_answered_with_its_last_user_turn():
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    chat = [{"role": "user", "content": "a"}, {"role": "user", "content": parts}]
    request = front.chat_request([*chat, {"role": "assistant", "content": "d"}])
    assert request.arrays["ids"].tolist() == list(b"bc")
    assert front.capabilities() == {"text", "chat", "audio", "speech"}


@pytest.mark.parametrize("ids", [[], "ab", [257], [-1], [1.5], [True], None])
def test_ids_that_are_no_prompt_are_refused(ids):
    with pytest.raises(RequestError):
        front.ids_request(ids)


@pytest.mark.parametrize(
    "chat", [[], None, [{"role": "system", "content": "a"}], [{"role": "user"}]]
)
def test_a_chat_without_a_user_is_refused(chat):
    with pytest.raises(RequestError):
        front.chat_request(chat)


def test_a_path_is_refused_since_there_is_no_checkpoint():
    with pytest.raises(ConfigError, match="no checkpoint"):
        open_core("echo", ("model.path=/tmp",), device=CpuDevice())


def test_the_voice_hears_what_is_said_in_order(core):
    heard = {}

    def listen(module, args, result):
        for token, _ in args[1]["said"].tolist():
            heard.setdefault(chr(token)[0].lower(), []).append(token)

    core.nodes["voice"].submodule.register_forward_hook(listen)
    found = finish(core, "aAaaAaAA", "BbbBbB", "cCcccCCC", new=8)
    for result, letter in zip(found, "abc", strict=True):
        said = result.ids if result.finish_reason == "stop" else result.ids[:-1]
        assert heard[letter] == said


def test_the_front_and_the_plugin_import_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import mstar_core.echo.plugin\n"
        "from mstar_core.echo.front import EchoFront\n"
        "print(EchoFront().decode(EchoFront().text_request('hé').arrays['ids'].tolist()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "hé\n"


# -- orders ----------------------------------------------------------------------------------


def test_an_order_is_a_kind_seconds_and_a_token():
    assert order_of("!delay=0.5@3 rest") == Order("delay", 3, 500_000)
    assert order_of("!raise") == Order("raise", -1, 0)
    assert order_of("say !raise") == order_of("! raise") == order_of("!Raise") == Order()
    with pytest.raises(RequestError, match="!oops"):
        order_of("!oops@3 rest")


def test_without_the_option_an_order_is_text():
    plain = EchoFront()
    core = open_core("echo", (), device=CpuDevice())[0]
    request = plain.text_request("!raise@1 hello", max_new_tokens=99)
    assert plain.decode(run_all(core, [request])[request.id].ids) == "!raise@1 hello"


@pytest.mark.parametrize("order", ["!raise@3", "!raise", "!hear", "!voice@2", "!oom@1"])
def test_an_order_to_raise_fails_its_request(core, order):
    (found,) = finish(core, f"{order} and so on")
    assert found.finish_reason == "error"
    given = 3 if order == "!raise@3" else 1 if order == "!oom@1" else None
    assert given is None or len(found.ids) == given
    (after,) = finish(core, TEXT)
    assert after.ids == BYTES


def test_a_row_that_is_not_finite_fails_at_its_token_and_its_neighbours_go_on(core):
    bad, good = finish(core, "!nan@2 and so on", TEXT)
    assert (bad.ids, bad.finish_reason) == (list(b"!n"), "error")
    assert "finite" in bad.error["got"]
    assert good.ids == BYTES


def test_garbage_is_no_text_and_the_front_survives_it(core):
    (found,) = finish(core, "!garbage and so on", new=6)
    assert found.ids == [255, NO_BYTE, 255, NO_BYTE, 255, NO_BYTE]
    assert front.decode(found.ids) == "���"


def test_a_delay_takes_its_time_at_its_token_or_at_each(core):
    begin = time.perf_counter()
    assert finish(core, "!delay=0.05@1 a", new=4)[0].finish_reason == "length"
    once = time.perf_counter() - begin
    finish(core, "!delay=0.05 a", new=8)
    each = time.perf_counter() - begin - once
    assert 0.05 <= once < each
    assert each >= 0.4


def test_an_order_can_break_the_front():
    with pytest.raises(ScriptedFault):
        front.text_request("!front")
    with pytest.raises(ScriptedFault):
        front.decode(list(b"!decode this"))
    assert EchoFront().decode(list(b"!decode this")) == "!decode this"


@pytest.mark.parametrize(("order", "code"), [("!exit@1", EXIT_CODE), ("!segv@1", -11)])
def test_an_order_can_end_the_process(order, code):
    lines = (
        "from mstar_core.engine import Engine\n"
        "engine = Engine.open('echo', ['model.options.faults=true'])\n"
        f"engine.run([engine.front.text_request({order!r})])"
    )
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, check=False)
    assert done.returncode == code


def test_an_order_survives_being_run_again_and_being_cut(core):
    request = front.text_request("!nan@3 and so on")
    again = {name: np.asarray(a) for name, a in request.arrays.items()}
    longer = core.pressure.run_again(again, [33, 110])
    assert longer["ids"].tolist()[-2:] == [33, 110]
    assert {len(longer[n]) for n in ("ids", "length", "order")} == {len(again["ids"]) + 2}
    assert longer["length"].tolist()[-1] == len(again["ids"])
    assert longer["heard"].tolist() == again["heard"].tolist()


def test_sound_is_answered_with_its_length_or_with_the_prompt():
    heard = front.audio_request(np.zeros(24_000, np.float32), 16_000, timestamps=True)
    assert bytes(heard.arrays["ids"].tolist()) == b"1.50 s of sound"
    assert heard.max_new_tokens == 16
    asked = front.audio_request(np.zeros(10, np.float32), 16_000, prompt="ab")
    assert asked.arrays["ids"].tolist() == list(b"ab")


def test_text_is_spoken_as_a_tone_per_byte_however_its_ids_are_cut():
    request = front.speech_request("hallo", voice="tone")
    ids = request.arrays["ids"].tolist()
    whole = front.sound([*ids, END], {})
    assert len(whole) == 5 * 240
    pieces = [front.sound(ids[:2], {}), front.sound([], {}), front.sound(ids[2:], {})]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert front.speech_request("hallo", speed=2).arrays["ids"].tolist() == list(b"hl")
    with pytest.raises(RequestError, match="voice"):
        front.speech_request("hallo", voice="alloy")
