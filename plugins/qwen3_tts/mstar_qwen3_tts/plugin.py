"""What this plugin brings. Imported when the plugin is loaded, so it imports no torch."""

from mstar_core import hookimpl


@hookimpl
def provide_models(registry):
    registry.add("qwen3-tts", "mstar_qwen3_tts.model:Qwen3TTS")


@hookimpl
def config_schema():
    from mstar_qwen3_tts.options import Qwen3TTSOptions

    return Qwen3TTSOptions


@hookimpl
def provide_backends(registry):
    place = "mstar_qwen3_tts.columns.{}_backend:BACKEND"
    registry.add("codec_columns", "torch", place.format("torch"))
    gpus = ("cuda", "rocm")
    registry.add("codec_columns", "triton", place.format("triton"), priority=50, hardware=gpus)
