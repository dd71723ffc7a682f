"""Wiring: from a configuration to nodes with resources and submodules, on any device.

On the ``meta`` device nothing is allocated and no weight is read: ``check`` wires there, so its
memory estimate is the sum of the very claims that ``Engine.open`` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import attrs
import torch
from attrs import define, field

from mstar_core.config.resolve import Resolved
from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.backends import BackendChooser
from mstar_core.engine.combined import splits_of, taken_walks
from mstar_core.engine.context import fit_context
from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.memory import bytes_by_owner, memory_for
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.prefix import PrefixReuse
from mstar_core.engine.prefix_plan import plan_reuse
from mstar_core.engine.specs import known_nodes, resource_classes, settings_of, share_memory
from mstar_core.errors import ConfigError, Refusal
from mstar_core.fixed import FixedBuffers
from mstar_core.model.base import Model, NodeEnv
from mstar_core.model.graph import check_graph
from mstar_core.model.hub import resolve_checkpoint
from mstar_core.model.walks import Walk
from mstar_core.plugins.wiring import Wiring
from mstar_core.resources.base import BuildEnv, Resource
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable

ALL_THAT_IS_WANTED = 1 << 60
"""A budget, in bytes, that no pool is cut by."""


@define(eq=False, kw_only=True)
class Wired:
    """Everything that was decided and built, before weights and captures."""

    resolved: Resolved
    wiring: Wiring
    model: Model
    folder: Path
    dtype: torch.dtype
    device: torch.device
    table: RequestTable
    fences: Fences
    buffers: FixedBuffers
    chooser: BackendChooser
    max_context: int
    findings: tuple[Refusal, ...] = ()
    """What was asked for, or is installed, and is not so; it stops nobody."""
    reuse: PrefixReuse | None = None
    reuse_refusals: tuple[Refusal, ...] = ()
    """Why prefixes are not reused."""
    rings: dict[str, EdgeRing] = field(factory=dict)
    nodes: dict[str, NodeRuntime] = field(factory=dict)

    @property
    def walks(self) -> dict[str, Walk]:
        """Every walk of every node, in the order declared."""
        return {name: walk for node in self.nodes.values() for name, walk in node.walks.items()}


def wire(
    resolved: Resolved, wiring: Wiring, device: torch.device, *, target: str, offline: bool = False
) -> Wired:
    """Build every node of the configured model on ``device``, for a run on ``target``.

    ``device`` is ``meta`` for a dry run; ``target`` (``cpu`` or ``cuda``) is what backends are
    asked about. Raises ConfigError, CheckpointError or PluginError.
    """
    config = resolved.config
    model, folder = open_model(resolved, wiring, offline)
    check_graph(model.nodes(), model.edges(), model.graph())
    known_nodes(config.nodes, model.nodes())
    dtype, detail = _dtype(config.model.dtype, model, target)
    resolved.derive("model.dtype", str(dtype).removeprefix("torch."), detail)
    max_context, findings = fit_context(resolved, model.max_context)
    wired = Wired(
        resolved=resolved,
        wiring=wiring,
        model=model,
        folder=folder,
        dtype=dtype,
        device=device,
        table=RequestTable((config.engine.in_flight + 2) * config.engine.max_rows + 1),
        fences=Fences(),
        buffers=FixedBuffers(device),
        chooser=BackendChooser(
            wiring=wiring,
            device=target,
            dtype=dtype,
            settings={name: node.backends for name, node in config.nodes.items()},
        ),
        max_context=max_context,
        findings=(*findings, *wiring.left_out),
    )
    for edge in model.edges():
        wired.rings[edge.name] = EdgeRing(edge, _env(wired, "edges"))
    _build_nodes(wired, target, partial(_beside, resolved, wiring, target, offline))
    wired.chooser.check_settings()
    with memory_for("the snapshots of prefixes", ("engine.max_rows", "engine.prefix_cache")):
        wired.reuse, wired.reuse_refusals = plan_reuse(wired)
    return wired


def open_model(resolved: Resolved, wiring: Wiring, offline: bool) -> tuple[Model, Path]:
    """The configured model over its checkpoint's configuration files, and that folder."""
    config = resolved.config.model
    cls = wiring.models.resolve(config.name)
    folder = _folder(resolved, cls, offline)
    options = resolved.structure_options(
        cls.Options, owner=wiring.models.entries[config.name].owner
    )
    return cls.open(folder, options), folder


