"""Combined walks of a node: whether they are taken, and how they are run as two kernels."""

from __future__ import annotations

from collections.abc import Mapping

from mstar_core.config.schema import EngineConfig
from mstar_core.engine.node import NodeRuntime
from mstar_core.errors import ConfigError, Words
from mstar_core.model.walks import Node, Walk
from mstar_core.plugins import collect_combined_splits
from mstar_core.plugins.wiring import Wiring
from mstar_core.step import CombinedSplit


def taken_walks(node: Node, engine: EngineConfig) -> dict[str, Walk]:
    """The walks that an engine takes: combined ones only where steps are mixed."""
    mixed = engine.mixed == "on"
    return {walk.name: walk for walk in node.walks if mixed or not walk.combines}


def splits_of(walks: Mapping[str, Walk], engine: EngineConfig) -> tuple[CombinedSplit, ...]:
    """Each combined walk as two kernels: rows of its loops, and rows of its other walks."""
    return tuple(
        CombinedSplit(
            walk=walk.name,
            decode_walks=tuple(n for n in walk.combines if walks[n].is_decode),
            prefill_walks=_several(walk, walks),
            max_decode_rows=engine.max_rows,
        )
        for walk in walks.values()
        if walk.combines
    )


def agreed_splits(wiring: Wiring, node: NodeRuntime) -> Mapping[str, CombinedSplit]:
    """Combined walk → its split; one that nobody splits runs packed, and is not named.

    Raises ConfigError where resources or plugins disagree, or miss a walk of several tokens a row:
    here, and not in the step that meets it.
    """
    walks = node.walks
    combined = {w.name: _several(w, walks) for w in walks.values() if w.combines}
    splits, refused = collect_combined_splits(wiring, node.name, node.resources, combined)
    if refused:
        raise ConfigError(
            where="engine.mixed",
            got=Words("; ".join(map(str, refused))),
            want="splits that cover the combined walks, and that all agree about",
            fix=f"{refused[0].fix}; or set engine.mixed to off",
        )
    return splits


def _several(walk: Walk, walks: Mapping[str, Walk]) -> tuple[str, ...]:
    """Its walks that bring several tokens a row."""
    return tuple(name for name in walk.combines if not walks[name].is_decode)
