"""A small core that serves composite models; every model and every kernel backend is a plugin.

Importing this package imports neither torch nor any plugin.
"""

from __future__ import annotations

from mstar_core.hookspecs import hookimpl

__version__ = "0.1.0"
__all__ = ["__version__", "hookimpl"]
