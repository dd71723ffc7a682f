"""One request per kind that the model serves, before the server says that it is ready."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from mstar_core.errors import MstarError, RequestError
from mstar_core.model.front import Front, Request
from mstar_core.serving.exchange import Service
from mstar_core.serving.remote import RemoteLink

log = logging.getLogger(__name__)
RATE = 16_000
NEW_TOKENS = 2
MAKERS: dict[str, Callable[[Front], Request]] = {
    "text": lambda front: front.text_request("Hello"),
    "chat": lambda front: front.chat_request([{"role": "user", "content": "Hello"}]),
    "audio": lambda front: front.audio_request(np.zeros(RATE, np.float32), RATE, **_spoken(front)),
    "speech": lambda front: front.speech_request("Hello", **_voiced(front)),
}
"""Capability → a small request of it."""


async def warm_up(service: Service, front: Front, link: RemoteLink, kind: str) -> bool:
    """Run one small request from the front to its end; False where the engine ended meanwhile.

    One that is refused, as limits and checkpoints may want it, is logged. Raises MstarError for one
    that failed: no other would succeed.
    """
    try:
        request = MAKERS[kind](front)
    except RequestError as refusal:
        log.warning("no warm-up of %s: %s", kind, refusal)
        return True
    new_tokens = min(NEW_TOKENS, service.limits.max_new_tokens or NEW_TOKENS)
    generation = link.begin(attrs.evolve(request, max_new_tokens=new_tokens), group="warm-up")
    tokens: list[int] = []
    while True:
        arrived = await generation.arrived()
        tokens += arrived.tokens
        if kind == "speech":
            front.sound(arrived.tokens, arrived.items)
        if arrived.ended is not None:
            break
    error, code = arrived.ended.error, arrived.ended.code
    is_refusal = code in (None, "overloaded")
    if error is not None and not is_refusal:
        raise MstarError.of_facts(error).under(f"warm-up of {kind}")
    if error is not None:
        log.warning("no warm-up of %s: %s", kind, MstarError.of_facts(error))
    front.decode(tokens)
    return is_refusal


def _spoken(front: Front) -> dict[str, str]:
    """A language that the model knows, as some models want to be told one."""
    languages = front.traits().get("languages")
    return {"language": languages[0]} if languages else {}


def _voiced(front: Front) -> dict[str, Any]:
    """A voice that the model has or imitates, where it wants to be told one."""
    traits = front.traits()
    if "reference" in front.speech_options():
        at_T = np.arange(2 * RATE) / RATE
        hum_T = (0.2 * np.sin(2 * np.pi * 220 * at_T)).astype(np.float32)
        return {"reference": hum_T, "reference_rate": RATE, "speaker_only": True}
    voices = [] if traits.get("default_voice") else traits.get("voices")
    return {"voice": voices[0]} if voices else {}
