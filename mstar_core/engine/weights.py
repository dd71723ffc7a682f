"""Filling the nodes of a wired engine from its checkpoint, or with seeded noise when asked."""

from __future__ import annotations

from collections.abc import Callable

from mstar_core.engine.wire import Wired
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.load import finalise, load_weights, random_weights

RANDOM_SEED = 0


def fill_weights(wired: Wired, progress: Callable[[str, int, int], None]) -> tuple[str, ...]:
    """Fill every node; the names of stored tensors that were set aside.

    Raises CheckpointError naming every tensor that does not fit.
    """
    modules = {name: node.submodule for name, node in wired.nodes.items()}
    if not wired.model.has_checkpoint:
        finalise(modules)
        return ()
    if wired.resolved.config.model.load == "random":
        random_weights(modules, RANDOM_SEED, wired.device)
        return ()
    maps = {name: wired.model.weight_map(name) for name in modules}
    report = load_weights(
        modules,
        maps,
        open_checkpoint(wired.folder, wired.model.weight_folders),
        wired.device,
        lambda done, total: progress("weights", done, total),
    )
    return report.set_aside
