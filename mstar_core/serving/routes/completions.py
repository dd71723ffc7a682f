"""``/v1/completions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from mstar_core.model.answer import PlainAnswer
from mstar_core.model.front import Request
from mstar_core.serving import asking
from mstar_core.serving.answering import Whole, answered, choices_of
from mstar_core.serving.chunks import TextChunks
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.protocol.completions import (
    MAX_CHOICES,
    NO_OPS,
    Completion,
    CompletionBody,
    TextChoice,
)
from mstar_core.serving.protocol.reading import body_of, check_model, unsupported
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.chat import CODES
from mstar_core.serving.scores import text_logprobs


async def completions(exchange: Exchange) -> Response:
    """Continue one text or several."""
    front, _ = exchange.service.loaded()
    body: CompletionBody = await body_of(exchange, CompletionBody, NO_OPS)
    check_model(exchange, body.model)
    if body.echo and body.logprobs is not None:
        raise unsupported("echo", "Prompts have no log-probabilities here, so not with `logprobs`")
    n = asking.num_choices(exchange, body)
    prompts = prompts_of(body.prompt)
    if len(prompts) * n > MAX_CHOICES:
        message = f"{len(prompts)} prompts with `n` {n}; at most {MAX_CHOICES} texts are given."
        raise ApiError("limit_exceeded", message, param="prompt")
    asking.check_size(exchange, sum(len(p) for p in prompts if isinstance(p, str)))
    options = asking.options_of(front, body, body.logprobs)
    requests = [await _request(exchange, prompt, options) for prompt in prompts]
    requests = [asking.bounded(exchange, request, body, body.max_tokens) for request in requests]
    said = [_said(exchange, prompt) if body.echo else "" for prompt in prompts]

    def write(wholes: Sequence[Whole], made: Mapping[str, Any]) -> Completion:
        return Completion(choices=[_choice(exchange, body, whole) for whole in wholes], **made)

    choices = choices_of(front, body, requests, n, lambda own: PlainAnswer())
    for choice in choices:
        choice.echo = said[choice.index // n]
    return await answered(exchange, body, choices, TextChunks, write, "cmpl")


def prompts_of(prompt: str | list[Any]) -> list[str | list[int]]:
    """Each prompt of a request: its text, or its ids. Raises ApiError for one without anything."""
    prompts = prompt if isinstance(prompt, list) else [prompt]
    kinds = {type(each) for each in prompts}
    if len(kinds) > 1:
        message = "`prompt` is a text, a list of texts, a list of ids, or a list of lists of ids."
        raise ApiError("invalid_value", message, param="prompt")
    if kinds == {int}:
        prompts = [prompts]
    for index, each in enumerate(prompts or [""]):
        if not each:
            raise ApiError("empty_prompt", f"Prompt {index} is empty.", param="prompt")
    return prompts


async def _request(
    exchange: Exchange, prompt: str | list[int], options: Mapping[str, Any]
) -> Request:
    front, _ = exchange.service.loaded()
    make = front.text_request if isinstance(prompt, str) else front.ids_request
    return await asking.encoded(len(prompt), partial(make, prompt, **options))  # type: ignore[arg-type]


def _said(exchange: Exchange, prompt: str | list[int]) -> str:
    front, _ = exchange.service.loaded()
    return prompt if isinstance(prompt, str) else front.decode(prompt)


def _choice(exchange: Exchange, body: CompletionBody, whole: Whole) -> TextChoice:
    front, _ = exchange.service.loaded()
    choice = whole.choice
    return TextChoice(
        index=choice.index,
        text=whole.content,
        logprobs=None if body.logprobs is None else text_logprobs(front, whole.scored),
        finish_reason=choice.finish,  # type: ignore[arg-type]  # it is over
        stop_reason=choice.stop,
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/completions",
        handler=completions,
        summary="Continue text",
        capability="text",
        body=CompletionBody,
        answer=Completion,
        streams=True,
        codes=(*CODES, "empty_prompt"),
    ),
)
