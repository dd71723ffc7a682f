"""``/v1/audio/speech``: text, spoken."""

from __future__ import annotations

from mstar_core.serving.media.encode import MEDIA
from mstar_core.serving.protocol.audio import SpeechBody
from mstar_core.serving.routes import Route
from mstar_core.serving.speaking import speak

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
)
