"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl

OFFERS = {
    ("gated_delta", "flashinfer"): "gated_delta:BACKEND",
    ("paged_attention", "flashinfer"): "attention.paged:FA2",
    ("paged_attention", "flashinfer_fa3"): "attention.paged:FA3",
    ("sampling", "flashinfer"): "sampling:BACKEND",
}
"""(operation, name) → where its backend is."""
PRIORITY = 40
"""Above torch. ``auto`` asks kernels that plan nothing on the host first."""


@hookimpl
def provide_backends(registry):
    for (operation, name), ref in OFFERS.items():
        registry.add(
            operation,
            name,
            f"mstar_flashinfer.{ref}",
            priority=PRIORITY - name.count("_"),
            hardware=("cuda>=9.0",),
        )
