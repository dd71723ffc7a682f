"""Wiring: from a configuration to nodes with resources and submodules, on any device.

On the ``meta`` device nothing is allocated and no weight is read: ``check`` wires there, so its
memory estimate is the sum of the very claims that ``Engine.open`` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import define

from mstar_core.config.resolve import Resolved
from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.backends import BackendChooser
from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.memory import pool_budget, share
from mstar_core.engine.node import CARRY, NodeRuntime
from mstar_core.errors import ConfigError, Words
from mstar_core.fixed import FixedBuffers
from mstar_core.model.base import Model, NodeEnv
from mstar_core.model.hub import resolve_checkpoint
from mstar_core.model.walks import Node, Sequence, Walk, check_graph
from mstar_core.names import suggest
from mstar_core.plugins.wiring import Wiring
from mstar_core.resources.base import BuildEnv, Resource, ResourceSpec
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable


@define(eq=False, kw_only=True)
class Wired:
    """Everything that was decided and built, before weights and captures."""

    resolved: Resolved
    wiring: Wiring
    model: Model
    folder: Path
    dtype: torch.dtype
    device: torch.device
    nodes: dict[str, NodeRuntime]
    walks: dict[str, Walk]
    graph: Sequence
    rings: dict[str, EdgeRing]
    table: RequestTable
    fences: Fences
    buffers: FixedBuffers
    chooser: BackendChooser
    max_context: int


def wire(
    resolved: Resolved, wiring: Wiring, device: torch.device, *, target: str, offline: bool = False
) -> Wired:
    """Build every node of the configured model on ``device``, for a run on ``target``.

    ``device`` is ``meta`` for a dry run; ``target`` (``cpu`` or ``cuda``) is what backends are
    asked about. Raises ConfigError, CheckpointError or PluginError.
    """
    config = resolved.config
    cls = wiring.models.resolve(config.model.name)
    folder = resolve_checkpoint(_path(resolved), config.model.revision, offline=offline)
    options = resolved.structure_options(cls.Options, owner=config.model.name)
    model: Model = cls.open(folder, options)
    nodes, edges, graph = model.nodes(), model.edges(), model.graph()
    check_graph(nodes, edges, graph)
    _known_nodes(config.nodes, nodes)
    dtype = torch_dtype_named(config.model.dtype, model.default_dtype())
    resolved.derive(
        "model.dtype", str(dtype).removeprefix("torch."), _dtype_detail(config.model.dtype)
    )
    max_context = min(config.engine.max_context or model.max_context, model.max_context)
    resolved.derive(
        "engine.max_context", max_context, "the shorter of the model's and the configured"
    )
    fences, buffers = Fences(), FixedBuffers(device)
    table = RequestTable((config.engine.in_flight + 2) * config.engine.max_rows + 1)
    chooser = BackendChooser(
        wiring=wiring,
        device=target,
        dtype=dtype,
        settings={name: node.backends for name, node in config.nodes.items()},
    )

    def env(node: str) -> BuildEnv:
        return BuildEnv(
            node=node,
            device=device,
            dtype=dtype,
            buffers=buffers,
            table=table,
            fences=fences,
            max_rows=config.engine.max_rows,
            token_budget=config.engine.token_budget,
            max_context=max_context,
            config={},
            built={},
            bind=lambda operation, geometry: chooser.bind(node, operation, geometry),
        )

    rings = {edge.name: EdgeRing(edge, env("edges")) for edge in edges}
    classes, specs = _resource_classes(wiring, nodes)
    envs = {
        (node.name, spec.key): attrs.evolve(
            env(node.name), config=_settings(resolved, node.name, spec, classes[spec.kind])
        )
        for node in nodes
        for spec in specs[node.name]
    }
    _share_memory(resolved, specs, classes, envs, torch.device(target))
    runtimes: dict[str, NodeRuntime] = {}
    for node in nodes:
        built: dict[str, Resource] = {}
        for spec in specs[node.name]:
            given = attrs.evolve(envs[node.name, spec.key], built=built)
            built[spec.key] = classes[spec.kind].build(spec, given)
        node_env = NodeEnv(
            node=node.name,
            device=device,
            dtype=dtype,
            resources=built,
            bind=lambda op, geometry, node=node: chooser.bind(node.name, op, geometry),
        )
        runtimes[node.name] = NodeRuntime(
            name=node.name,
            submodule=model.build_submodule(node.name, node_env).eval(),
            resources=built,
            walks={walk.name: walk for walk in node.walks},
            rings=rings,
            dtype=dtype,
        )
    return Wired(
        resolved=resolved,
        wiring=wiring,
        model=model,
        folder=folder,
        dtype=dtype,
        device=device,
        nodes=runtimes,
        walks={w.name: w for node in nodes for w in node.walks},
        graph=graph,
        rings=rings,
        table=table,
        fences=fences,
        buffers=buffers,
        chooser=chooser,
        max_context=max_context,
    )


def _path(resolved: Resolved) -> str:
    path = resolved.checkpoint
    if path is None:
        raise ConfigError(
            where="model.path",
            got=None,
            want="a checkpoint folder or a hub id",
            fix="write model.path, or give --set model.path=FOLDER",
        )
    return path


def _dtype_detail(configured: str) -> str:
    return "the model's own" if configured == "auto" else "model.dtype"


def _known_nodes(configured: Mapping[str, Any], nodes: tuple[Node, ...]) -> None:
    names = [node.name for node in nodes]
    for name in configured:
        if name not in names:
            raise ConfigError(
                where=f"nodes.{name}",
                got=Words("a node that the model does not have"),
                want=f"one of: {', '.join(names)}",
                fix=suggest(name, names),
            )
        keys = {spec.key for node in nodes if node.name == name for spec in node.resources}  # type: ignore[attr-defined]
        for key in configured[name].resources:
            if key not in keys | {CARRY}:
                raise ConfigError(
                    where=f"nodes.{name}.resources.{key}",
                    got=Words("a resource that the node does not have"),
                    want=f"one of: {', '.join(sorted(keys))}",
                    fix=suggest(key, sorted(keys)),
                )


def _resource_classes(
    wiring: Wiring, nodes: tuple[Node, ...]
) -> tuple[dict[str, Any], dict[str, list[ResourceSpec]]]:
    """The class of each kind, and every node's specs in dependency order, carry included."""
    specs = {node.name: in_order(node.name, with_carry(node)) for node in nodes}
    kinds = {spec.kind for listed in specs.values() for spec in listed}
    return {kind: wiring.resources.resolve(kind) for kind in sorted(kinds)}, specs


