"""Requests made from ``/openapi.json``: none is a 5xx, and every answer is as the document says.

Half of the cases keep to the document, half break it. The engine is echo, in this process, which
has every route that there is.
"""

import asyncio

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.engine import Engine
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.routes.table import all_routes
from mstar_core.testing.asgi import call
from mstar_core.testing.serving import LocalLink

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
SLICE, LONG = 6, 300
"""Cases of each route that takes a body, in each mode."""
MOST_TOKENS = 8


@pytest.fixture(scope="module")
def service():
    with Engine.open("echo") as engine:
        service = Service(
            limits=LimitsConfig(max_new_tokens=MOST_TOKENS, max_choices=4),
            server=ServerConfig(allowed_hosts=("testserver",)),
            link=LocalLink(engine),
            card=ModelCard(
                name="echo",
                capabilities=engine.front.capabilities(),
                max_context=65536,
                created=0,
                traits=engine.front.traits(),
            ),
            front=engine.front,
        )
        yield service
        service.close()


def test_echo_has_every_route(service):
    offered = {route.capability for route in all_routes()} - {None}
    assert offered == service.card.capabilities


def serve(case):
    """Let a case that keeps to the document be one of this server's own: its model, its limits."""
    if isinstance(case.body, dict):
        ours = {"model": "echo", "max_tokens": MOST_TOKENS, "max_completion_tokens": MOST_TOKENS}
        case.body |= {name: value for name, value in ours.items() if case.body.get(name)}
        if case.body.get("n"):
            case.body["n"] = 2


def play(service, most):
    """``most`` cases of every operation in each mode; how many there were, by status."""
    app = create_app(service)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    told = {}

    def run(operation, mode):
        @seed(7)
        @settings(
            max_examples=most,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def each(case):
            if mode is GenerationMode.POSITIVE:
                serve(case)
            answer = case.call()
            told[answer.status_code] = told.get(answer.status_code, 0) + 1
            case.validate_response(answer, checks=CHECKS)

        each()

    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in MODES:
            if mode is GenerationMode.POSITIVE or operation.body or operation.path_parameters:
                run(operation, mode)
    return told


def check_good(service):
    """One good request, and nothing is held."""
    body = b'{"model": "echo", "prompt": "here", "max_tokens": 8}'
    answer = asyncio.run(call(create_app(service), "/v1/completions", body))
    assert answer.json()["choices"][0]["text"] == "here"
    gate = service.admission
    assert (gate.open, gate.tokens, gate.audio_s) == (0, 0, 0.0)


def test_a_slice_of_cases_finds_no_5xx_and_no_body_off_the_document(service):
    told = play(service, SLICE)
    assert sum(told.values()) >= 80
    assert {200, 400} <= set(told)
    check_good(service)


@pytest.mark.long
def test_five_thousand_cases_find_no_5xx_and_no_body_off_the_document(service):
    told = play(service, LONG)
    print(f"\n{sum(told.values())} cases, by status: {dict(sorted(told.items()))}")
    assert sum(told.values()) >= 5000
    check_good(service)
