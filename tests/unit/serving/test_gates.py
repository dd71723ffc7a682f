"""Hosts, origins, keys and headers: who gets in, by nothing but the scope."""

import pytest
from starlette.responses import Response

from mstar_core.serving.gates.host import name_of
from mstar_core.serving.routes import Route

KEY, OTHER = "first-key-of-some-length", "second-key-of-some-length"


async def hello(exchange):
    return Response(exchange.key)


ROUTES = [
    Route(method="GET", path="/v1/do", handler=hello, summary="A test's"),
    Route(method="GET", path="/live", handler=hello, summary="A test's", open=True),
]


def bearer(key):
    return ("authorization", f"Bearer {key}")


class TestKeys:
    """With keys set, each is asked for on everything that is not declared open."""

    @pytest.fixture
    def server(self, rig):
        return rig(routes=ROUTES, keys=[KEY, OTHER])

    @pytest.mark.parametrize(("key", "label"), [(KEY, b"1"), (OTHER, b"2")])
    def test_each_key_lets_in_under_its_own_label(self, server, key, label):
        told = server.ask("/v1/do", headers=[bearer(key)])
        assert (told.status, told.body) == (200, label)

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("authorization", KEY)],
            [("authorization", f"Basic {KEY}")],
            [("authorization", "Bearer ")],
            [bearer(KEY[:-1])],
            [bearer(KEY + "x")],
            [bearer(KEY.upper())],
            [bearer(KEY), bearer(KEY)],
            [("x-api-key", KEY)],
        ],
    )
    def test_anything_else_is_a_401(self, server, headers):
        told = server.ask("/v1/do", headers=headers)
        assert (told.status, told.json()["error"]["code"]) == (401, "invalid_api_key")
        assert told.headers["www-authenticate"] == "Bearer"

    def test_the_scheme_is_read_in_any_case(self, server):
        assert server.ask("/v1/do", headers=[("Authorization", f"bearer {KEY}")]).status == 200

    def test_live_is_open_and_what_is_no_route_is_not(self, server):
        assert server.ask("/live").status == 200
        for path in ("/nothing", "/live/", "//live", "/live/../v1/do", "/LIVE", "/live%2f", ""):
            assert server.ask(path).status == 401

    def test_a_wrong_method_on_a_closed_path_tells_nothing(self, server):
        assert server.ask("/v1/do", method="OPTIONS").status == 401
        assert server.ask("/v1/do", b"x").status == 401

    def test_any_host_will_do(self, server):
        told = server.ask("/v1/do", headers=[bearer(KEY), ("host", "api.example.org")])
        assert told.status == 200


class TestHosts:
    """Without keys, a request must name this machine; ``Host`` decides nothing else."""

    @pytest.mark.parametrize(
        "host",
        [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "127.0.0.1",
            "[::1]:8000",
            "[::1]",
            "192.168.0.7:80",
            "my.lab",
            "box",
        ],
    )
    def test_names_of_this_machine_and_addresses_get_in(self, rig, host):
        server = rig(routes=ROUTES, server={"host": "box", "allowed_hosts": ("my.lab",)})
        assert server.ask("/v1/do", headers=[("host", host)]).status == 200

    @pytest.mark.parametrize(
        "host",
        [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.example:8000",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost/live",
            "localhost?x",
            "localhost#",
            "localhost:99999",
            "localhost:8000:1",
            "[::1",
            "a b",
            "localhost\\x",
        ],
    )
    def test_every_other_host_is_a_400(self, rig, host):
        told = rig(routes=ROUTES).ask("/v1/do", headers=[("host", host)])
        assert (told.status, told.json()["error"]["code"]) == (400, "invalid_host")

    def test_two_hosts_are_none(self, rig):
        hosts = [("host", "localhost"), ("host", "localhost")]
        assert rig(routes=ROUTES).ask("/v1/do", headers=hosts).status == 400

    @pytest.mark.parametrize(
        ("origin", "status"),
        [
            ("http://localhost:8000", 200),
            ("https://localhost:8000", 200),
            ("https://ours.example", 200),
            ("https://evil.example", 403),
            ("http://localhost:9", 403),
            ("null", 403),
            ("file://localhost:8000", 403),
        ],
    )
    def test_a_page_must_be_our_own_or_listed(self, rig, origin, status):
        server = rig(routes=ROUTES, server={"cors_origins": ("https://ours.example",)})
        headers = [("host", "localhost:8000"), ("origin", origin)]
        assert server.ask("/v1/do", headers=headers).status == status

    def test_a_star_lets_every_page_in(self, rig):
        server = rig(routes=ROUTES, server={"cors_origins": ("*",)})
        assert server.ask("/v1/do", headers=[("origin", "https://any.example")]).status == 200

    def test_a_name_is_read_as_browsers_send_it(self):
        assert name_of("ExAmple.org:80") == "example.org"
        assert name_of("[fe80::1]:80") == "fe80::1"


class TestCors:
    """Only listed origins may read answers, and no credentials are ever allowed."""

    def preflight(self, rig, origin, **server):
        headers = [("origin", origin), ("access-control-request-method", "POST")]
        return rig(routes=ROUTES, keys=[KEY], server=server).ask(
            "/v1/do", method="OPTIONS", headers=headers
        )

    def test_a_listed_origin_is_answered_before_keys_are_asked_for(self, rig):
        told = self.preflight(rig, "https://ours.example", cors_origins=("https://ours.example",))
        assert told.status == 204
        assert told.headers["access-control-allow-origin"] == "https://ours.example"
        assert told.headers["access-control-allow-methods"] == "GET, POST"
        allowed = told.headers["access-control-allow-headers"].split(", ")
        assert "authorization" in allowed  # which the star does not stand for
        assert "*" in allowed  # client libraries send headers of their own
        assert "access-control-allow-credentials" not in told.headers

    def test_a_refusal_can_be_read_by_the_page(self, rig):
        server = rig(routes=ROUTES, keys=[KEY], server={"cors_origins": ("https://ours.example",)})
        told = server.ask("/v1/do", headers=[("origin", "https://ours.example")])
        assert told.status == 401
        assert told.headers["access-control-allow-origin"] == "https://ours.example"
        assert told.headers["vary"] == "Origin"

    @pytest.mark.parametrize("listed", [(), ("https://ours.example",)])
    def test_another_origin_gets_no_header(self, rig, listed):
        told = self.preflight(rig, "https://evil.example", cors_origins=listed)
        assert told.status == 401
        assert "access-control-allow-origin" not in told.headers

    def test_a_star_allows_all_without_credentials(self, rig):
        told = self.preflight(rig, "https://any.example", cors_origins=("*",))
        assert told.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in told.headers


def test_more_than_64_headers_are_a_400(rig):
    server = rig(routes=ROUTES)
    assert server.ask("/v1/do", headers=[(f"x-{i}", "1") for i in range(63)]).status == 200
    told = server.ask("/v1/do", headers=[(f"x-{i}", "1") for i in range(64)])
    assert (told.status, told.json()["error"]["code"]) == (400, "limit_exceeded")
