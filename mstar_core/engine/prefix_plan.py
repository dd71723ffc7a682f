"""Whether an engine can reuse prefixes: asked of the model and of every resource, once, at wiring.

A model whose requests are more than one prompt and loops over one node computes every prompt
whole, and so does one with a resource that cannot begin in the middle; each reason is reported.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from mstar_core.engine.node import CARRY, NodeRuntime
from mstar_core.engine.prefix import PrefixReuse
from mstar_core.errors import ConfigError, Refusal
from mstar_core.model.walks import Walk
from mstar_core.resources.shared import Copies, Shared
from mstar_core.sched.request import tracks_of

if TYPE_CHECKING:
    from mstar_core.engine.wire import Wired

Planned = tuple[PrefixReuse | None, tuple[Refusal, ...]]


def plan_reuse(wired: Wired) -> Planned:
    """The prefix cache of an engine, its memory claimed; or every reason why there is none.

    Raises ConfigError for intervals that are no multiples of each other.
    """
    if wired.resolved.config.engine.prefix_cache == "off":
        return None, (_off(),)
    nodes = wired.nodes
    walks = {w.name: (node, w) for node in nodes.values() for w in node.walks.values()}
    tracks = tracks_of(wired.model.graph())
    node, walk = walks[tracks[0].parts[0].walk]
    got = None
    if len(tracks) > 1 or any(walks[part.walk][0] is not node for part in tracks[0].parts):
        got = "requests that pass through several nodes"
    else:
        got = _odd_walk(node, walk, [walks[part.walk][1] for part in tracks[0].parts[1:]])
    if got is not None:
        return None, (_refusal(f"node {node.name}, walk {walk.name}", got),)
    asked = [resource.reuse_refusal() for resource in node.resources.values()]
    refusals = tuple(refusal for refusal in asked if refusal is not None)
    if refusals:
        return None, refusals
    reuse = PrefixReuse(node=node, walk=walk, root=engine_root(wired))
    if not reuse.shared:
        return None, (_refusal(f"node {node.name}", "no resource that keeps anything"),)
    _check_grains(reuse)
    for shared in reuse.shared:
        shared.begin_sharing()
    node.copying = tuple(k for k, r in node.resources.items() if isinstance(r, Copies))
    return reuse, ()


def _odd_walk(node: NodeRuntime, walk: Walk, after: list[Walk]) -> str | None:
    """What keeps a prompt from beginning in the middle."""
    if walk.feed != "prompt" or not walk.chunkable or any(w.feed != "loop" for w in after):
        return "requests that are more than one prompt, which can be cut, and loops"
    for each in (walk, *after):
        read = {output.loops_to: output.name for output in each.outputs if output.read}
        unseen = sorted(given.name for given in walk.inputs if given.name not in read)
        if unseen or read.get("ids") != "ids":
            return f"inputs whose values the host does not read: {', '.join(unseen) or 'ids'}"
    spans = node.submodule.declare_step(walk.name, np.array([7], np.int64))
    if spans is not None and {int(span[0]) for k, span in spans.items() if k != CARRY} != {7}:
        return "resources that do not advance with the prompt"
    return None


def engine_root(wired: Wired) -> bytes:
    """The root of every key: what all bytes of the engine's pools depend on."""
    config, nodes = wired.resolved.config, wired.model.nodes()
    choices = wired.chooser.choices.values()
    facts = (
        (config.model.name, config.model.revision, str(wired.folder), config.model.load),
        str(wired.dtype),
        [str(spec) for node in nodes for spec in node.resources],
        {name: str(node.resources) for name, node in config.nodes.items()},
        sorted(f"{c.node} {c.operation} {c.name}" for c in choices),
    )
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).digest()


def _off() -> Refusal:
    return Refusal(
        code="prefix-cache-off",
        where="engine",
        got="engine.prefix_cache: off",
        want="engine.prefix_cache: auto",
        fix="nothing to do: every request computes its whole prompt",
        owner="config",
    )


def _refusal(where: str, got: str) -> Refusal:
    return Refusal(
        code="no-shared-prefixes",
        where=where,
        got=got,
        want="one walk that is fed a prompt of tokens, may be cut, and is followed by loops",
        fix="nothing to do: every request computes its whole prompt",
        owner="engine",
    )


def _check_grains(reuse: PrefixReuse) -> None:
    for key, resource in reuse.node.resources.items():
        if isinstance(resource, Shared) and reuse.interval % resource.grain:
            raise ConfigError(
                where=f"nodes.{reuse.node.name}.resources",
                got=f"boundaries every {reuse.interval} tokens, but {key} every {resource.grain}",
                want="a snapshot interval that is a multiple of the page size",
                fix="change snapshot_every or page_tokens, or set engine.prefix_cache to off",
            )
