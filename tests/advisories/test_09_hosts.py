"""Family 9: a path that is rebuilt from ``Host``, and local servers reached through a browser.

CVE-2026-48746, CVE-2026-48710 ("BadHost"), PYSEC-2026-248, CVE-2026-49468, CVE-2025-62593.
"""

import ast

import pytest

KEY = "a-key-of-some-length"
BAD_HOSTS = [
    "localhost/live?",
    "localhost/live#",
    "localhost/live/..",
    "x/live?a=",
    "/live",
    "?",
    "#",
    "localhost:8000/live?",
    "[::1]/live?",
    "\\live",
    "@localhost/live",
    "",
]
REBOUND = ["evil.example", "evil.example:8000", "127.0.0.1.nip.example", "localhost.evil.example"]
REBUILT = {"url", "base_url", "url_for"}


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/ready", "/openapi.json"])
def test_no_host_makes_a_closed_path_an_open_one(rig, host, path):
    server = rig(keys=[KEY])
    told = server.ask(path, headers=[("host", host)])
    assert (told.status, told.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_key_is_enough_whatever_the_host(rig, host):
    headers = [("host", host), ("authorization", f"Bearer {KEY}")]
    assert rig(keys=[KEY]).ask("/v1/models", headers=headers).status == 200


@pytest.mark.parametrize("name", ["x-forwarded-host", "x-forwarded-prefix", "x-original-url"])
def test_no_other_header_is_believed(rig, name):
    server = rig(keys=[KEY])
    assert server.ask("/v1/models", headers=[(name, "/live")]).status == 401


@pytest.mark.parametrize("host", [*REBOUND, *BAD_HOSTS])
@pytest.mark.parametrize("path", ["/v1/models", "/live", "/"])
def test_without_keys_a_name_that_was_pointed_here_gets_nothing(rig, host, path):
    told = rig().ask(path, headers=[("host", host)])
    assert (told.status, told.json()["error"]["code"]) == (400, "invalid_host")
    assert "access-control-allow-origin" not in told.headers


def test_without_keys_a_form_of_another_page_gets_nothing(rig):
    server = rig()
    headers = [
        ("origin", "https://evil.example"),
        ("content-type", "multipart/form-data; boundary=x"),
    ]
    told = server.code("/v1/audio/transcriptions", b"--x--\r\n", headers=headers)
    assert told == (403, "origin_not_allowed")
    assert server.link.submitted == 0


def test_text_of_another_page_is_no_json(rig):
    server = rig()
    body = b'{"prompt": "x", "max_tokens": 1}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        told = server.code("/v1/completions", body, headers=[("content-type", kind)])
        assert told == (415, "unsupported_media_type")
    assert server.link.submitted == 0


def test_no_code_of_the_server_asks_for_a_rebuilt_address(shipped):
    found = {
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in shipped.items()
        if path.startswith("mstar_core/serving/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in REBUILT
        and ast.unparse(node.value) in ("exchange.http", "http", "self.http", "request")
    }
    assert found == set()
