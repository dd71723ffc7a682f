"""The frame around every route: ids, errors in one shape, time-outs, the line at the end."""

import asyncio
import logging

import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from mstar_core.errors import RequestError
from mstar_core.serving.errors import CODES, ApiError
from mstar_core.serving.link import EngineState
from mstar_core.serving.routes import Route

ERROR_KEYS = {"message", "type", "param", "code"}


def route(handler, path="/v1/do", method="POST", **more):
    return Route(method=method, path=path, handler=handler, summary="A test's", **more)


async def echo(exchange):
    return Response(await exchange.http.body())


async def broken(exchange):
    raise KeyError("/dev/shm/secret at 0x7ffeee123456")


def check_error(told, code):
    """A refusal is in the one shape, and says its id."""
    assert told.status == CODES[code][0]
    assert told.headers["content-type"] == "application/json"
    error = told.json()["error"]
    assert set(error) == ERROR_KEYS
    assert (error["code"], error["type"]) == (code, CODES[code][1])
    assert told.headers["x-request-id"]


def test_an_answer_repeats_the_clients_id(rig):
    told = rig(routes=[route(echo)]).ask("/v1/do", b"x", headers=[("x-request-id", "a-1.b:2_C")])
    assert (told.status, told.headers["x-request-id"]) == (200, "a-1.b:2_C")


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\r\nset-cookie: b", "{}"])
def test_an_id_that_is_not_sane_is_replaced(rig, given):
    told = rig(routes=[route(echo)]).ask("/v1/do", b"x", headers=[("x-request-id", given)])
    assert told.headers["x-request-id"] != given
    assert len(told.headers["x-request-id"]) == 32


def test_a_path_without_route_is_a_404(rig):
    check_error(rig(routes=[route(echo)]).ask("/v1/other"), "route_not_found")


def test_another_method_is_a_405_that_says_which(rig):
    told = rig(routes=[route(echo)]).ask("/v1/do")
    check_error(told, "method_not_allowed")
    assert told.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("method", ["DELETE", "TRACE", "PATCH", "BREW", "CONNECT"])
def test_a_method_that_nobody_knows_is_a_405(rig, method):
    check_error(rig(routes=[route(echo)]).ask("/v1/do", method=method), "method_not_allowed")


