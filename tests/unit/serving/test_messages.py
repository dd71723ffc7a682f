"""Messages: what fits comes back as it was; anything else is a FrameError, and nothing else."""

import random

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mstar_core.config.sampling import SamplingSettings
from mstar_core.serving import codec
from mstar_core.serving.messages import (
    DTYPES,
    Abort,
    Array,
    Cancel,
    Cancelled,
    End,
    FrameError,
    FromApi,
    FromEngine,
    Items,
    Sampling,
    Scores,
    Stats,
    Stop,
    Submit,
    Tokens,
    decoded,
)

NESTED = b"\x91" * 200_000
SAMPLING = Sampling(*attrs.astuple(SamplingSettings(seed=3, logit_bias={5: 1.5}, logprobs=2)))
SUBMIT = Submit(
    stream=1,
    group="0/req-1",
    id="a",
    arrays=(Array("ids", "int64", (2,), bytes(16)), Array("mel", "float32", (3, 4), 64)),
    max_new_tokens=16,
    stop_ids=[256],
    ignore_stop_ids=False,
    gated=False,
    priority=0,
    deadline_s=None,
    sampling=SAMPLING,
    settings={"prefix": {"salt": "x"}},
)
END = End(2, "error", 1, 0, 0, 0, {"where": "ids", "got": "1", "want": "", "fix": ""}, "overloaded")
STOPPED = End(1, "stop", 3, 2, stop_logprob=-0.25, reported={"silence": 0.5})
TOKENS = Tokens([1, 2], [2, 1], [7, 8, 9], [Scores(2, [-0.5], [[(9, -0.5)]])], [END, STOPPED])
FROM_API = [SUBMIT, Stop(1, 3), Abort(1), Cancel(9, "0/req-1")]
ITEMS = Items(2, (Array("sound", "float32", (2, 3), bytes(24)),))
FROM_ENGINE = [TOKENS, ITEMS, Cancelled(9, 2), Stats({"running": 1, "held": {"kv pages": (3, 4)}})]


@pytest.mark.parametrize("message", FROM_API, ids=lambda m: type(m).__name__)
def test_what_an_api_process_says_comes_back_as_it_was(message):
    assert decoded(codec.pack(message), FromApi) == message


@pytest.mark.parametrize("message", FROM_ENGINE[:3], ids=lambda m: type(m).__name__)
def test_what_the_engine_process_says_comes_back_as_it_was(message):
    assert decoded(codec.pack(message), FromEngine) == message


def test_sampling_has_the_fields_of_the_settings_that_it_carries():
    assert Sampling.__struct_fields__ == tuple(f.name for f in attrs.fields(SamplingSettings))


@pytest.mark.parametrize(
    "bad",
    [
        ("ids", "int64", (1,), None),
        ("ids", "object", (1,), b"12345678"),
        ("ids", "int64", (2,), b"12345678"),
        ("ids", "int64", (-1,), b""),
        ("ids", "int64", (), b""),
        ("ids", "int64", (1,), -8),
        ("ids", "int64", (1,) * 9, b"12345678"),
        ("ids", "int64", (1 << 63,), 0),
        ("", "int64", (1,), b"12345678"),
    ],
    ids=str,
)
def test_an_array_whose_parts_do_not_fit_is_refused(bad):
    with pytest.raises(FrameError):
        decoded(codec.pack(bad), Array)


@pytest.mark.parametrize(
    ("streams", "counts", "tokens", "scores"),
    [
        ([1], [], [], []),
        ([1], [2], [7], []),
        ([1, (1 << 64) - 1], [1, 0], [7], []),
        ([1], [-1], [], []),
        ([1], [1], [-7], []),
        ([1], [1], [7], [(1, [-0.5, -0.5], [[], []])]),
        ([1], [1], [7], [(1, [-0.5], [])]),
        ([1], [1], [7], [(2, [-0.5], [[]])]),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_together_are_refused(streams, counts, tokens, scores):
    with pytest.raises(FrameError):
        decoded(codec.pack(("Tokens", streams, counts, tokens, scores, [])), FromEngine)


@pytest.mark.parametrize(
    "arrays",
    [[], [("sound", "float32", (2,), 64)], [("sound", "float32", (2,), bytes(4))], [[]]],
    ids=str,
)
def test_items_that_are_not_whole_in_their_message_are_refused(arrays):
    with pytest.raises(FrameError):
        decoded(codec.pack(("Items", 1, arrays)), FromEngine)


def test_a_message_of_the_other_direction_is_refused():
    for message in FROM_API:
        with pytest.raises(FrameError):
            decoded(codec.pack(message), FromEngine)
    for message in FROM_ENGINE:
        with pytest.raises(FrameError):
            decoded(codec.pack(message), FromApi)


@settings(max_examples=150)
@example(NESTED, True)
@example(b"", True)
@given(st.binary(max_size=200), st.booleans())
def test_bytes_are_a_message_or_a_frame_error(data, from_api):
    try:
        decoded(data, FromApi if from_api else FromEngine)
    except FrameError:
        return


@settings(max_examples=200)
@given(st.sampled_from(FROM_API + FROM_ENGINE), st.integers(0, 2**32), st.integers(1, 4))
def test_a_message_with_bytes_changed_is_a_message_or_a_frame_error(message, seed, changes):
    data, draw = bytearray(codec.pack(message)), random.Random(seed)
    for _ in range(changes):
        data[draw.randrange(len(data))] = draw.randrange(256)
    try:
        decoded(data, FromApi if message in FROM_API else FromEngine)
    except FrameError:
        return


def test_the_element_types_have_the_sizes_that_numpy_gives_them():
    numpy = pytest.importorskip("numpy")
    assert {name: numpy.dtype(name).itemsize for name in DTYPES} == DTYPES
