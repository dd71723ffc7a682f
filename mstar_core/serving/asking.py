"""From the fields of a text request to what the engine is asked: settings, lengths, seeds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from mstar_core.config.sampling import INT64_MAX, SamplingSettings
from mstar_core.model.front import Front, Request
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.fields import Sampled
from mstar_core.serving.protocol.reading import unsupported

T = TypeVar("T")
INLINE_CHARS = 16_384
"""Text up to this length is encoded at once; longer text would keep all others waiting."""
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)


async def encoded(num_chars: int, call: Callable[[], T]) -> T:
    """``call()``, which reads so much text: here, or in a thread where it would take long."""
    return call() if num_chars <= INLINE_CHARS else await asyncio.to_thread(call)


def check_size(exchange: Exchange, num_chars: int) -> None:
    """Raise ApiError for more text than one request may have."""
    most = exchange.service.limits.max_text_chars
    if num_chars > most:
        message = f"The request has {num_chars} characters of text; at most {most} are taken."
        raise ApiError("limit_exceeded", message)


def num_choices(exchange: Exchange, body: Sampled) -> int:
    """``n``. Raises ApiError for one past the server's limit, and for usage inside a stream."""
    if body.stream_options is not None and body.stream_options.continuous_usage_stats:
        raise unsupported("stream_options.continuous_usage_stats")
    n, most = body.n or 1, exchange.service.limits.max_choices
    if n > most:
        raise ApiError("limit_exceeded", f"`n` is {n}; at most {most} are given.", param="n")
    return n


def options_of(front: Front, body: Sampled, logprobs: int | None) -> dict[str, Any]:
    """Options of a request of ``front``; its ends come later. ``logprobs``: how many likeliest.

    What the client leaves open is as the checkpoint says, and else as OpenAI says: temperature 1.
    """
    given = {name: getattr(body, name) for name in _SAMPLING}
    sampling = {
        "temperature": 1.0,
        **front.default_sampling(),
        **{name: value for name, value in given.items() if value is not None},
    }
    bias = {int(token): value for token, value in (body.logit_bias or {}).items()}
    stop = body.stop or []
    return {
        "sampling": SamplingSettings(**sampling, logit_bias=bias, logprobs=logprobs),
        "stop": (stop,) if isinstance(stop, str) else tuple(stop),
        "priority": body.priority or 0,
    }


def bounded(exchange: Exchange, request: Request, body: Sampled, asked: int | None) -> Request:
    """``request`` with its ends: end ids, and most new tokens: ``asked``, or what has room.

    The engine ends at the model's own end ids. At those that the client names the text ends, as
    they may be a part of it; so the engine does not know them.

    Raises ApiError with all three numbers where prompt and answer are beyond the context.
    """
    front, card = exchange.service.loaded()
    limits = exchange.service.limits
    prompt = num_prompt_tokens(request)
    for name, number, most in (
        ("prompt", prompt, limits.max_prompt_tokens),
        ("max_tokens", asked or 0, limits.max_new_tokens),
    ):
        if most is not None and number > most:
            message = f"`{name}`: {number} tokens; at most {most} are taken."
            raise ApiError("limit_exceeded", message, param=name)
    room = card.max_context - prompt
    if (asked or 1) > room:
        message = (
            f"The prompt has {prompt} tokens and {asked or 1} new ones are asked for; "
            f"the context has room for {card.max_context} together."
        )
        raise ApiError("context_length_exceeded", message, param="max_tokens")
    new = asked or min(room, limits.max_new_tokens or room)
    named = frozenset(body.stop_token_ids or ())
    ends = frozenset() if body.ignore_eos else front.stop_ids - named
    return attrs.evolve(request, max_new_tokens=new, stop_ids=ends, ignore_stop_ids=not ends)


def num_prompt_tokens(request: Request) -> int:
    """Tokens of a text request's prompt."""
    return len(request.arrays["ids"])


def numbered(request: Request, index: int) -> Request:
    """The request of choice ``index``: the same, with an id and a seed of its own."""
    if index == 0:
        return request
    sampling = request.sampling
    if sampling.seed is not None:
        seed = sampling.seed + index
        sampling = attrs.evolve(sampling, seed=seed if seed <= INT64_MAX else seed - (1 << 64))
    return attrs.evolve(request, sampling=sampling, id=uuid.uuid4().hex)
