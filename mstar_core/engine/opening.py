"""From a configuration's name to a warmed core: plugins, device, wiring, warmup."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mstar_core.config.resolve import Resolved, resolve
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Device, open_device
from mstar_core.engine.device_memory import pick_device
from mstar_core.engine.graphs import GraphBackend
from mstar_core.engine.report import WarmupReport
from mstar_core.engine.warmup import warm_up
from mstar_core.engine.wire import Wired, open_model, wire
from mstar_core.errors import ConfigError
from mstar_core.model.front import Front
from mstar_core.plugins import NameLists, Wiring, discover, load_plugins, select_for
from mstar_core.plugins.record import shipped_configs

log = logging.getLogger(__name__)


def load_wiring(resolved: Resolved) -> Wiring:
    """The plugins that the configuration needs and allows, loaded. Raises PluginError."""
    config = resolved.config
    where = f"plugins of {resolved.file.name}"
    lists = NameLists(disable=config.plugins.disable, allow=config.plugins.allow, where=where)
    records = discover(lists)
    wiring = load_plugins(select_for(config.model.name, records), config, records=records)
    if config.model.name not in wiring.models.entries:
        owner = next(r for r in wiring.records if config.model.name in r.offers.models)
        wiring.require(owner.name)
    return wiring


def open_front(resolved: Resolved, *, offline: bool = False) -> Front:
    """The front of the configured model alone: no weights, no device, no engine.

    Raises ConfigError, CheckpointError or PluginError.
    """
    model, _ = open_model(resolved, load_wiring(resolved), offline)
    return model.front()


def resolve_config(config: str | Path | Resolved, sets: Sequence[str] = ()) -> Resolved:
    """A resolved configuration from a path, a plugin's config by name, or itself."""
    if isinstance(config, Resolved):
        return config
    return resolve(config, sets, lambda: shipped_configs(discover()))


def check_graphs(name: str, target: str) -> None:
    """Raise ConfigError where ``engine.graphs`` names what ``target`` (a device type) has not."""
    if name == "cuda" and target != "cuda":
        raise ConfigError(
            where="engine.graphs",
            got=name,
            want=f"auto, off or recorder on the device {target}",
            fix="set engine.graphs to auto, or run on a GPU",
        )


def open_graphs(name: str, device: Device, wired: Wired) -> GraphBackend | None:
    """The graph backend that ``engine.graphs`` names; ``auto``: CUDA graphs on a GPU, else none.

    Raises ConfigError for CUDA graphs on another device.
    """
    check_graphs(name, device.torch_device.type)
    if name == "recorder":
        from mstar_core.engine.recorder import Recorder

        return Recorder(wired.buffers, [node.submodule for node in wired.nodes.values()])
    if name == "off" or device.torch_device.type != "cuda":
        return None
    from mstar_core.engine.device_cuda import CudaDevice
    from mstar_core.engine.graphs_cuda import CudaGraphs

    return CudaGraphs(device) if isinstance(device, CudaDevice) else None


def open_core(
    config: str | Path | Resolved,
    sets: Sequence[str] = (),
    *,
    device: Device | None = None,
    offline: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[EngineCore, Wired, WarmupReport]:
    """A warmed core that the caller drives turn by turn. Raises what ``Engine.open`` raises."""
    begin = time.perf_counter()
    resolved = resolve_config(config, sets)
    wiring = load_wiring(resolved)
    for refusal in wiring.left_out:
        log.warning("%s", refusal)
    loaded = time.perf_counter()
    if device is None:
        device = open_device(pick_device(resolved.config.device))
    where = device.torch_device
    check_graphs(resolved.config.engine.graphs, where.type)
    wired = wire(resolved, wiring, where, target=where.type, offline=offline)
    graphs = open_graphs(resolved.config.engine.graphs, device, wired)
    before = {"plugins": loaded - begin, "wiring": time.perf_counter() - loaded}
    core, report = warm_up(wired, device, graphs, progress or _quiet)
    report.seconds = before | report.seconds
    return core, wired, report


def _quiet(phase: str, done: int, total: int) -> None:
    """The progress of a caller that wants none."""
