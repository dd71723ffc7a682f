"""The core's own offers, made through the same registries as any plugin's."""

from __future__ import annotations

from mstar_core import __version__
from mstar_core.plugins.registry import BackendRegistry, ModelRegistry, ResourceRegistry

OWNER = f"mstar-core {__version__}"
RESOURCES = {
    "kv": "KVResource",
    "attention": "AttentionResource",
    "position": "PositionResource",
    "state": "StateResource",
    "gated_delta": "GatedDeltaResource",
    "sampler": "SamplerResource",
    "carry": "CarryResource",
}
"""Kind → class in the package ``mstar_core.resources.<kind>``."""
OPERATIONS = frozenset({"paged_attention", "ragged_attention", "gated_delta", "linear", "sampling"})
"""Operations with a contract in ``mstar_core.ops`` and an implementation in torch."""
CORE_OFFERS = frozenset(
    {f"resource {kind}" for kind in RESOURCES} | {f"backend {op}.torch" for op in OPERATIONS}
)


def core_registries() -> tuple[ModelRegistry, ResourceRegistry, BackendRegistry]:
    """Three registries that hold what the core itself brings. It brings no model."""
    models, resources = ModelRegistry(owner=OWNER), ResourceRegistry(owner=OWNER)
    backends = BackendRegistry(owner=OWNER)
    for kind, name in RESOURCES.items():
        resources.add(kind, f"mstar_core.resources.{kind}:{name}")
    for operation in sorted(OPERATIONS):
        backends.add(operation, "torch", f"mstar_core.ops.{operation}.torch_backend:BACKEND")
    return models, resources, backends
