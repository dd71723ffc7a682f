"""How long a stream may become: what a deployment asks for, up to what the model has."""

from __future__ import annotations

from mstar_core.config.resolve import Resolved
from mstar_core.errors import Refusal


def fit_context(resolved: Resolved, most: int) -> tuple[int, tuple[Refusal, ...]]:
    """Tokens of the longest stream, and what to say where fewer than asked for are had."""
    asked = resolved.config.engine.max_context
    if asked is not None and asked <= most:
        return asked, ()
    resolved.derive("engine.max_context", most, "the model's own")
    if asked is None:
        return most, ()
    finding = Refusal(
        code="max-context",
        where="engine.max_context",
        got=f"{asked} tokens; the model has {most}, and so has the engine",
        want=f"at most {most}",
        fix="leave it out",
        owner="config",
    )
    return most, (finding,)
