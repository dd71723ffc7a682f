"""A recording in a request for speech: the voice that is to be imitated."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from typing import Any

from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.audio import SpeechBody
from mstar_core.serving.protocol.reading import unsupported

FIELD = "reference"
_MARK = ";base64,"


def check_reference(body: SpeechBody, known: frozenset[str]) -> None:
    """Raise ApiError for a recording of which the model makes nothing, and for one that lacks."""
    if body.reference is not None and FIELD not in known:
        raise unsupported(FIELD, "This model imitates no voice")
    if body.reference is None and (body.reference_text or body.speaker_only):
        raise ApiError("missing_field", f"`{FIELD}` is missing.", param=FIELD)


async def reference_options(exchange: Exchange, body: SpeechBody) -> dict[str, Any]:
    """What the front is told of the voice; empty where the request brings none. Raises ApiError."""
    if body.reference is None:
        return {}
    file = await asyncio.to_thread(_in_memory, body.reference)
    try:
        sound = await exchange.service.decoder.decode(
            file, max_seconds=exchange.service.limits.max_audio_seconds, rate=None
        )
    except ApiError as error:
        if error.param is not None:
            error.param = FIELD
        raise
    finally:
        os.close(file)
    exchange.line["audio_s"] = sound.seconds
    exchange.admit(audio_s=sound.seconds)
    return {
        "reference": sound.samples_T,
        "reference_rate": sound.rate,
        "reference_text": body.reference_text,
        "speaker_only": body.speaker_only,
    }


def _in_memory(given: str) -> int:
    """The bytes that ``given`` is in base64, as a file without a name; its descriptor."""
    if given.startswith("data:"):
        given = given.partition(_MARK)[2]
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        message = f"`{FIELD}` is no base64 of a sound file."
        raise ApiError("invalid_value", message, param=FIELD) from None
    file = os.memfd_create("reference", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as written:
            written.write(data)
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file
