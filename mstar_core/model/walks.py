"""Nodes, walks and the walk graph: what a model declares, as plain data, free of torch.

A *walk* is one kind of step over one node. Its inputs are fed from one of three places:

``prompt``
    Arrays of the request, item by item along their first axis (tokens, audio windows). A walk that
    is ``chunkable`` may be cut into several steps; it samples on its last item.
``loop``
    What the node's own earlier step left in the request's carry row: one item a step. It never
    passes through the host.
``edge``
    Items that another walk put into an edge.
``rows``
    Rows of several walks of the node, each fed as its own walk is: a *combined* walk. A graph never
    names one; where steps are mixed, rows of the walks it combines run in one forward of it.

A *graph* says in which order a request takes its walks: :class:`Sequence` of :class:`Once` and
:class:`Loop` parts, or a :class:`Stream` of a producer and a consumer that run at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen

from mstar_core.errors import ConfigError

FEEDS = ("prompt", "loop", "edge", "rows")
Reported = float | list[float]
"""What a model reports of a request by one name."""


@frozen(kw_only=True)
class Input:
    """A named tensor of a walk: packed ``[items, *shape]``."""

    name: str
    dtype: str = "int64"
    """A torch dtype by name, or ``model`` for the node's compute dtype."""
    shape: tuple[int, ...] = ()
    below: int | None = None
    """For ids: each value must be at least 0 and below this; checked at the door."""
    loops: bool = False
    """Fed back by an output of the same node's earlier step (see :attr:`Output.loops_to`)."""


@frozen(kw_only=True)
class Output:
    """What a forward returns by name: ``[rows, *shape]``, or ``[items, *shape]`` to an edge."""

    name: str
    dtype: str = "int64"
    """A torch dtype by name, or ``model`` for the node's compute dtype."""
    shape: tuple[int, ...] = ()
    read: bool = False
    """Copied to the host behind the step, without waiting. A forward may leave it out."""
    reported: bool = False
    """Told with the request's end, by the output's name: of its row, a float or a list of floats,
    the last that was finite throughout. Only of an output that is ``read``."""
    told: bool = False
    """``[items, *shape]``, of a stream's consumer: its items are told as they are read, in order.
    Only of an output that is ``read``."""
    loops_to: str | None = None
    """The looped input that the next step of the row finds it in."""
    edge: str | None = None
    """The edge that it travels."""


@frozen(kw_only=True)
class Walk:
    """One kind of step over one node."""

    name: str
    node: str
    feed: str = field()
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = ()
    samples: bool = False
    """The last item of a row yields a token that the host reads and that counts as generated."""
    chunkable: bool = False
    """The row's items may be split over several steps."""
    edge: str | None = None
    """The edge that feeds it (``feed="edge"``)."""
    max_items: int | None = None
    """Items of one step at most, where the token budget does not fit their size (audio windows)."""
    capture: bool = True
    """Worth capturing at all."""
    capture_items: tuple[int, ...] = ()
    """Items of the steps that are captured, where ``engine.capture.tokens`` does not fit their size
    (audio windows); each may be of as many rows."""
    optional: bool = False
    """A request passes it by that has none of its inputs (``feed="prompt"``), or passes by all the
    walks that fill its edge (``feed="edge"``)."""
    combines: tuple[str, ...] = ()
    """The walks whose rows it runs in one forward (``feed="rows"``): loops, and those of prompts.
    """

    @feed.validator
    def _known(self, attribute: object, value: str) -> None:
        if value not in FEEDS:
            raise ConfigError(
                where=f"walk {self.name}.feed",
                got=value,
                want=f"one of {', '.join(FEEDS)}",
                fix="name where the inputs of the walk come from",
            )

    @property
    def is_decode(self) -> bool:
        """Every row has exactly one item (a loop)."""
        return self.feed == "loop"


@frozen(kw_only=True)
class Edge:
    """A queue of items from one walk to another, one per request, kept in a ring on the device."""

    name: str
    source: str
    """The walk that fills it; where several do, a request takes one of them."""
    target: str
    """The walk that empties it."""
    input: str
    """The target's input that receives it."""
    shape: tuple[int, ...]
    dtype: str = "model"
    waits: str = "launched"
    """``launched``: the value stays on the device; ``read``: the host decides before it is used."""
    capacity: int = 1
    """Items that may wait per request."""
    chunks: tuple[int, ...] = (1,)
    """Of a stream: items that its consumer waits for, at first and later on; the last number goes
    on. It takes fewer only once the producer makes no more."""


@frozen(kw_only=True)
class Node:
    """A named unit of compute with its resources and walks."""

    name: str
    walks: tuple[Walk, ...]
    resources: tuple[object, ...] = ()
    """``ResourceSpec`` of each resource."""


@frozen
class Once:
    """Take the walk until its inputs are used up."""

    walk: str


@frozen
class Loop:
    """Take the walk until the request stops (a stop id, max_new_tokens, the context's end)."""

    walk: str


@frozen
class Sequence:
    """One part after the other."""

    parts: tuple[Once | Loop | Stream, ...]


@frozen
class Stream:
    """Producer and consumer at once, joined by an edge; the consumer ends when the edge is dry."""

    producer: Sequence | Loop
    consumer: Once
    edge: str


Graph = Sequence


def walks_of(graph: Sequence | Once | Loop | Stream) -> Iterator[str]:
    """The names of the walks in ``graph``, in order."""
    if isinstance(graph, Once | Loop):
        yield graph.walk
    elif isinstance(graph, Stream):
        yield from walks_of(graph.producer)
        yield from walks_of(graph.consumer)
    else:
        for part in graph.parts:
            yield from walks_of(part)
