"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl


@hookimpl
def provide_models(registry):
    registry.add("whisper", "mstar_whisper.model:Whisper")


@hookimpl
def config_schema():
    from mstar_whisper.options import WhisperOptions

    return WhisperOptions
