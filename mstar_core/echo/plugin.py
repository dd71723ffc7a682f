"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl
from mstar_core.plugins.registry import ModelRegistry


@hookimpl
def provide_models(registry: ModelRegistry) -> None:
    registry.add("echo", "mstar_core.echo.model:Echo")
