"""Family 3: numbers that are none, in every numeric field of every route.

CVE-2026-54235 / GHSA-7h4p-rffg-7823.
"""

import json

import pytest

from mstar_core.serving.openapi import openapi
from mstar_core.serving.routes.table import all_routes

NO_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "true", "false", "[]", "{}")
AS_TEXT = ('"nan"', '"inf"', '"1"', '""')
BEYOND = ("1e308", "-1e308", "123456789012345678901234567890", "-123456789012345678901234567890")
HERE = '"@@"'


def fields(schema, parts, at, kinds, depth=0):
    """(path, other kinds allowed there) of each place in ``schema`` that has one of ``kinds``."""
    if depth > 12:
        return
    if name := schema.get("$ref", "").rpartition("/")[2]:
        yield from fields(parts[name], parts, at, kinds, depth + 1)
    options = schema.get("anyOf", [schema])
    allowed = {option.get("type") for option in options}
    for option in options:
        if option.get("type") in kinds and "enum" not in option and "const" not in option:
            yield at, allowed
        for key, inner in option.get("properties", {}).items():
            yield from fields(inner, parts, (*at, key), kinds, depth + 1)
        if isinstance(option.get("items"), dict):
            yield from fields(option["items"], parts, (*at, 0), kinds, depth + 1)
        if isinstance(option.get("additionalProperties"), dict):
            yield from fields(option["additionalProperties"], parts, (*at, "7"), kinds, depth + 1)
        if "$ref" in option and option is not schema:
            yield from fields(option, parts, at, kinds, depth + 1)


def body_with(path, text):
    """A body that has ``text`` at ``path`` and nothing else."""
    value = "@@"
    for key in reversed(path):
        value = [value] if key == 0 else {key: value}
    return json.dumps(value).replace(HERE, text).encode()


def places(kinds):
    document = openapi(all_routes())
    parts = document["components"]["schemas"]
    for path, item in document["paths"].items():
        content = item.get("post", {}).get("requestBody", {}).get("content", {})
        if media := content.get("application/json"):
            for at, allowed in fields(media["schema"], parts, (), kinds):
                yield path, at, allowed


NUMBERS = sorted(
    {(path, at, tuple(sorted(map(str, all_)))) for path, at, all_ in places({"number", "integer"})}
)
TEXTS = sorted({(path, at) for path, at, _ in places({"string"})})


def test_there_are_as_many_as_the_routes_have():
    assert len(NUMBERS) >= 36
    assert len(TEXTS) > 20
    found = {at[0] for _, at, _ in NUMBERS}
    assert {"temperature", "top_p", "logit_bias", "seed", "n", "max_tokens"} <= found


def test_every_numeric_field_refuses_what_is_no_number(rig):
    server = rig()
    for path, at, allowed in NUMBERS:
        bad = [*NO_NUMBERS, *(() if "string" in allowed else AS_TEXT)]
        for text in bad:
            if text == "[]" and "array" in allowed:
                continue
            status, code = server.code(path, body_with(at, text))
            assert (status, code in ("invalid_json", "invalid_value")) == (400, True), (at, text)
    assert server.link.submitted == 0
    server.check_good()


def test_every_numeric_field_has_two_ends(rig):
    server = rig()
    for path, at, _ in NUMBERS:
        for text in BEYOND:
            assert server.code(path, body_with(at, text)) == (400, "invalid_value"), (at, text)
    assert server.link.submitted == 0


def test_every_text_field_refuses_half_a_character(rig):
    server = rig()
    for path, at in TEXTS:
        for text in (rb'"\ud800"', rb'"\udc00x"', b'"\xff\xfe"', b'"\xed\xa0\x80"'):
            body = body_with(at, '"@@"').replace(b'"@@"', text)
            assert server.code(path, body) == (400, "invalid_json"), (path, at, text)
    assert server.link.submitted == 0


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "infinity", "1e999", "true", "", "0x1"])
@pytest.mark.parametrize("name", ["temperature", "seed"])
def test_a_form_is_no_way_around(rig, name, text):
    body = (
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        '--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n--x--\r\n'
    )
    headers = [("content-type", "multipart/form-data; boundary=x")]
    told = rig().code("/v1/audio/transcriptions", body.encode(), headers=headers)
    assert told == (400, "invalid_value")