def test_options_says_what_a_path_takes(rig):
    told = rig(routes=[route(echo, method="GET")]).ask("/v1/do", method="OPTIONS")
    assert (told.status, told.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


def test_head_is_a_get_without_its_body(rig):
    async def hello(exchange):
        return Response(b"hello")

    told = rig(routes=[route(hello, method="GET")]).ask("/v1/do", method="HEAD")
    assert (told.status, told.headers["content-length"], told.body) == (200, "5", b"")


def test_head_of_nothing_is_a_404_without_a_body(rig):
    told = rig(routes=[]).ask("/x", method="HEAD")
    assert (told.status, told.body) == (404, b"")


def test_what_a_handler_did_not_mean_to_raise_is_a_500_that_tells_nothing(rig, caplog):
    told = rig(routes=[route(broken)]).ask("/v1/do", b"x")
    check_error(told, "internal_error")
    assert b"secret" not in told.body
    assert b"0x7f" not in told.body
    assert "KeyError" in caplog.text
    assert told.headers["x-request-id"] in caplog.text


def test_a_timeout_of_the_handlers_own_is_no_request_timeout(rig):
    async def late(exchange):
        raise TimeoutError

    check_error(rig(routes=[route(late)]).ask("/v1/do", b"x"), "internal_error")


def test_a_request_error_is_told_with_its_facts(rig):
    async def refuse(exchange):
        raise RequestError(where="max_tokens", got=0, want="at least 1", fix="ask for more")

    told = rig(routes=[route(refuse)]).ask("/v1/do", b"x")
    check_error(told, "invalid_value")
    error = told.json()["error"]
    assert error["param"] == "max_tokens"
    assert error["message"] == "max_tokens: 0; allowed: at least 1. To fix it, ask for more."


def test_an_error_that_knows_when_says_so_in_whole_seconds(rig):
    async def refuse(exchange):
        raise ApiError("overloaded", "Full.", retry_after_s=2.1)

    assert rig(routes=[route(refuse)]).ask("/v1/do", b"x").headers["retry-after"] == "3"


def test_a_request_that_takes_too_long_is_a_408(rig):
    async def sleep(exchange):
        await asyncio.sleep(60)

    told = rig(routes=[route(sleep)], limits={"request_timeout_s": 0.05}).ask("/v1/do", b"x")
    check_error(told, "request_timeout")


def events(*chunks, then):
    async def stream():
        for chunk in chunks:
            yield chunk
        await then()

    async def handler(exchange):
        return StreamingResponse(stream(), media_type="text/event-stream")

    return handler


async def fail():
    raise ValueError("inside")


async def sleep():
    await asyncio.sleep(60)


@pytest.mark.parametrize(("then", "code"), [(fail, "internal_error"), (sleep, "request_timeout")])
def test_a_stream_that_fails_ends_with_an_error_event(rig, then, code):
    handler = events(b"data: {}\n\n", then=then)
    told = rig(routes=[route(handler)], limits={"request_timeout_s": 0.2}).ask("/v1/do", b"x")
    assert told.status == 200
    first, second, rest = told.body.split(b"\n\n")
    assert (first, rest) == (b"data: {}", b"")
    assert second.startswith(b'data: {"error":{"message":')
    assert f'"code":"{code}"'.encode() in second
    assert told.is_complete


def test_sound_that_fails_midway_is_cut_off(rig):
    async def stream():
        yield b"RIFF"
        raise ValueError("inside")

    async def handler(exchange):
        return StreamingResponse(stream(), media_type="audio/wav")

    told = rig(routes=[route(handler)]).ask("/v1/do", b"x")
    assert (told.status, told.body, told.is_complete) == (200, b"RIFF", False)


def test_headers_of_the_exchange_are_in_every_answer(rig):
    async def warn(exchange):
        exchange.headers["x-mstar-warning"] = "unknown fields: é\N{SNOWMAN}"
        raise ApiError("invalid_value", "No.")

    told = rig(routes=[route(warn)]).ask("/v1/do", b"x")
    assert told.headers["x-mstar-warning"] == "unknown fields: é?"


class TestModelRoutes:
    """What is asked before the handler of a route that needs the model."""

    def ask(self, rig, phase="ready", capability="text", **more):
        link = more.pop("link")(EngineState(phase=phase, eta_s=more.pop("eta_s", None)))
        routes = [route(echo, capability=capability)]
        return rig(routes=routes, link=link, **more).ask("/v1/do", b"x")

    def test_a_ready_model_is_asked(self, rig, standing_link):
        assert self.ask(rig, link=standing_link).body == b"x"

    @pytest.mark.parametrize("phase", ["starting", "warmup", "stalled", "restarting"])
    def test_before_and_between_it_is_a_503_that_says_when(self, rig, standing_link, phase):
        told = self.ask(rig, phase, link=standing_link, eta_s=4.2)
        check_error(told, "not_ready")
        assert told.headers["retry-after"] == "5"

    def test_a_model_that_nobody_knows_yet_is_not_ready(self, rig, standing_link):
        check_error(self.ask(rig, link=standing_link, card=None), "not_ready")

    def test_a_draining_server_takes_nothing_new(self, rig, standing_link):
        check_error(self.ask(rig, "draining", link=standing_link), "draining")

    def test_a_capability_that_the_model_lacks_is_a_404(self, rig, standing_link):
        told = self.ask(rig, "draining", "speech", link=standing_link)
        check_error(told, "route_not_offered")


class TestJsonRoutes:
    """A route with a body type gets JSON, in full and not too deep."""

    def rig(self, rig, **more):
        return rig(routes=[route(echo, body=dict)], **more)

    @pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
    def test_another_media_type_is_a_415(self, rig, kind):
        told = self.rig(rig).ask("/v1/do", b"{}", headers=[("content-type", kind)])
        check_error(told, "unsupported_media_type")

    def test_parameters_and_case_of_the_media_type_do_not_matter(self, rig):
        kind = ("Content-Type", "Application/JSON; charset=utf-8")
        assert self.rig(rig).ask("/v1/do", b"{}", headers=[kind]).body == b"{}"

    def test_a_body_as_deep_as_allowed_is_taken_and_a_deeper_one_is_a_400(self, rig):
        server = self.rig(rig, limits={"max_json_depth": 8})
        assert server.ask("/v1/do", b"[" * 8 + b"]" * 8).status == 200
        check_error(server.ask("/v1/do", b"[" * 9 + b"]" * 9), "limit_exceeded")

    def test_brackets_in_text_are_no_depth(self, rig):
        server = self.rig(rig, limits={"max_json_depth": 8})
        assert server.ask("/v1/do", b'{"a": "' + b"[" * 99 + b'"}').status == 200

    def test_a_form_route_takes_forms_and_json(self, rig):
        server = rig(routes=[route(echo, body=dict, form=True)])
        form = ("content-type", "multipart/form-data; boundary=x")
        assert server.ask("/v1/do", b"--x--", headers=[form]).status == 200
        assert server.ask("/v1/do", b"{}").status == 200
        other = server.ask("/v1/do", b"x", headers=[("content-type", "text/plain")])
        check_error(other, "unsupported_media_type")


class TestCompletionLine:
    """One line for each request, at its end."""

    def fields(self, caplog, server, *request, **how):
        with caplog.at_level(logging.DEBUG, "mstar_core.serving.requests"):
            told = server.ask(*request, **how)
        (record,) = [r for r in caplog.records if r.name == "mstar_core.serving.requests"]
        return told, record.fields, record

    def test_it_says_what_the_handler_filled_in_and_nothing_else(self, rig, caplog):
        async def answer(exchange):
            exchange.line.update(outcome="stop", prompt_tokens=3, output_tokens=2, secret="text")
            return Response(b"hi")

        server = rig(routes=[route(answer, capability="text")])
        told, fields, record = self.fields(caplog, server, "/v1/do", b"x")
        assert record.levelno == logging.INFO
        assert fields.pop("total_ms") > 0
        assert fields == {
            "id": told.headers["x-request-id"],
            "route": "/v1/do",
            "status": 200,
            "outcome": "stop",
            "prompt_tokens": 3,
            "output_tokens": 2,
        }
        assert "secret" not in record.getMessage()
        assert "outcome=stop prompt_tokens=3" in record.getMessage()

    def test_other_routes_are_told_at_debug(self, rig, caplog):
        _, fields, record = self.fields(caplog, rig(), "/live")
        assert (record.levelno, fields["route"], fields["outcome"]) == (
            logging.DEBUG,
            "/live",
            "ok",
        )

    def test_the_key_is_told_by_its_place(self, rig, caplog):
        server = rig(routes=[route(echo)], keys=["k" * 20, "m" * 20])
        bearer = ("authorization", f"Bearer {'m' * 20}")
        _, fields, record = self.fields(caplog, server, "/v1/do", b"x", headers=[bearer])
        assert fields["key"] == "2"
        assert "mmmm" not in record.getMessage()

    @pytest.mark.parametrize(
        ("code", "outcome"),
        [
            ("invalid_json", "rejected"),
            ("overloaded", "rejected"),
            ("request_failed", "error"),
            ("engine_restarted", "error"),
            ("request_timeout", "timeout"),
            ("cancelled", "cancelled"),
            ("client_too_slow", "client_too_slow"),
        ],
    )
    def test_an_error_is_an_outcome(self, rig, caplog, code, outcome):
        async def refuse(exchange):
            raise ApiError(code, "No.")

        _, fields, _ = self.fields(caplog, rig(routes=[route(refuse)]), "/v1/do", b"x")
        assert (fields["outcome"], fields["code"], fields["status"]) == (
            outcome,
            code,
            CODES[code][0],
        )

    def test_a_client_that_left_before_its_body_was_there(self, rig, caplog):
        server = rig(routes=[route(echo)])
        told, fields, _ = self.fields(caplog, server, "/v1/do", [b"x"], leaves=True, stalls=True)
        assert told.messages == []
        assert (fields["outcome"], fields["status"]) == ("client_disconnect", 499)

    def test_a_client_that_left_within_the_answer(self, rig, caplog):
        async def gone():
            raise ClientDisconnect

        handler = events(b"data: 1\n\n", then=gone)
        _, fields, _ = self.fields(caplog, rig(routes=[route(handler)]), "/v1/do", b"x")
        assert (fields["outcome"], fields["status"]) == ("client_disconnect", 200)


def test_a_send_that_fails_is_a_client_that_left(rig, caplog):
    server = rig(routes=[route(echo)])
    sent = []

    async def run():
        async def receive():
            return {"type": "http.request", "body": b"x", "more_body": False}

        async def send(message):
            sent.append(message)
            raise OSError

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/do",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }
        with caplog.at_level(logging.DEBUG, "mstar_core.serving.requests"):
            await server.app(scope, receive, send)

    asyncio.run(run())
    assert [m["type"] for m in sent] == ["http.response.start"]
    assert caplog.records[-1].fields["outcome"] == "client_disconnect"


def test_lifespan_is_answered_and_websockets_are_closed(rig):
    app = rig().app
    sent = []

    async def run():
        told = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive():
            return next(told)

        async def send(message):
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        await app({"type": "websocket"}, receive, send)

    asyncio.run(run())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]
