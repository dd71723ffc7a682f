"""``/v1/audio/transcriptions``: what was said."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange
from mstar_core.serving.hearing import hear
from mstar_core.serving.protocol.audio import HearingBody, Transcription
from mstar_core.serving.routes import Route

ALSO = ("text/plain", "application/x-subrip", "text/vtt")
CODES = (
    "audio_too_long",
    "invalid_audio",
    "limit_exceeded",
    "media_not_allowed",
    "missing_field",
    "model_not_found",
    "unknown_field",
    "unsupported_field",
)


async def transcribe(exchange: Exchange) -> Response:
    """The words of a sound, in its language."""
    return await hear(exchange, "transcribe")


ROUTES = (
    Route(
        method="POST",
        path="/v1/audio/transcriptions",
        handler=transcribe,
        summary="The words of a sound",
        capability="audio",
        body=HearingBody,
        form=True,
        answer=Transcription,
        also=ALSO,
        streams=True,
        codes=CODES,
    ),
)
