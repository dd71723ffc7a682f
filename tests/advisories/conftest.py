"""One rig for all families: the whole application over an engine of echo in this process."""

import ast
import asyncio
import json
from pathlib import Path

import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.engine import Engine
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.keys import Keys
from mstar_core.serving.routes.table import all_routes
from mstar_core.testing.asgi import call
from mstar_core.testing.serving import LocalLink

ROOT = Path(__file__).parents[2]


class CountedLink(LocalLink):
    """Counts what reaches the engine."""

    submitted = 0

    def submit(self, request, *, group):
        self.submitted += 1
        return super().submit(request, group=group)


class Rig:
    """The application, asked in process."""

    def __init__(self, engine, *, keys=(), limits=None, server=None):
        self.link = CountedLink(engine)
        self.service = Service(
            limits=LimitsConfig(**(limits or {})),
            server=ServerConfig(**(server or {})),
            link=self.link,
            card=ModelCard(
                name="echo",
                capabilities=engine.front.capabilities(),
                max_context=65536,
                created=0,
                traits=engine.front.traits(),
            ),
            front=engine.front,
        )
        self.app = create_app(self.service, Keys.of(keys) if keys else None)

    def ask(self, path, body=b"", **how):
        """One request; what is no bytes is sent as JSON."""
        if not isinstance(body, bytes | list):
            body = json.dumps(body).encode()
        return asyncio.run(call(self.app, path, body, **how))

    def code(self, path, body=b"", **how):
        """The status and the code of a refusal."""
        told = self.ask(path, body, **how)
        return told.status, told.json()["error"]["code"]

    def check_good(self):
        """One good request: the engine serves, and nothing is held."""
        told = self.ask("/v1/completions", {"prompt": "still here", "max_tokens": 64})
        assert (told.status, told.json()["choices"][0]["text"]) == (200, "still here")
        gate = self.service.admission
        assert (gate.open, gate.tokens, gate.audio_s) == (0, 0, 0.0)


@pytest.fixture(scope="session")
def engine():
    with Engine.open("echo", ["model.options.faults=true"]) as engine:
        yield engine


@pytest.fixture
def rig(engine):
    """``rig(keys=, limits=, server=, engine=)`` → Rig; of the shared engine unless one is given."""
    made = []

    def make(engine=engine, **options):
        made.append(Rig(engine, **options))
        return made[-1]

    yield make
    for each in made:
        each.service.close()


@pytest.fixture(scope="session")
def model_routes():
    """Every route of the model: POST, with a body."""
    return [route for route in all_routes() if route.capability is not None]


@pytest.fixture(scope="session")
def shipped():
    """Path → tree, of every module that goes into a wheel."""
    paths = [*ROOT.glob("mstar_core/**/*.py"), *ROOT.glob("plugins/*/mstar_*/**/*.py")]
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(paths)
    }
