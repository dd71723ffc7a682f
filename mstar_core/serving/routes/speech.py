"""``/v1/audio/speech``: text, spoken; ``/v1/audio/voices``: by whom."""

from __future__ import annotations

from mstar_core.serving.media.encode import MEDIA
from mstar_core.serving.protocol.audio import SpeechBody, Voices
from mstar_core.serving.routes import Route
from mstar_core.serving.speaking import speak, voices

ROUTES = (
    Route(
        method="POST",
        path="/v1/audio/speech",
        handler=speak,
        summary="Text, spoken",
        capability="speech",
        body=SpeechBody,
        answer_media=MEDIA["mp3"],
        also=tuple(media for style, media in MEDIA.items() if style != "mp3"),
        streams=True,
        codes=("limit_exceeded", "model_not_found", "unknown_field", "unsupported_field"),
    ),
    Route(
        method="GET",
        path="/v1/audio/voices",
        handler=voices,
        summary="Voices and languages that can be asked for",
        answer=Voices,
        codes=("not_ready", "route_not_offered"),
    ),
)