def with_carry(node: Node) -> list[ResourceSpec]:
    """The node's resources, with a carry row where something loops or samples."""
    specs: list[ResourceSpec] = list(node.resources)  # type: ignore[arg-type]
    looped = {i.name: i for walk in node.walks for i in walk.inputs if i.loops}
    if looped or any(spec.kind == "sampler" for spec in specs):
        tensors = {name: (i.shape, _carry_dtype(i.dtype), 0) for name, i in looped.items()}
        specs.append(ResourceSpec(key=CARRY, kind=CARRY, options={"tensors": tensors}))
    return specs


def _carry_dtype(name: str) -> torch.dtype | str:
    return name if name == "model" else torch_dtype_named(name, torch.float32)


def in_order(node: str, specs: list[ResourceSpec]) -> list[ResourceSpec]:
    """Every resource behind those it depends on, otherwise as declared."""
    left, done = list(specs), list[ResourceSpec]()
    while left:
        keys = {spec.key for spec in done}
        ready = [spec for spec in left if set(spec.depends_on.values()) <= keys]
        if not ready:
            raise ConfigError(
                where=f"node {node}",
                got={s.key: dict(s.depends_on) for s in left},
                want="resources that depend on declared ones, without a circle",
                fix="correct depends_on of these resources",
            )
        done += ready
        left = [spec for spec in left if spec not in ready]
    return done


def _settings(resolved: Resolved, node: str, spec: ResourceSpec, cls: Any) -> Mapping[str, Any]:
    config = getattr(cls, "Config", None)
    if config is None:
        return {}
    built = resolved.structure_resource(node, spec.key, config, owner=spec.kind)
    return attrs.asdict(built, recurse=False)


def _share_memory(
    resolved: Resolved,
    specs: Mapping[str, list[ResourceSpec]],
    classes: Mapping[str, Any],
    envs: dict[tuple[str, str], BuildEnv],
    target: torch.device,
) -> None:
    demands = {
        f"{node}.{spec.key}": classes[spec.kind].pool_bytes(spec, envs[node, spec.key])
        for node, listed in specs.items()
        for spec in listed
    }
    budget, detail = pool_budget(resolved.config.engine.kv_memory, target)
    demands = {key: demand for key, demand in demands.items() if demand}
    resolved.derive("engine.kv_memory", min(budget, sum(demands.values())), f"at most {detail}")
    for key, given in share(demands, budget).items():
        node, _, resource = key.partition(".")
        envs[node, resource] = attrs.evolve(envs[node, resource], memory_bytes=given)
