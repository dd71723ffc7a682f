"""``/openapi.json``: the route table as a document, from the types that requests are read into."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mstar_core import __version__
from mstar_core.serving.codec import schemas
from mstar_core.serving.errors import CODES
from mstar_core.serving.routes import Route

ANYWHERE = ("limit_exceeded", "invalid_host", "invalid_api_key", "origin_not_allowed")
ANYWHERE_LATE = ("request_timeout", "internal_error")
OF_BODY = ("invalid_json", "invalid_value", "missing_field", "unsupported_field", "unknown_field")
OF_BODY_EARLY = ("body_too_large", "unsupported_media_type")
OF_MODEL = (
    "route_not_offered",
    "model_not_found",
    "rate_limit_exceeded",
    "overloaded",
    "request_failed",
    "not_ready",
    "draining",
    "engine_restarted",
    "cancelled",
)
ERROR = "Error"
_JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 of ``routes``; every error's code and status is listed with its operation."""
    routes = list(routes)
    bodies = [route.body for route in routes if route.body is not None]
    types = list(dict.fromkeys([*bodies, *(t for route in routes for t in answers_of(route))]))
    made, parts = schemas(types)
    of_type = dict(zip(types, made, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, of_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mstar-core", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**parts, ERROR: _error_schema()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def codes_of(route: Route) -> list[str]:
    """Every code that ``route`` may answer with."""
    codes = [*ANYWHERE, *ANYWHERE_LATE, *route.codes]
    if route.body is not None:
        codes += [*OF_BODY, *OF_BODY_EARLY]
    if route.capability is not None:
        codes += OF_MODEL
    return list(dict.fromkeys(codes))


def answers_of(route: Route) -> tuple[Any, ...]:
    """The types of JSON that ``route`` answers with."""
    if route.answer is None:
        return ()
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def _operation(route: Route, of_type: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z]+', '_', route.path)}".strip("_"),
        "responses": {"200": _answer(route, of_type), **_refusals(route)},
        "security": [{}] if route.open else [{"key": []}, {}],
    }
    if names := _PARAMETER.findall(route.path):
        operation["parameters"] = [_parameter(name) for name in names]
    if route.body is not None:
        kinds = ["multipart/form-data", _JSON] if route.form else [_JSON]
        content = {kind: {"schema": of_type[route.body]} for kind in kinds}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _answer(route: Route, of_type: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {media: {} for media in (route.answer_media, *route.also)}
    if answers := [of_type[answer] for answer in answers_of(route)]:
        content[_JSON] = {"schema": answers[0] if len(answers) == 1 else {"anyOf": answers}}
    if route.streams:
        content["text/event-stream"] = {}
    return {"description": "The answer", "content": content}


def _refusals(route: Route) -> dict[str, Any]:
    """By status: the codes that have it."""
    by_status: dict[int, list[str]] = {}
    for code in codes_of(route):
        by_status.setdefault(CODES[code][0], []).append(code)
    schema = {"$ref": f"#/components/schemas/{ERROR}"}
    return {
        str(status): {"description": ", ".join(codes), "content": {_JSON: {"schema": schema}}}
        for status, codes in sorted(by_status.items())
    }


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 256}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _error_schema() -> dict[str, Any]:
    """The one shape of every refusal."""
    facts = {
        "message": {"type": "string", "maxLength": 65536},
        "type": {"enum": sorted({kind for _, kind in CODES.values()})},
        "param": {"type": ["string", "null"], "maxLength": 1024},
        "code": {"enum": sorted(CODES)},
    }
    error = {
        "type": "object",
        "properties": facts,
        "required": list(facts),
        "additionalProperties": False,
    }
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}
