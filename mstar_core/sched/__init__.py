"""The scheduler: request states, admission and the choice of the next step. Free of torch."""

from mstar_core.sched.admission import Line
from mstar_core.sched.deadlines import Deadlines
from mstar_core.sched.request import RequestState, Track
from mstar_core.sched.scheduler import Row, Scheduler

__all__ = ["Deadlines", "Line", "RequestState", "Row", "Scheduler", "Track"]
