"""What a model says about its weights, and what comes of it: plain data, free of torch."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class Source:
    """Rows of one stored tensor; all of them where ``rows`` is None."""

    name: str
    rows: tuple[int, int] | None = None
    """First row, and the one after the last."""


@frozen
class Rule:
    """A parameter (or persistent buffer) by its name in the module, and what fills it in order."""

    target: str
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, target: str, *names: str) -> Rule:
        """The whole of one or more stored tensors, one behind the other."""
        return cls(target, tuple(Source(name) for name in names))


@frozen(kw_only=True)
class WeightMap:
    """How the stored tensors of a checkpoint fill one module."""

    rules: tuple[Rule, ...] = ()
    """A parameter without a rule takes the stored tensor of its own name."""
    set_aside: tuple[str, ...] = ()
    """Patterns (``mtp.*``) of stored tensors that are known and not used."""
    aliases: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """Prefix of a stored name to the prefixes that other exports write in its place."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Groups of stored names that are one tensor: any may be stored, the first that is counts."""


@frozen
class Piece:
    """Rows of a stored tensor that go to one place of a parameter."""

    name: str
    start: int
    stop: int
    at: int
    """The parameter's first row that they fill."""


@frozen(kw_only=True)
class Fill:
    """One parameter and all that fills it."""

    module: str
    target: str
    pieces: tuple[Piece, ...]


@frozen(kw_only=True)
class WeightPlan:
    """A map that fits: each parameter once, each stored tensor used or set aside."""

    fills: tuple[Fill, ...]
    set_aside: tuple[str, ...]
