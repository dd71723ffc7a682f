"""What every child of the supervisor does first and last, around what it is there for."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from attrs import frozen

from mstar_core.errors import ConfigError, MstarError, PluginError
from mstar_core.logs import start_logging
from mstar_core.serving.control import Control
from mstar_core.serving.messages import FrameError
from mstar_core.serving.orders import Failed, Start
from mstar_core.serving.startup import Laps

log = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1
SETTING, OURS = 1, 4
"""Exit codes: a setting, plugin or checkpoint cannot be used; or it is our own fault."""


@frozen(kw_only=True)
class Child:
    """A child that has been told to start."""

    control: Control
    start: Start
    fds: tuple[int, ...]
    """Descriptors that came with ``start``."""
    laps: Laps
    """Begins where the process was started; its first lap, ``python``, is taken."""


def run_child(body: Callable[[Child], None]) -> int:
    """Do ``body`` as the child whose control channel is the first argument; its exit code.

    An error ends it, and the supervisor hears why; so does a supervisor that is gone, silently.
    A crash or SIGABRT writes the stacks of all threads to stderr.
    """
    faulthandler.enable()
    _end_with_parent()
    control = Control.inherited(int(sys.argv[1]))
    try:
        first = control.wait()
        if first is None or not isinstance(first.message, Start):
            raise FrameError("the first message is not Start")
        if control.is_hung_up:
            return 0
        start = first.message
        start_logging(start.log_level, start.log_format)
        laps = Laps(start.spawned)
        laps.mark("python")
        body(Child(control=control, start=start, fds=first.fds, laps=laps))
    except MstarError as error:
        code = SETTING if isinstance(error, ConfigError | PluginError) else OURS
        if code == OURS:
            log.exception("the process ends")
        return _tell(control, Failed(error.facts(), code))
    except (EOFError, BrokenPipeError):
        return 0
    except Exception:
        log.exception("the process ends")
        return OURS
    return 0


def _end_with_parent() -> None:
    """Be killed with the supervisor (Linux): while torch is imported, no channel is read."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave(code: int) -> NoReturn:
    """Exit at once: libraries take seconds to be taken down, and a hung thread does not end."""
    logging.shutdown()
    os._exit(code)


def _tell(control: Control, failed: Failed) -> int:
    try:
        control.send(failed)
    except BrokenPipeError:
        log.error("%s", MstarError.of_facts(failed.facts))
    return failed.code
