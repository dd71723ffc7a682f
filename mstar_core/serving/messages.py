"""What an API process and the engine process say to each other: typed MessagePack, never code.

::

    API process → engine process     Submit, Stop, Abort, Cancel
    engine process → API process     Tokens, Items, Cancelled, Stats

Streams are numbers that the API process picks, one per request on its connection. A message that
is none of these, or whose parts do not fit together, ends the connection on which it came.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal

from mstar_core.serving import codec
from mstar_core.serving.codec import Meta, Struct
from mstar_core.text.stream import FinishReason

DTYPES = {
    **{"int8": 1, "int16": 2, "int32": 4, "int64": 8},
    **{"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8},
    **{"float16": 2, "float32": 4, "float64": 8},
}
"""Element types that cross, and their bytes."""

Dtype = Literal[
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Stream = Count
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=65536)]
Facts = dict[Name, Text]


class FrameError(ValueError):
    """Bytes that are no message. They end the connection on which they came."""


class Array(Struct, array_like=True):
    """An input of a request, or what came out of one."""

    name: Name
    dtype: Dtype
    shape: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=8)]
    data: bytes | Count
    """The elements, row by row; or where they begin in the connection's shared memory."""

    def __post_init__(self) -> None:
        if isinstance(self.data, bytes) and len(self.data) != self.nbytes:
            raise FrameError(f"{len(self.data)} bytes for {self.dtype} {list(self.shape)}")

    @property
    def nbytes(self) -> int:
        """The size of the elements."""
        return prod(self.shape) * DTYPES[self.dtype]


class Sampling(Struct, array_like=True):
    """``SamplingSettings``, field by field; its bounds are checked when it is built again."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    logit_bias: dict[int, float]
    logprobs: int | None


class Message(Struct, array_like=True, tag=True):
    """One frame."""


class Submit(Message):
    """A request."""

    stream: Stream
    group: Name
    """The HTTP request that it belongs to, and whose it is."""
    id: Name
    arrays: Annotated[tuple[Array, ...], Meta(max_length=64)]
    max_new_tokens: int
    stop_ids: list[int]
    ignore_stop_ids: bool
    gated: bool
    priority: int
    deadline_s: float | None
    sampling: Sampling
    settings: dict[str, Any]
    """Plain values; the resource that reads one checks it."""


class Stop(Message):
    """End a request after ``accepted`` of its tokens; one that is over is left alone."""

    stream: Stream
    accepted: Count


class Abort(Message):
    """End a request now; one that is over is left alone."""

    stream: Stream


class Cancel(Message):
    """End all requests of a group, on every connection. Answered by :class:`Cancelled`."""

    ask: Count
    group: Name


class Scores(Struct, array_like=True):
    """Log-probabilities of the tokens that a frame has of one stream."""

    stream: Stream
    logprobs: list[float]
    tops: list[list[tuple[int, float]]]
    """Per token its likeliest (id, logprob)."""

    def __post_init__(self) -> None:
        if len(self.logprobs) != len(self.tops):
            raise FrameError("logprobs and tops of different lengths")


class End(Struct, array_like=True):
    """How a stream ended; its last word, behind its tokens."""

    stream: Stream
    reason: FinishReason
    prompt_items: Count = 0
    generated: Count = 0
    cached_tokens: Count = 0
    preemptions: Count = 0
    error: Facts | None = None
    code: Name | None = None  # of serving.errors, where it was not the request's own fault
    queued_s: Annotated[float, Meta(ge=0)] | None = None
    stop_logprob: float | None = None
    reported: dict[Name, float | list[float]] | None = None


class Tokens(Message):
    """All that came of all streams since the last frame, in columns."""

    streams: list[Stream]
    counts: list[Count]
    """Tokens of each stream; they lie in ``tokens`` in the order of ``streams``."""
    tokens: list[Count]
    scores: list[Scores]
    """Of streams that asked for them."""
    ends: list[End]

    def __post_init__(self) -> None:
        if len(self.streams) != len(self.counts) or sum(self.counts) != len(self.tokens):
            raise FrameError("columns of different lengths")
        if self.scores:
            counts = dict(zip(self.streams, self.counts, strict=True))
            if any(counts.get(each.stream) != len(each.logprobs) for each in self.scores):
                raise FrameError("logprobs for other tokens than there are")


class Items(Message):
    """What came out of one stream's own stream since the last: sound, while it is made.

    They travel inside the message, since they are as short as what is made at once.
    """

    stream: Stream
    arrays: Annotated[tuple[Array, ...], Meta(min_length=1, max_length=16)]
    """By the name of an output: ``[items, *shape]``."""

    def __post_init__(self) -> None:
        if not all(isinstance(each.data, bytes) for each in self.arrays):
            raise FrameError("items that are not in the message")


class Cancelled(Message):
    """The answer to a :class:`Cancel`."""

    ask: Count
    count: Count


class Stats(Message):
    """What ``Engine.stats`` says, each half second."""

    stats: dict[str, Any]


FromApi = Submit | Stop | Abort | Cancel
FromEngine = Tokens | Items | Cancelled | Stats


def decoded(body: bytes | bytearray | memoryview, type: Any) -> Any:
    """The message in ``body``, of one of the types of the union. Raises FrameError."""
    try:
        return codec.packed(memoryview(body), type)
    except FrameError:
        raise
    except (ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None
