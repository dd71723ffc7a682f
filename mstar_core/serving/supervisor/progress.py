"""Where the engine is, as ``/ready`` says it while it starts."""

from __future__ import annotations

import logging
import time

from attrs import define

from mstar_core.serving.orders import Phase, State

log = logging.getLogger(__name__)
TELL_S, LOG_S = 0.1, 5.0


@define
class Progress:
    """The phases of one start of the engine."""

    state: State
    _began: float = 0.0
    _told: float = 0.0
    _logged: float = 0.0

    def note(self, phase: Phase) -> bool:
        """The engine got on; whether that is to be told now (not each of a thousand tensors)."""
        now = time.monotonic()
        is_new = phase.phase != self.state.phase
        if is_new:
            self._began = now
        elif now - self._told < TELL_S and phase.done < phase.total:
            return False
        self._told = now
        self.state = State(phase.phase, phase.done, phase.total, self._eta(phase, now))
        if is_new or now - self._logged > LOG_S:
            self._logged = now
            of = f" {phase.done} of {phase.total}" if phase.total else ""
            log.info("starting: %s%s", phase.phase, of)
        return True

    def _eta(self, phase: Phase, now: float) -> float | None:
        """Seconds to the end of the phase at its speed so far."""
        if not 0 < phase.done <= phase.total:
            return None
        return round((now - self._began) * (phase.total - phase.done) / phase.done, 1)
