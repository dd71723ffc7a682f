"""Prefix reuse over one engine: who begins where, and what is published of a step that was read.

::

    admission   keys of the prompt → boundaries that each resource can serve → the largest that all
                do, below the prompt's end → adopted: the request begins there
    a step      is cut at the interval of the resources that know their state at a step's end only
    retirement  tokens that are read and kept, of a finite row → published up to there

Keys are chained over every input of the prompt walk from the stream's first token on, behind a
root of the engine and of the request's own settings, sampling left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from attrs import define, field

from mstar_core.engine.node import NodeRuntime
from mstar_core.model.walks import Walk
from mstar_core.resources.shared import Prefix, Shared, agreed
from mstar_core.sched import RequestState, Row
from mstar_core.step import Outcome

NOT_IN_KEYS = ("sampler", "sampler_rules")
"""Settings that only choose among a step's logits."""


@define(kw_only=True, eq=False)
class PrefixCounts:
    """What was asked and found so far, in requests and in prompt tokens."""

    queries: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@define(kw_only=True, eq=False)
class Stream:
    """One admitted request: its keys, and how much of it was read."""

    prefix: Prefix
    given: int
    """Tokens that it had been given when it was admitted: part of its prompt."""
    length: int = 0
    """Tokens whose steps are read."""
    loops: dict[str, list[Any]] = field(factory=dict)
    """What else loops beside ids, for each token since."""


@define(kw_only=True, eq=False)
class PrefixReuse:
    """The prefix cache of the one node that runs prompts and loops."""

    node: NodeRuntime
    walk: Walk
    """That the prompt is fed to."""
    root: bytes
    counts: PrefixCounts = field(factory=PrefixCounts, init=False)
    _streams: dict[str, Stream] = field(factory=dict, init=False)
    _looped: dict[str, str] = field(init=False)
    """Input → the output that it loops from; ids left out."""

    shared: tuple[Shared, ...] = field(init=False)
    """The resources that keep something of a stream."""
    grain: int = field(init=False)
    """Tokens between two keys."""

    def __attrs_post_init__(self) -> None:
        resources = self.node.resources.values()
        self.shared = tuple(one for one in resources if isinstance(one, Shared))
        self.grain = min((one.grain for one in self.shared), default=1)
        self._looped = {
            output.loops_to: output.name
            for output in self.walk.outputs
            if output.loops_to not in (None, "ids")
        }

    @property
    def interval(self) -> int:
        """Tokens between two boundaries that every resource can serve."""
        return max(shared.grain for shared in self.shared)

    @property
    def cuts(self) -> dict[str, int]:
        """Walk → the multiples of tokens at which its steps end."""
        grains = [shared.grain for shared in self.shared if shared.cuts]
        return {self.walk.name: max(grains)} if grains else {}

    def admit(self, state: RequestState) -> None:
        """Right behind its opening: begin where the largest agreed boundary is."""
        root = self._root(state)
        if root is None:
            return
        prefix = Prefix(self.root + root, self.grain)
        prefix.extend([_typed(state.arrays[i.name], i.dtype) for i in self.walk.inputs])
        stream = Stream(prefix=prefix, given=state.num_given)
        stream.loops = {name: [] for name in self._looped}
        self._streams[state.id] = stream
        prompt = state.items(self.walk)
        boundary = agreed([shared.match(prefix, prompt - 1) for shared in self.shared])
        self.counts.queries += 1
        self.counts.prompt_tokens += prompt
        if not boundary:
            return
        for resource in self.node.resources.values():
            resource.start_at(state.handle, boundary)
            if isinstance(resource, Shared):
                resource.adopt(state.handle, prefix, boundary)
        self.counts.hits += 1
        self.counts.cached_tokens += boundary
        state.tracks[0].done = stream.length = boundary
        if not (state.preemptions or state.caught):
            state.cached = boundary

    def read(self, rows: Sequence[Row], outcome: Outcome) -> None:
        """The rows of a step that has been read, before anything ends because of it."""
        arrays, grain = outcome.arrays, self.grain
        finite_B = arrays["finite"].tolist() if "finite" in arrays else [True] * len(rows)
        for i, (row, finite) in enumerate(zip(rows, finite_B, strict=False)):
            state = row.state
            stream = self._streams.get(state.id)
            if stream is None or state.over or row.track.ended or not finite:
                continue
            before, stream.length = stream.length, stream.length + row.span
            if row.samples and self._looped:
                for name, output in self._looped.items():
                    stream.loops[name].append(arrays[output][i])
            if stream.length // grain > before // grain:
                self._publish(state, stream)

    def forget(self, state: RequestState) -> None:
        """The request is over."""
        self._streams.pop(state.id, None)

    def stats(self) -> dict[str, int]:
        """What was asked and found, and what is kept."""
        kept: dict[str, int] = {}
        for shared in self.shared:
            kept.update(shared.sharing())
        return {**attrs.asdict(self.counts), "interval": self.interval, **kept}

    def _publish(self, state: RequestState, stream: Stream) -> None:
        """Everything up to the tokens that are read; of new tokens, the keys first."""
        prefix = stream.prefix
        known = prefix.length - state.items(self.walk)
        fresh = state.tokens[stream.given + known : state.num_given]
        if fresh:
            columns = {name: values[known:] for name, values in stream.loops.items()}
            columns["ids"] = fresh
            prefix.extend(
                [_typed(np.array(columns[i.name][: len(fresh)]), i.dtype) for i in self.walk.inputs]
            )
        for shared in self.shared:
            shared.publish(state.handle, prefix, stream.length)

    def _root(self, state: RequestState) -> bytes | None:
        """The request's own part of every key; None where its settings are no plain data."""
        settings = {k: v for k, v in state.request.settings.items() if k not in NOT_IN_KEYS}
        try:
            return json.dumps(settings, sort_keys=True).encode()
        except TypeError:
            return None


def _typed(values: np.ndarray, dtype: str) -> np.ndarray:
    """As the input is fed, so that equal tokens have equal bytes."""
    return np.asarray(values, np.float32 if dtype == "model" else np.dtype(dtype))
