"""The process that has the model: one engine, and a connection to each API process.

The supervisor starts it (``python -m mstar_core.serving.engine_process FD``). It ends when the
supervisor says so or is gone, and by itself, with :data:`FAULT`, when the engine's thread ends.
"""

from __future__ import annotations

import gc
import logging
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from mstar_core.serving.child import Child, leave, run_child
from mstar_core.serving.control import Control
from mstar_core.serving.messages import Stats
from mstar_core.serving.orders import Beat, Connect, Phase, Ready, Stop

if TYPE_CHECKING:
    from mstar_core.engine import Engine
    from mstar_core.serving.engine_host import EngineHost

log = logging.getLogger(__name__)
FAULT = 5
"""Exit code: the engine's thread has ended, by a device fault or a bug."""
BEAT_S = 0.5
PROGRESS_S = 0.1
"""A phase is reported no more often."""
CLOSE_S = 3.0
"""Time that the engine has to end when it is told to; a thread that hangs does not end."""


def main() -> NoReturn:
    """The process, to its exit; no thread that still runs can keep it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the supervisor decides
        signal.signal(number, signal.SIG_IGN)
    process = EngineProcess()
    leave(run_child(process.run) or process.code)


class EngineProcess:
    """What the process has, and the threads over it."""

    def __init__(self) -> None:
        self.code = 0
        """The exit code, once :meth:`run` is over."""
        self._engine: Engine | None = None
        self._host: EngineHost | None = None
        self._ends: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(self, child: Child) -> None:
        """Open the engine and serve, to the end. Raises what ``Engine.open`` raises."""
        _thread("beat", lambda: self._beat(child.control))
        child.control.send(Phase("import"))
        from mstar_core.engine import Engine  # takes seconds: it brings torch
        from mstar_core.serving.engine_host import EngineHost

        child.laps.mark("import")
        host = self._host = EngineHost()
        _thread("control", lambda: self._hear(child.control, host))
        start = child.start
        child.control.send(Phase("wiring"))
        engine = Engine.open(
            start.config,
            start.sets,
            offline=start.offline,
            progress=_progress(child.control),
            inbox=host.inlet,
        )
        child.laps.mark_parts(engine.report.seconds)
        self._engine = engine
        gc.collect()
        gc.freeze()  # it stays to the end: to go through it again and again would hold steps up
        host.serve(engine.driver)
        _thread("watch", lambda: self._watch(engine))
        facts = {
            "max_context": engine.report.max_context,
            "report": list(engine.report.lines()),
        }
        child.control.send(Ready(child.laps.rows, facts))
        self.code = self._ends.get()
        if self.code == 0:
            closing = threading.Timer(CLOSE_S, leave, (0,))
            closing.daemon = True
            closing.start()
            host.close()
            engine.close()

    def _hear(self, control: Control, host: EngineHost) -> None:
        """The thread that the supervisor talks to."""
        try:
            while (received := control.wait()) is not None:
                if isinstance(received.message, Connect):
                    host.connect(received.message.api, received.fds)
                elif isinstance(received.message, Stop):
                    break
        except EOFError:
            log.info("the supervisor is gone")
        except (ValueError, OSError):
            log.exception("the control channel broke")
        if self._engine is None:  # it is being opened, which may take minutes
            leave(0)
        self._ends.put(0)

    def _watch(self, engine: Engine) -> None:
        """The thread that waits for the engine's own to end."""
        engine.driver.thread.join()
        self._ends.put(FAULT)

    def _beat(self, control: Control) -> None:
        """The thread that gives signs of life; whoever gets them judges whether there is any."""
        while True:
            engine, host = self._engine, self._host
            try:
                if engine is None or host is None:
                    control.send(Beat())
                else:
                    control.send(Beat(turns=engine.driver.acts, busy=not engine.driver.resting))
                    host.tell(Stats(engine.stats()))
            except BrokenPipeError:
                return  # the thread that hears ends the process
            except RuntimeError:  # the engine's thread changed what was being read
                log.debug("the engine's counts are told next time", exc_info=True)
            time.sleep(BEAT_S)


def _progress(control: Control) -> Callable[[str, int, int], None]:
    """Tells the supervisor where ``Engine.open`` is: each phase, and how far every tenth second."""
    last_phase, last_time = "", 0.0

    def progress(phase: str, done: int, total: int) -> None:
        nonlocal last_phase, last_time
        now = time.monotonic()
        if phase == last_phase and done < total and now - last_time < PROGRESS_S:
            return
        last_phase, last_time = phase, now
        control.send(Phase(phase, done, total))

    return progress


def _thread(name: str, run: Callable[[], None]) -> None:
    threading.Thread(target=run, name=f"mstar-{name}", daemon=True).start()


if __name__ == "__main__":
    main()
