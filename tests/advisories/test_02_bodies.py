"""Family 2: uploads read whole before their limit, and forms without one.

CVE-2026-55646 / GHSA-v82g-2437-67m2, CVE-2024-47874, CVE-2026-42561, CVE-2026-40347,
CVE-2025-62727.
"""

import ast
import re
import tomllib
from importlib.metadata import version

import pytest
from packaging.version import Version

from .conftest import ROOT

MIB = 1 << 20
FORM = [("content-type", "multipart/form-data; boundary=x")]
SOUND = "/v1/audio/transcriptions"
FILES = {"FileResponse", "StaticFiles"}


def part(name, data=b"1", more=b""):
    head = b'--x\r\ncontent-disposition: form-data; name="' + name + b'"' + more + b"\r\n\r\n"
    return head + data + b"\r\n"


def test_every_route_counts_while_it_receives(rig, model_routes):
    server = rig(limits={"max_body_bytes": MIB})
    for route in model_routes:
        for headers in ([], FORM) if route.form else ([],):
            chunks = [b"--x\r\n" if headers else b'{"'] + [b"a" * 65536] * 17
            told = server.code(route.path, chunks, headers=headers, stalls=True)
            assert told in ((413, "body_too_large"), (400, "invalid_value")), route.path
    server.check_good()


@pytest.mark.parametrize("headers", [[], FORM])
def test_an_endless_file_is_cut_off_at_the_limit(rig, headers):
    server = rig(limits={"max_body_bytes": MIB})
    first = part(b"file", b"", b'; filename="a"').removesuffix(b"\r\n") if headers else b'{"a":"'
    chunks = [first] + [b"a" * 65536] * 32
    assert server.code(SOUND, chunks, headers=headers, stalls=True) == (413, "body_too_large")


def test_a_form_has_few_parts(rig):
    body = b"".join(part(b"f%d" % index) for index in range(65)) + b"--x--\r\n"
    assert rig().code(SOUND, body, headers=FORM) == (400, "limit_exceeded")


def test_a_field_that_is_no_file_is_short(rig):
    body = part(b"prompt", b"a" * (65536 + 1)) + b"--x--\r\n"
    assert rig().code(SOUND, body, headers=FORM) == (400, "limit_exceeded")


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\n" + b"".join(b"h%d: 1\r\n" % index for index in range(9)) + b"\r\n1\r\n--x--\r\n",
        b"--x\r\nh: " + b"a" * 5000 + b"\r\n\r\n1\r\n--x--\r\n",
        part(b"a" * 300) + b"--x--\r\n",
    ],
    ids=["many headers", "a long header", "a long name"],
)
def test_a_part_has_few_and_short_headers(rig, body):
    assert rig().code(SOUND, body, headers=FORM) == (400, "invalid_value")


@pytest.mark.parametrize("body", [b"a" * 300_000, b"\r\n" * 150_000, b"--y\r\n" * 60_000])
def test_what_stands_before_the_first_part_is_not_collected(rig, body):
    told = rig().ask(SOUND, [body] * 4, headers=FORM)
    assert told.status == 400


def test_a_second_file_is_refused(rig):
    twice = part(b"file", b"1", b'; filename="a"') * 2 + b"--x--\r\n"
    assert rig().code(SOUND, twice, headers=FORM) == (400, "invalid_value")


def test_the_parsers_are_those_in_which_it_is_repaired():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floors = dict(
        re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups()
        for line in project["optional-dependencies"]["serve"]
    )
    assert Version(floors["starlette"]) >= Version("1.3.1")
    assert Version(floors["python-multipart"]) >= Version("0.0.27")
    for name in ("starlette", "python-multipart"):
        assert Version(version(name)) >= Version(floors[name])


def test_no_file_is_served_by_ranges(shipped):
    names = {
        f"{path}: {node.id}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in FILES
    }
    assert names == set()
