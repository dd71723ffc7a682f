"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl

MODULES = {
    "gated_delta": "gated_delta.backend",
    "linear": "linear.backend",
    "paged_attention": "attention.paged",
    "ragged_attention": "attention.ragged",
    "sampling": "sampling.backend",
}
"""Operation → module of its backend."""


@hookimpl
def provide_backends(registry):
    for operation, module in MODULES.items():
        registry.add(
            operation,
            "triton",
            f"mstar_triton.{module}:BACKEND",
            priority=50,
            hardware=("cuda", "rocm"),
        )
