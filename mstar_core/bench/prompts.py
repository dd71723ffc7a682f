"""What is asked: bodies of requests by number, the same for the same seed in every process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mstar_core.client.calls import Sent, transcribe

ROUTES = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "transcriptions": "/v1/audio/transcriptions",
    "speech": "/v1/audio/speech",
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member "
    "law car city"
)
WORDS = _TEXT.split()
"""Short and common, so that most vocabularies have each as one token."""


def _tuple(given: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(given)


@frozen(kw_only=True)
class Asks:
    """What every request of a run is made from. Plain values: it crosses processes as JSON."""

    route: str
    model: str | None = None
    words: int = 64
    """Random words of a prompt."""
    vocab: int | None = None
    """Completions: a prompt is ``words`` random token ids below this, in place of words."""
    prompts: tuple[str, ...] = field(default=(), converter=_tuple)
    """Texts to send in turn, in place of random ones."""
    audio: tuple[str, ...] = field(default=(), converter=_tuple)
    """Files to send in turn."""
    audio_s: tuple[float, ...] = field(default=(), converter=_tuple)
    """How long each of them is."""
    output_tokens: int = 64
    ignore_eos: bool = False
    stream: bool = True
    """Chats and completions: their answers come as they are made."""
    voice: str | None = None
    seed: int = 0

    def request(self, number: int) -> Sent:
        """The request of that number."""
        path = ROUTES[self.route]
        if self.route == "transcriptions":
            file = self.audio[number % len(self.audio)]
            return transcribe("transcriptions", self.model, file, {}).sent
        return Sent(path=path, body=json.dumps(self._fields(number)).encode("ascii"))

    def sound_s(self, number: int) -> float:
        """Seconds of sound that the request of that number sends."""
        return self.audio_s[number % len(self.audio_s)] if self.audio_s else 0.0

    def text(self, number: int) -> str:
        """The prompt of that number."""
        if self.prompts:
            return self.prompts[number % len(self.prompts)]
        return " ".join(self._random(number).choices(WORDS, k=self.words))

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self.seed}/{number}")

    def _fields(self, number: int) -> Mapping[str, Any]:
        model = {} if self.model is None else {"model": self.model}
        if self.route == "speech":
            voice = {} if self.voice is None else {"voice": self.voice}
            return {**model, "input": self.text(number), "response_format": "pcm", **voice}
        eos = {"ignore_eos": True} if self.ignore_eos else {}
        return {
            **model,
            **self._prompt(number),
            "max_tokens": self.output_tokens,
            "temperature": 0,
            **(STREAMED if self.stream else {}),
            **eos,
        }

    def _prompt(self, number: int) -> Mapping[str, Any]:
        if self.route == "chat":
            return {"messages": [{"role": "user", "content": self.text(number)}]}
        if self.vocab is not None:
            ids = self._random(number).choices(range(self.vocab), k=self.words)
            return {"prompt": ids}
        return {"prompt": self.text(number)}


def lines_of(file: Path) -> tuple[str, ...]:
    """The prompts of a file, one a line; empty lines are none."""
    lines = file.read_text(encoding="utf-8").split("\n")
    return tuple(line.rstrip("\r") for line in lines if line.strip())


def arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds at which ``count`` requests are due: a Poisson process of ``rate`` per second."""
    gaps, at = random.Random(f"arrivals/{seed}"), 0.0
    return [at := at + gaps.expovariate(rate) for _ in range(count)]
