"""A server around routes of the test's own, and a link that is as the test says."""

import asyncio
from pathlib import Path

import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.config.server import ServerConfig
from mstar_core.model.front import Front
from mstar_core.serving.app import create_app
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.keys import Keys
from mstar_core.serving.link import EngineState
from mstar_core.testing.asgi import call

READY = EngineState(phase="ready")


class StandingLink:
    """A link to no engine: a state, statistics, and the groups that were cancelled."""

    def __init__(self, state=READY, stats=None, live=()):
        self.state = state
        self._stats = stats or {}
        self.live = dict(live)

    def submit(self, request, *, group):
        raise AssertionError("nothing is submitted here")

    async def cancel(self, group):
        return self.live.pop(group, 0)

    def stats(self):
        return self._stats


class PlainFront(Front):
    """A front that is there."""

    def decode(self, ids):
        return ""


CARD = ModelCard(
    name="tiny/one", capabilities=frozenset({"text", "chat"}), max_context=512, created=7
)


class Rig:
    """The application, its service, and a way to ask it."""

    def __init__(self, service, app):
        self.service = service
        self.app = app

    def ask(self, path, body=b"", **how):
        return asyncio.run(call(self.app, path, body, **how))


@pytest.fixture
def rig():
    """``rig(routes=, keys=, limits=, server=, link=, card=)`` → Rig."""

    def make(*, routes=None, keys=(), limits=None, server=None, link=None, card=CARD):
        service = Service(
            limits=LimitsConfig(**(limits or {})),
            server=ServerConfig(**(server or {})),
            link=link or StandingLink(),
            card=card,
            front=PlainFront() if card else None,
        )
        return Rig(service, create_app(service, Keys.of(keys) if keys else None, routes))

    return make


@pytest.fixture
def standing_link():
    return StandingLink


@pytest.fixture
def root():
    """The repository's root."""
    return Path(__file__).parents[3]
