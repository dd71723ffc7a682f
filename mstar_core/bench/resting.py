"""A heap that the collector leaves alone while something is measured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """Collect, then have the collector pass over all that lives already, until the end.

    What a measurement keeps of every step or token would have the interpreter go through all that
    the process holds, for a tenth of a second each time. However it ends, all is collected again,
    unless something was left alone before.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not before:
            gc.unfreeze()
