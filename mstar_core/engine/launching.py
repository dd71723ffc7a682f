"""What is launched next: the steady batch once more, or a new choice, or as much of it as fits."""

from __future__ import annotations

import logging
from collections import deque

from attrs import define, field

from mstar_core.engine.isolation import Isolation
from mstar_core.engine.lifecycle import Entry, Lifecycle
from mstar_core.engine.pressure import Pressure
from mstar_core.engine.steady import SteadyBatch
from mstar_core.errors import DeviceFault
from mstar_core.sched import RequestState, Scheduler
from mstar_core.sched.scheduler import Row
from mstar_core.step import Shortage, Step

log = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class Launcher:
    """Launches one step a turn; what it launched is appended to ``flight``."""

    scheduler: Scheduler
    lifecycle: Lifecycle
    pressure: Pressure
    running: list[RequestState]
    """By rank; whoever yields is taken out."""
    flight: deque[Entry]
    isolation: Isolation
    _steady: SteadyBatch | None = field(default=None, init=False)

    def launch(self) -> bool:
        """Whether a step was launched, or its requests failed."""
        if self._steady is not None and self._launch_steady(self._steady):
            return True
        for running in self.isolation.turns():
            held: set[str] = set()
            while (choice := self.scheduler.next(running, held)) is not None:
                first = choice[1][0].walk
                if self._launch_step(*choice):
                    return True
                held.add(first)
        return False

    def settle(self) -> None:
        """The batch is no longer steady: tell the scheduler what was launched of it."""
        batch, self._steady = self._steady, None
        if batch is not None and batch.launched:
            self.scheduler.launched_again(batch.rows, batch.launched, batch.last_number)

    def _launch_step(self, step: Step, rows: list[Row]) -> bool:
        """Whether ``step``, or its leading rows, were launched or failed; else somebody yields."""
        try:
            entry, fit = self.pressure.launch(step, rows)
        except DeviceFault:
            raise
        except Exception as error:
            log.exception("a step of walk %s could not be prepared", step.walk)
            self.isolation.catch(rows, error, launched=False)
            return True
        if isinstance(entry, Shortage):
            log.debug("step refused: %s", entry)
            victim = self.pressure.make_way(fit[0].state, entry, self.running)
            if victim is not None:
                self.running.remove(victim)
            return False
        self.scheduler.launched(fit, entry.number)
        for row in fit:
            row.state.failing |= entry.error is not None
        self.flight.append(entry)
        if self.scheduler.sole and len(fit) == len(rows) and not self.isolation.suspects:
            self._steady = self.lifecycle.steady_batch(entry)
        return True

    def _launch_steady(self, batch: SteadyBatch) -> bool:
        """The same step once more, if no row has reached its limit and there is room."""
        try:
            entry = self.lifecycle.launch_steady(batch) if batch.left > 0 else None
        except DeviceFault:
            raise
        except Exception as error:
            log.exception("a steady step of walk %s could not be prepared", batch.step.walk)
            self.settle()
            self.isolation.catch(batch.rows, error, launched=False)
            return True
        if not isinstance(entry, Entry):
            self.settle()
            return False
        batch.left -= 1
        batch.launched += 1
        batch.last_number = entry.number
        self.flight.append(entry)
        if entry.error is not None:
            self.settle()
            for row in batch.rows:
                row.state.failing = True
        return True
