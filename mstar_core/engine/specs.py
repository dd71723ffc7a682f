"""Resources of a node before they are built: in order, with their settings and their memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import attrs
import torch

from mstar_core.config.resolve import Resolved
from mstar_core.dtypes import torch_dtype_named
from mstar_core.engine.memory import pool_budget, share
from mstar_core.engine.node import CARRY
from mstar_core.errors import ConfigError, Words
from mstar_core.model.walks import Node
from mstar_core.names import suggest
from mstar_core.plugins.wiring import Wiring
from mstar_core.resources.base import BuildEnv, ResourceSpec


def resource_classes(
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


def settings_of(resolved: Resolved, node: str, spec: ResourceSpec, cls: Any) -> Mapping[str, Any]:
    """The deployment\'s settings for one resource, checked by its ``Config`` class."""
    config = getattr(cls, "Config", None)
    if config is None:
        return {}
    built = resolved.structure_resource(node, spec.key, config, owner=spec.kind)
    return attrs.asdict(built, recurse=False)


def share_memory(
    resolved: Resolved,
    specs: Mapping[str, list[ResourceSpec]],
    classes: Mapping[str, Any],
    envs: dict[tuple[str, str], BuildEnv],
    target: torch.device,
    beside: Callable[[Collection[str]], int],
) -> None:
    """Give each pool its share of the budget, as ``memory_bytes`` of its environment.

    ``beside(pools)``: the bytes of everything but these owners, where nobody set the budget.
    """
    demands = {
        f"{node}.{spec.key}": classes[spec.kind].pool_bytes(spec, envs[node, spec.key])
        for node, listed in specs.items()
        for spec in listed
    }
    demands = {key: demand for key, demand in demands.items() if demand}
    others = partial(beside, demands.keys())
    budget, detail = pool_budget(resolved.config.engine.kv_memory, target, others)
    resolved.derive("engine.kv_memory", min(budget, sum(demands.values())), f"at most {detail}")
    for key, given in share(demands, budget).items():
        node, _, resource = key.partition(".")
        envs[node, resource] = attrs.evolve(envs[node, resource], memory_bytes=given)


def known_nodes(configured: Mapping[str, Any], nodes: tuple[Node, ...]) -> None:
    """Raise ConfigError where the configuration names a node or resource that is not there."""
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
