"""The body of a request that brings sound: its fields, and its file in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mstar_core.serving.body import media_type
from mstar_core.serving.codec import from_form
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.multipart import Form, read_form
from mstar_core.serving.protocol.audio import HEARING_NO_OPS, HearingBody
from mstar_core.serving.protocol.reading import (
    body_of,
    check_extra,
    check_model,
    names_of,
    unsupported,
)
from mstar_core.serving.streaming import attended

FILE = "file"


@asynccontextmanager
async def upload(exchange: Exchange) -> AsyncIterator[tuple[HearingBody, int]]:
    """The fields, and the file's descriptor, which the end of the block closes. Raises ApiError.

    A body of JSON, or a form without a file, names a ``url`` that the sound is fetched from.
    """
    if media_type(exchange.http) == "application/json":
        form, body = Form(), await body_of(exchange, HearingBody, HEARING_NO_OPS)
    else:
        form, body = await read_form(exchange.http, FILE), None
    with form:
        body = body or _of_form(exchange, form)
        _check(exchange, body)
        if form.file is not None and body.url is not None:
            message = f"Send `{FILE}` or `url`, and one of them."
            raise ApiError("invalid_value", message, param="url")
        if form.file is None:
            form.file = await _fetched(exchange, body)
        yield body, form.file


def _of_form(exchange: Exchange, form: Form) -> HearingBody:
    known = names_of(HearingBody)
    extra = {_whole(name): values[-1] for name, values in form.fields.items() if name not in known}
    check_extra(exchange, extra, HEARING_NO_OPS)
    body: HearingBody = from_form(form.fields, HearingBody)
    return body


def _whole(name: str) -> str:
    """The field that ``name`` is a part of: ``a[b]`` is how a form has an object's ``b``."""
    return name.partition("[")[0]


def _check(exchange: Exchange, body: HearingBody) -> None:
    """Raise ApiError for what the fields ask for together and there is not."""
    check_model(exchange, body.model)
    if body.include:
        raise unsupported("include")
    if body.stream and body.response_format not in ("json", "text"):
        raise unsupported("stream", "Only `json` and `text` are streamed")
    most = exchange.service.limits.max_text_chars
    for name, text in (("prompt", body.prompt), ("hotwords", body.hotwords)):
        if len(text) > most:
            message = f"`{name}` has {len(text)} characters; at most {most} are taken."
            raise ApiError("limit_exceeded", message, param=name)


async def _fetched(exchange: Exchange, body: HearingBody) -> int:
    if body.url is None:
        raise ApiError("missing_field", f"`{FILE}` is missing.", param=FILE)
    return await attended(exchange, exchange.service.fetcher.fetch(body.url))
