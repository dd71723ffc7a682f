"""What no backend computes unless it says so."""

from __future__ import annotations

from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend, BindRequest


def beyond_silu(backend: Backend, request: BindRequest) -> Refusal | None:
    """``backend`` refuses checkpoints along a prefill, and activations other than silu."""
    activation = request.geometry.get("activation", "silu")
    every = request.geometry.get("checkpoint_every")
    fix = "choose a backend that takes it"
    if activation != "silu":
        return backend.refusal("activation", f"activation {activation!r}", "silu", fix)
    if every is not None:
        return backend.refusal("checkpoints", f"checkpoint_every {every}", "None", fix)
    return None
