"""The ledger's requests of a schedule: alone in their salt, or of a family that says the same.

A member's prompt begins with the family's stream, which is the ledger's own continuation: so a long
prompt begins with what a shorter one's request was answered.
"""

from __future__ import annotations

from functools import lru_cache

from mstar_core.model.front import Request
from mstar_core.testing.ledger import VOCAB, continuation, ledger_request
from mstar_core.testing.schedules import Planned

FAMILY_SALT = 1000


@lru_cache
def family_stream(family: int, count: int = 128) -> list[int]:
    """What the family's founder says: a short prompt, and all that follows from it."""
    prompt, salt = [family * 41 % VOCAB, 3, 5], FAMILY_SALT + family
    return [*prompt, *continuation(prompt, salt, count - len(prompt))]


def ledger_prompt(planned: Planned) -> Request:
    """The ledger's request of a plan."""
    ids = [(planned.number * 31 + i * 7) % VOCAB for i in range(planned.prompt)]
    salt, more = planned.number, {"gated": planned.gated, "id": f"r{planned.number}"}
    more["priority"] = planned.priority
    if planned.like is not None:
        salt = FAMILY_SALT + planned.like
        shared = min(planned.shared, planned.prompt)
        ids[:shared] = family_stream(planned.like)[:shared]
    return ledger_request(ids, salt, planned.new, **more)


def ledger_oracle(request: Request) -> list[int]:
    """What follows by definition."""
    ids, salt = request.arrays["ids"].tolist(), int(request.arrays["salt"][0])
    return continuation(ids, salt, request.max_new_tokens)
