"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl


@hookimpl
def provide_models(registry):
    registry.add("qwen35", "mstar_qwen35.model:Qwen35")
