"""A JSON body as its type: what is unknown in it is told, what is not offered is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs

from mstar_core.serving.codec import Raw, from_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange

WARNING = "x-mstar-warning"
MAX_NAMED = 8
"""Unknown fields that are named."""
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


async def body_of(exchange: Exchange, type: Any, no_ops: Mapping[str, tuple[object, ...]]) -> Any:
    """The body as ``type``. Raises ApiError.

    A field in ``no_ops`` is known and not offered: it may have one of the values there, which ask
    for nothing. A field that nobody knows is told in a header, or refused where the server is
    strict.
    """
    data = await exchange.http.body()
    given = from_json(data, dict[str, Raw])
    known = names_of(type)
    extra = [name for name in given if name not in known]
    check_extra(
        exchange,
        {n: from_json(bytes(given[n]), Any) if n in no_ops else None for n in extra},
        no_ops,
    )
    return from_json(data, type)


def check_extra(
    exchange: Exchange, extra: Mapping[str, Any], no_ops: Mapping[str, tuple[object, ...]]
) -> None:
    """See to the fields ``extra``, which the type of a body does not have. Raises ApiError."""
    for name, value in extra.items():
        if name in no_ops and value not in no_ops[name]:
            raise unsupported(name)
    unknown = [_shown(name) for name in extra if name not in no_ops]
    if unknown:
        named = ", ".join(unknown[:MAX_NAMED])
        if exchange.service.server.strict:
            raise ApiError("unknown_field", f"Unknown fields: {named}.", param=unknown[0])
        exchange.headers[WARNING] = f"unknown fields: {named}"


def unsupported(name: str, why: str = "This server does not offer it") -> ApiError:
    """The refusal of a field that is known and not offered."""
    return ApiError("unsupported_field", f"`{name}`: {why}.", param=name)


def check_model(exchange: Exchange, model: str | None) -> None:
    """Raise ApiError ``model_not_found`` unless ``model`` is the served one, or none is named."""
    _, card = exchange.service.loaded()
    if model is not None and model != card.name:
        raise ApiError(
            "model_not_found", f"No such model; this server has `{card.name}`.", param="model"
        )


@cache
def names_of(type: Any) -> frozenset[str]:
    """The fields of ``type``."""
    return frozenset(each.name for each in attrs.fields(type))


def _shown(name: str) -> str:
    return name if _NAME.fullmatch(name) else "?"
