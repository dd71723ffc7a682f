"""``/openapi.json``: every field has a bound, every refusal a status, every route an entry."""

import json

import pytest

from mstar_core.serving.errors import CODES
from mstar_core.serving.openapi import codes_of, openapi
from mstar_core.serving.routes.table import all_routes

OPEN_ENDED = {"string", "number", "integer", "array", "object"}


def unbounded(schema, parts, path, seen):
    """Where a value may be as large as it likes: paths into the schema."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        if name not in seen:
            seen.add(name)
            yield from unbounded(parts[name], parts, name, seen)
        return
    for key in ("anyOf", "oneOf", "allOf"):
        for index, inner in enumerate(schema.get(key, ())):
            yield from unbounded(inner, parts, f"{path}.{key}[{index}]", seen)
    if {"anyOf", "oneOf", "allOf", "enum", "const"} & set(schema):
        return
    kinds = schema.get("type", sorted(OPEN_ENDED))
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if not BOUND[kind](schema):
            yield f"{path}: {kind}"
    for name, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, parts, f"{path}.{name}", seen)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from unbounded(schema[key], parts, f"{path}.{key}", seen)
    for index, inner in enumerate(schema.get("prefixItems", ())):
        yield from unbounded(inner, parts, f"{path}[{index}]", seen)


def has_range(schema):
    low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    return bool(low & set(schema)) and bool(high & set(schema))


BOUND = {
    "null": lambda schema: True,
    "boolean": lambda schema: True,
    "string": lambda schema: bool({"maxLength", "pattern"} & set(schema)),
    "number": has_range,
    "integer": has_range,
    "array": lambda schema: "maxItems" in schema and bool({"items", "prefixItems"} & set(schema)),
    "object": lambda schema: (
        "maxProperties" in schema
        or ("properties" in schema and not isinstance(schema.get("additionalProperties"), dict))
    ),
}


@pytest.fixture(scope="module")
def document():
    return openapi(all_routes())


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def test_no_field_of_a_request_or_an_answer_is_unbounded(document):
    parts, found, seen = document["components"]["schemas"], [], set()
    for name, operation in operations(document):
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [response.get("content", {}) for response in operation["responses"].values()]
        schemas = [media["schema"] for content in contents for media in content.values() if media]
        schemas += [parameter["schema"] for parameter in operation.get("parameters", ())]
        for schema in schemas:
            found += unbounded(schema, parts, name, seen)
    assert found == []
    assert len(seen) > 20


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "number", "minimum": 0},
        {"type": "integer"},
        {"type": "array", "items": {"type": "null"}},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "null"}},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": "object", "properties": {"a": {"type": "number"}}},
        {"type": "array", "maxItems": 1, "items": {}},
        {"$ref": "#/components/schemas/Part"},
    ],
)
def test_the_walk_finds_what_is_unbounded(schema):
    assert list(unbounded(schema, {"Part": {"type": "string"}}, "x", set()))


def test_every_route_is_described_with_every_status_that_it_may_give(document):
    described = dict(operations(document))
    assert len(described) == len(all_routes())
    for route in all_routes():
        operation = described[f"{route.method} {route.path.replace(':path', '')}"]
        assert set(operation["responses"]) == {
            "200",
            *(str(CODES[code][0]) for code in codes_of(route)),
        }
        assert operation["summary"] == route.summary


def test_every_refusal_has_the_one_shape(document):
    for _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status != "200":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}


def test_open_routes_say_that_they_need_no_key(document):
    assert document["paths"]["/live"]["get"]["security"] == [{}]
    assert {"key": []} in document["paths"]["/ready"]["get"]["security"]


def test_the_route_shows_what_the_model_has(rig):
    shown = rig().ask("/openapi.json")
    assert shown.headers["content-type"] == "application/json"
    paths = json.loads(shown.body)["paths"]
    assert {"/v1/chat/completions", "/v1/models/{id}", "/live"} <= set(paths)
    assert "/v1/audio/transcriptions" not in paths


def test_before_the_model_is_known_it_shows_all(rig):
    paths = rig(card=None).ask("/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/audio/transcriptions"} <= set(paths)
