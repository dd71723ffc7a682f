"""The playground page: one file, nothing from elsewhere, and it may reach this server alone."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from starlette.responses import Response

from mstar_core.serving.exchange import Exchange
from mstar_core.serving.routes import Route


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """The page and its headers: a policy that allows its own script and style, by hash."""
    html = (resources.files("mstar_core.serving") / "ui" / "index.html").read_text("utf-8")
    script, style = (_hash(html, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "media-src blob:; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return html.encode(), {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }


async def show(exchange: Exchange) -> Response:
    """The page; it asks for a key itself where one is needed."""
    body, headers = page()
    return Response(body, media_type="text/html; charset=utf-8", headers=headers)


def _hash(html: str, tag: str) -> str:
    inner = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digest = hashlib.sha256((inner[1] if inner else "").encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


ROUTES = (
    Route(
        method="GET",
        path="/",
        handler=show,
        summary="The playground page",
        answer_media="text/html",
        open=True,
    ),
)
