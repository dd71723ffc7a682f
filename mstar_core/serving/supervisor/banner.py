"""What a person reads when the server is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mstar_core.config.server import ServerConfig
from mstar_core.serving.startup import StartUp


def banner(
    url: str,
    server: ServerConfig,
    engine: dict[str, Any],
    api: dict[str, Any],
    start_up: StartUp,
) -> Iterator[str]:
    """The lines; ``engine`` and ``api`` are the facts of their ``Ready``."""
    yield from start_up.lines()
    yield f"ready     {url}"
    yield f"model     {api['model']}, context {engine['max_context']} tokens"
    limits = ", ".join(f"{name} {value}" for name, value in api["limits"].items())
    yield f"limits    {limits}"
    width = max((len(route) for route in api["routes"]), default=0)
    for at in range(0, len(api["routes"]), 3):
        row = "  ".join(route.ljust(width) for route in api["routes"][at : at + 3])
        yield f"{'routes' if at == 0 else '':<10}{row}".rstrip()
    if server.ui and not url.startswith("unix:"):
        yield f"page      {url}/"
