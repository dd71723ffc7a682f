"""One request per kind that the model serves, before the server says that it is ready."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from mstar_core.errors import MstarError
from mstar_core.model.front import Front, Request
from mstar_core.serving.remote import RemoteLink

RATE = 16_000
MAKERS: dict[str, Callable[[Front], Request]] = {
    "text": lambda front: front.text_request("Hello"),
    "chat": lambda front: front.chat_request([{"role": "user", "content": "Hello"}]),
    "audio": lambda front: front.audio_request(np.zeros(RATE, np.float32), RATE, **_spoken(front)),
    "speech": lambda front: front.speech_request("Hello"),
}
"""Capability → a small request of it."""


async def warm_up(front: Front, link: RemoteLink, kind: str) -> bool:
    """Run one small request from the front to its end; False where the engine ended meanwhile.

    Raises MstarError for one that failed: no other would succeed either.
    """
    request = attrs.evolve(MAKERS[kind](front), max_new_tokens=2)
    generation = link.begin(request, group="warm-up")
    tokens: list[int] = []
    while True:
        arrived = await generation.arrived()
        tokens += arrived.tokens
        if arrived.ended is not None:
            break
    if arrived.ended.code is not None:
        return False
    if arrived.ended.error is not None:
        raise MstarError.of_facts(arrived.ended.error).under(f"warm-up ({kind})")
    front.decode(tokens)
    return True


def _spoken(front: Front) -> dict[str, str]:
    """A language that the model knows, as some models want to be told one."""
    languages = front.traits().get("languages")
    return {"language": languages[0]} if languages else {}
