"""An engine that a contract drives turn by turn."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from mstar_core.engine.core import EngineCore
from mstar_core.engine.report import WarmupReport
from mstar_core.engine.wire import Wired
from mstar_core.model.front import Front, Request
from mstar_core.testing.cores import results, run_all


@frozen(kw_only=True, eq=False)
class Opened:
    """A warmed engine without a thread, and what it was built from."""

    core: EngineCore
    wired: Wired
    report: WarmupReport

    @property
    def front(self) -> Front:
        """The model's front."""
        return self.wired.model.front()


def tokens(requests: Sequence[Request], opened: Opened) -> list[list[int]]:
    """The tokens of ``requests`` run together; fails if one did not end well or holds something."""
    found = run_all(opened.core, requests)
    for result in found.values():
        assert result.finish_reason in ("stop", "length"), result.error
    return [found[request.id].ids for request in requests]


def finished(opened: Opened) -> dict[str, list[int]]:
    """Take turns until nothing is left, and give the tokens of every request by its id."""
    while opened.core.turn():
        pass
    opened.core.check_conserved()
    return {request: result.ids for request, result in results(opened.core).items()}
