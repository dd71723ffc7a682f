"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_aiter_gdn.bound import CAPTURED
from mstar_core import hookimpl

PRIORITY = 45
"""Above torch. ``auto`` asks the kernels in Triton first."""


@hookimpl
def provide_backends(registry):
    registry.add(
        "gated_delta",
        "aiter",
        "mstar_aiter_gdn.backend:BACKEND",
        priority=PRIORITY,
        hardware=("rocm",),
        basis="not run on a device yet",
    )


@hookimpl
def configure(config):
    CAPTURED.read(config)
