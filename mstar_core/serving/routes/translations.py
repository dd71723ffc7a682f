"""``/v1/audio/translations``: what was said, in English."""

from __future__ import annotations

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange
from mstar_core.serving.hearing import hear
from mstar_core.serving.protocol.audio import HearingBody, Transcription
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.transcriptions import ALSO, CODES


async def translate(exchange: Exchange) -> Response:
    """The meaning of a sound, in English; a model that cannot translate refuses."""
    return await hear(exchange, "translate")


ROUTES = (
    Route(
        method="POST",
        path="/v1/audio/translations",
        handler=translate,
        summary="The meaning of a sound, in English",
        capability="audio",
        body=HearingBody,
        form=True,
        answer=Transcription,
        also=ALSO,
        streams=True,
        codes=CODES,
    ),
)