def _env(wired: Wired, node: str) -> BuildEnv:
    engine = wired.resolved.config.engine
    return BuildEnv(
        node=node,
        device=wired.device,
        dtype=wired.dtype,
        buffers=wired.buffers,
        table=wired.table,
        fences=wired.fences,
        max_rows=engine.max_rows,
        token_budget=engine.token_budget,
        max_context=wired.max_context,
        config={},
        built={},
        bind=partial(wired.chooser.bind, node),
    )


def _beside(
    resolved: Resolved, wiring: Wiring, target: str, offline: bool, pools: Collection[str]
) -> int:
    """The bytes of all that is built but ``pools``: known from a wiring on the meta device."""
    engine = attrs.evolve(resolved.config.engine, kv_memory=ALL_THAT_IS_WANTED)
    planned = attrs.evolve(
        resolved,
        config=attrs.evolve(resolved.config, engine=engine),
        values=dict(resolved.values),
        origin=dict(resolved.origin),
    )
    wired = wire(planned, wiring, torch.device("meta"), target=target, offline=offline)
    modules = {name: node.submodule for name, node in wired.nodes.items()}
    sizes = bytes_by_owner(modules, wired.buffers)
    return sum(size for owner, size in sizes.items() if owner not in pools)


def _build_nodes(wired: Wired, target: str, beside: Callable[[Collection[str]], int]) -> None:
    """Every node's resources in dependency order, then its submodule."""
    nodes = wired.model.nodes()
    classes, specs = resource_classes(wired.wiring, nodes)
    envs: dict[tuple[str, str], BuildEnv] = {}
    engine = wired.resolved.config.engine
    for node in nodes:
        splits = splits_of(taken_walks(node, engine), engine)
        for spec in specs[node.name]:
            settings = settings_of(wired.resolved, node.name, spec, classes[spec.kind])
            base = _env(wired, node.name)
            envs[node.name, spec.key] = attrs.evolve(base, config=settings, splits=splits)
    share_memory(wired.resolved, specs, classes, envs, torch.device(target), beside)
    for node in nodes:
        built: dict[str, Resource] = {}
        for spec in specs[node.name]:
            env, kind = attrs.evolve(envs[node.name, spec.key], built=built), classes[spec.kind]
            with memory_for(f"the pools of {node.name}.{spec.key}", kind.sized_by):
                built[spec.key] = kind.build(spec, env)
        node_env = NodeEnv(
            node=node.name,
            device=wired.device,
            dtype=wired.dtype,
            resources=built,
            bind=partial(wired.chooser.bind, node.name),
        )
        with memory_for(f"the weights of node {node.name}", ("engine.kv_memory",)):
            submodule = wired.model.build_submodule(node.name, node_env)
        wired.nodes[node.name] = NodeRuntime(
            name=node.name,
            submodule=submodule.eval(),
            resources=built,
            walks=taken_walks(node, engine),
            rings=wired.rings,
            dtype=wired.dtype,
        )


def _dtype(configured: str, model: Model, target: str) -> tuple[torch.dtype, str]:
    """The compute dtype, and how it came about."""
    if configured == "auto" and target == "cpu":
        return torch.float32, "auto on a CPU"
    detail = "the model's own" if configured == "auto" else "model.dtype"
    return torch_dtype_named(configured, model.default_dtype()), detail


def _folder(resolved: Resolved, cls: type[Model], offline: bool) -> Path:
    """The checkpoint's folder; for a model without one, that of the configuration."""
    path, has_checkpoint = resolved.checkpoint, cls.has_checkpoint
    if has_checkpoint == (path is None):
        raise ConfigError(
            where="model.path",
            got=path,
            want="a checkpoint folder or a hub id"
            if has_checkpoint
            else f"no path: the model {resolved.config.model.name} has no checkpoint",
            fix="write model.path, or give --set model.path=FOLDER"
            if has_checkpoint
            else "remove model.path",
        )
    if path is None:
        return resolved.file.parent
    revision, inner = resolved.config.model.revision, cls.weight_folders
    return resolve_checkpoint(path, revision, offline=offline, inner=inner)
