"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl

PRIORITY = 45
"""Above torch. ``auto`` asks the kernels in Triton first."""


@hookimpl
def provide_backends(registry):
    registry.add(
        "paged_attention",
        "fmha",
        "mstar_fmha.backend:BACKEND",
        priority=PRIORITY,
        hardware=("cuda>=10.0",),
        basis="not run on a device yet",
    )
