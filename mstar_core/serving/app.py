"""The ASGI application: one request from its first header to its completion line.

A request gets an id and a route, passes the gates in order, and is answered by its route's handler
or with an error in the one shape that there is. Whatever happens, it gives back what it held, and
its line is written.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Iterable
from contextlib import ExitStack

from attrs import define
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mstar_core.errors import RequestError
from mstar_core.serving import completion_log
from mstar_core.serving.body import LimitedReceive, check_form, media_type, read_json
from mstar_core.serving.errors import ApiError, of_request_error
from mstar_core.serving.exchange import Exchange, Service
from mstar_core.serving.gates import Gate
from mstar_core.serving.gates.auth import Auth
from mstar_core.serving.gates.cors import Cors
from mstar_core.serving.gates.headers import few_headers
from mstar_core.serving.gates.host import Hosts
from mstar_core.serving.keys import Keys
from mstar_core.serving.reply import Reply
from mstar_core.serving.routes import Route
from mstar_core.serving.routes.table import Found, Table, all_routes

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_log = logging.getLogger(__name__)


def create_app(
    service: Service, keys: Keys | None = None, routes: Iterable[Route] | None = None
) -> ASGIApp:
    """The server of ``service``, under ``service.server`` and ``service.limits``.

    ``routes`` are all there are, unless a test says otherwise; those of a capability that the model
    lacks answer ``route_not_offered``.
    """
    keys = keys or Keys()
    server = service.server
    listed = all_routes() if routes is None else routes
    table = Table(route for route in listed if server.ui or route.path != "/")
    gates: list[Gate] = [few_headers, Cors(server.cors_origins)]
    if not keys:
        gates.append(Hosts((server.host, *server.allowed_hosts), server.cors_origins))
    gates.append(Auth(keys))
    return App(service, table, tuple(gates))


@define
class App:
    """See :func:`create_app`."""

    service: Service
    table: Table
    gates: tuple[Gate, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.table.find(scope["method"], scope["path"])
        scope["path_params"] = found.params
        limited = LimitedReceive(scope, receive, self.service.limits)
        http = HttpRequest(scope, limited)
        exchange = Exchange(service=self.service, http=http, id=_id_of(http), route=found.route)
        reply = Reply(send, exchange)
        try:
            async with asyncio.timeout(self.service.limits.request_timeout_s):
                await self._answer(exchange, found, reply)
        except TimeoutError:
            message = "The request took longer than the server allows."
            await _refuse(exchange, reply, ApiError("request_timeout", message))
        finally:
            self._end(exchange, reply)

    async def _answer(self, exchange: Exchange, found: Found, reply: Reply) -> None:
        """Answer through the gates and the route; what they raise becomes the answer."""
        try:
            with ExitStack() as held:
                response = self._pass(exchange) or await self._handle(exchange, found, held)
                await response(exchange.http.scope, exchange.http.receive, reply)
        except ClientDisconnect:
            exchange.line.setdefault("outcome", "client_disconnect")
        except ApiError as error:
            await _refuse(exchange, reply, error)
        except RequestError as error:
            await _refuse(exchange, reply, of_request_error(error))
        except Exception:
            _log.exception("request %s broke", exchange.id)
            message = "The server failed on this request; its log has more under the request id."
            await _refuse(exchange, reply, ApiError("internal_error", message))

    def _pass(self, exchange: Exchange) -> Response | None:
        for gate in self.gates:
            if (response := gate(exchange)) is not None:
                return response
        return None

    async def _handle(self, exchange: Exchange, found: Found, held: ExitStack) -> Response:
        """Ask the route's handler; before, what concerns every request of the model."""
        route = found.route
        if route is None:
            return _no_route(exchange, found)
        if route.capability is not None:
            self._check_served(route.capability)
            door = self.service.admission.door(exchange.key, exchange.headers)
            exchange.ticket = held.enter_context(door)
        if route.form and media_type(exchange.http) != "application/json":
            check_form(exchange.http)
        elif route.body is not None:
            await read_json(exchange.http, self.service.limits.max_json_depth)
        return await route.handler(exchange)

    def _check_served(self, capability: str) -> None:
        """Raise ApiError unless the model is there, has ``capability`` and takes requests."""
        card, state = self.service.card, self.service.link.state
        if card is not None and capability not in card.capabilities:
            raise ApiError("route_not_offered", "The model that is served has no such route.")
        if state.phase == "draining":
            raise ApiError("draining", "The server is about to end.", retry_after_s=1)
        if card is None or self.service.front is None or not state.is_ready:
            message = "The server takes no requests yet; see /ready."
            raise ApiError("not_ready", message, retry_after_s=state.eta_s or 1)

    def _end(self, exchange: Exchange, reply: Reply) -> None:
        """Write the completion line, and count it."""
        default = "client_disconnect" if not reply.status else "ok"
        exchange.line.setdefault("outcome", default)
        status = reply.status or completion_log.CLIENT_GONE
        fields = completion_log.fields_of(exchange, status)
        is_model_route = exchange.route is not None and exchange.route.capability is not None
        completion_log.write(fields, is_model_route=is_model_route)
        self.service.metrics.ended(fields, is_model_route=is_model_route)


def _no_route(exchange: Exchange, found: Found) -> Response:
    if not found.methods:
        message = "There is no such route; GET /openapi.json lists what there is."
        raise ApiError("route_not_found", message)
    exchange.headers["allow"] = ", ".join(found.methods)
    if exchange.http.method == "OPTIONS":
        return Response(status_code=204)
    raise ApiError("method_not_allowed", f"This route takes {exchange.headers['allow']}.")


async def _refuse(exchange: Exchange, reply: Reply, error: ApiError) -> None:
    exchange.line["outcome"] = completion_log.outcome_of(error.code, error.status)
    exchange.line["code"] = error.code
    try:
        await reply.fail(error)
    except ClientDisconnect:
        exchange.line["outcome"] = "client_disconnect"


def _id_of(http: HttpRequest) -> str:
    given = http.headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
