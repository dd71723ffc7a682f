"""``mstar-core serve`` itself: it holds the socket and starts, watches and ends its children.

One thread, no torch, no event loop library: what it does must go on when all else hangs.
"""

from mstar_core.serving.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
