"""What a request passes before its route is asked: each gate lets it on, answers it, or raises.

They are asked in the order of :data:`mstar_core.serving.app.create_app` and read nothing but the
scope: path, method and headers as they came. Never a URL that was put together from the host.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange

Gate = Callable[[Exchange], Response | None]
"""Returns an answer, or None to let the request on. Raises ApiError to refuse it."""
