"""A link to no engine: each request is answered with the tokens that a script has for it.

What a route makes of tokens, whatever their grouping, can so be tested without a model, and
measured without an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mstar_core.model.front import Front, Request
from mstar_core.serving.link import Arrived, Ended, EngineState

Step = Arrived | float
"""What arrives next, or for how many seconds nothing does."""
Script = Callable[[Request], Iterable[Step]]


class ScriptedGeneration:
    """One request of a :class:`ScriptedLink`; what was done with it can be asked."""

    def __init__(self, request: Request, group: str, steps: Iterable[Step]) -> None:
        self.request = request
        self.group = group
        self.stopped_after: int | None = None
        self.is_over = False
        self.was_aborted = False
        """Aborted before its end."""
        self._steps = iter(steps)

    async def arrived(self) -> Arrived:
        await asyncio.sleep(0)
        if self.stopped_after is not None:
            return self._last(Arrived(ended=end("stop", generated=self.stopped_after)))
        if self.was_aborted:
            return self._last(Arrived(ended=end("abort")))
        step = next(self._steps)
        while isinstance(step, float):
            await asyncio.sleep(step)
            step = next(self._steps)
        return self._last(step)

    def stop(self, accepted: int) -> None:
        self.stopped_after = accepted

    def abort(self) -> None:
        self.was_aborted = self.was_aborted or not self.is_over

    def _last(self, arrived: Arrived) -> Arrived:
        self.is_over = arrived.ended is not None
        return arrived


class ScriptedLink:
    """A :class:`~mstar_core.serving.link.Link` that answers by ``script``."""

    def __init__(self, script: Script, state: EngineState | None = None) -> None:
        self.script = script
        self.state = state or EngineState(phase="ready")
        self.generations: list[ScriptedGeneration] = []
        """All there were, in order."""

    def submit(self, request: Request, *, group: str) -> ScriptedGeneration:
        self.generations.append(ScriptedGeneration(request, group, self.script(request)))
        return self.generations[-1]

    async def cancel(self, group: str) -> int:
        live = [each for each in self.generations if each.group == group and not each.is_over]
        for generation in live:
            generation.abort()
        return len(live)

    def stats(self) -> Mapping[str, Any]:
        return {}


class PiecesFront(Front):
    """A front whose token ``i`` is the bytes ``pieces[i]``; ids behind them have no text.

    A text prompt has one token a character, all of them the same.
    """

    def __init__(self, pieces: Sequence[bytes], stop_ids: Iterable[int] = ()) -> None:
        self.pieces = list(pieces)
        self.stop_ids = frozenset(stop_ids)

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token] if token < len(self.pieces) else b""

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def encode(self, text: str) -> list[int]:
        return [1] * len(text)

    def ids_request(self, ids: Sequence[int], **options: Any) -> Request:
        options.setdefault("stop_ids", self.stop_ids)
        return Request(arrays={"ids": np.asarray(ids, np.int64)}, **options)

    def text_request(self, prompt: str, **options: Any) -> Request:
        return self.ids_request(self.encode(prompt), **options)

    def chat_request(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Request:
        return self.text_request("".join(str(each.get("content")) for each in messages), **options)


def end(
    reason: str, generated: int = 0, error: Mapping[str, str] | None = None, **more: Any
) -> Ended:
    """How a generation ended, over a prompt of one item."""
    return Ended(reason=reason, generated=generated, error=error, prompt_items=1, **more)  # type: ignore[arg-type]


def said(*groups: Sequence[int], reason: str = "length") -> list[Step]:
    """Tokens in groups, and then the end by itself."""
    total = sum(map(len, groups))
    return [*(Arrived(tokens=group) for group in groups), Arrived(ended=end(reason, total))]
