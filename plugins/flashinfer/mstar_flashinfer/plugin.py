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
BASIS = {
    "paged_attention": "on an H200 it decodes 16 rows of 768 tokens in 15 us where a step is "
    "planned on the host, and in 48 us where it is captured",
}
"""Operation → what was measured; the others were not."""


@hookimpl
def provide_backends(registry):
    for (operation, name), ref in OFFERS.items():
        registry.add(
            operation,
            name,
            f"mstar_flashinfer.{ref}",
            priority=PRIORITY - name.count("_"),
            hardware=("cuda>=9.0",),
            basis=BASIS.get(operation, "not measured"),
        )
