"""A request in the numbers that resources need: what it can come to hold, and holds at first."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import attrs
import numpy as np

from mstar_core.engine.node import CARRY, NodeRuntime
from mstar_core.model.front import Request
from mstar_core.model.walks import Walk
from mstar_core.resources.base import Opening
from mstar_core.sched.request import Track


def openings(
    request: Request,
    nodes: Mapping[str, NodeRuntime],
    tracks: tuple[Track, ...],
    chunk: int | None = None,
) -> dict[str, Opening]:
    """Per node: the most tokens that the request can add to each resource over its life.

    With ``chunk``, the most tokens of a step, also those whose memory it takes at admission: all
    that comes over edges, and the first chunk of each prompt.
    """
    sampling = request.sampling
    if sampling.seed is None and not sampling.is_greedy:  # run again, it goes on with its noise
        sampling = attrs.evolve(sampling, seed=secrets.randbits(63))
    tokens: dict[str, dict[str, int]] = {name: {} for name in nodes}
    first: dict[str, dict[str, int]] = {name: {} for name in nodes}
    walks = {w.name: (node, w) for node in nodes.values() for w in node.walks.values()}
    items = _items_by_walk(request, walks, tracks)
    for name, count in items.items():
        node, walk = walks[name]
        _add(tokens[node.name], node, walk, count)
        if chunk is not None and walk.feed != "loop":
            if walk.feed == "prompt" and walk.chunkable:
                count = min(count, walk.max_items or chunk)
            _add(first[node.name], node, walk, count)
    return {
        n: Opening(
            tokens=t,
            settings={"sampler": sampling, **request.settings},
            prompt_ids=request.arrays.get("ids"),
            first=None if chunk is None else first[n],
        )
        for n, t in tokens.items()
    }


def _add(tokens: dict[str, int], node: NodeRuntime, walk: Walk, count: int) -> None:
    """What ``count`` items of a walk add to each resource."""
    spans = node.submodule.declare_step(walk.name, np.asarray([count], np.int64))
    keys = (
        {k: int(s[0]) for k, s in spans.items()}
        if spans is not None
        else {k: count for k in node.resources if k != CARRY}
    )
    for key, span in keys.items():
        tokens[key] = tokens.get(key, 0) + span


def _items_by_walk(
    request: Request, walks: Mapping[str, tuple[NodeRuntime, Walk]], tracks: tuple[Track, ...]
) -> dict[str, int]:
    items: dict[str, int] = {}
    made: dict[str, int] = {}
    for track in tracks:
        for part in track.parts:
            walk = walks[part.walk][1]
            if walk.feed == "prompt":
                count = len(request.arrays[walk.inputs[0].name])
            elif walk.feed == "edge":
                count = made.get(walk.edge or "", 0)
            else:
                count = request.max_new_tokens - 1
            items[walk.name] = count
            for output in walk.outputs:
                if output.edge is not None:
                    made[output.edge] = made.get(output.edge, 0) + count
    return items
