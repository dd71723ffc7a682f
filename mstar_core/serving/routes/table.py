"""All routes there are, and which of them a path means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from attrs import define, field

from mstar_core.serving import routes
from mstar_core.serving.routes import Route

_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


@define
class Found:
    """What a path and a method mean."""

    route: Route | None = None
    params: dict[str, str] = field(factory=dict)
    methods: tuple[str, ...] = ()
    """What the path takes, where it is known and ``route`` is None."""


class Table:
    """Routes by path. A parameter is ``{name}``, or ``{name:path}`` where it may have slashes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        for route in self.routes:
            if route.path not in self._fixed:
                self._fixed[route.path] = {}
                if _PARAMETER.search(route.path):
                    self._patterns.append((pattern_of(route.path), self._fixed[route.path]))
            self._fixed[route.path][route.method] = route

    def find(self, method: str, path: str) -> Found:
        """The route of ``path``, as it came (decoded, never rebuilt); HEAD is a GET."""
        by_method, params = self._at(path)
        if by_method is None:
            return Found()
        route = by_method.get("GET" if method == "HEAD" else method)
        heads = ("HEAD",) if "GET" in by_method else ()
        return Found(route, params, tuple(sorted({*by_method, *heads, "OPTIONS"})))

    def _at(self, path: str) -> tuple[dict[str, Route] | None, dict[str, str]]:
        if "{" not in path and path in self._fixed:
            return self._fixed[path], {}
        for pattern, by_method in self._patterns:
            if match := pattern.fullmatch(path):
                return by_method, match.groupdict()
        return None, {}


def pattern_of(path: str) -> re.Pattern[str]:
    """The paths that a template means."""
    parts = []
    at = 0
    for match in _PARAMETER.finditer(path):
        parts.append(re.escape(path[at : match.start()]))
        parts.append(f"(?P<{match[1]}>{'.+' if match[2] else '[^/]+'})")
        at = match.end()
    return re.compile("".join(parts) + re.escape(path[at:]))


@cache
def all_routes() -> tuple[Route, ...]:
    """``ROUTES`` of every module of this package, by path."""
    found: list[Route] = []
    for module in iter_modules(routes.__path__):
        found += getattr(import_module(f"{routes.__name__}.{module.name}"), "ROUTES", ())
    return tuple(sorted(found, key=lambda route: (route.path, route.method)))
