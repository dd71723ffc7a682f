"""Mixed steps: decode rows beside prompt rows in one forward of a combined walk.

::

    rows      loop  loop  loop | prompt  prompt      decode rows first, each kind in its own order
    tokens      1     1     1  |   7       4         prompts get what the decode rows leave

This is the one place that orders the rows of a step of several walks. The order is stable, so it is
the same wherever the same rows are ready. Decode rows never wait for a prompt; a prompt that finds
no room beside them gets a step of its own when it is its walk's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mstar_core.model.walks import Walk

if TYPE_CHECKING:
    from mstar_core.sched.scheduler import Row

Fit = Callable[[Walk, Sequence["Row"], Sequence["Row"]], list["Row"]]
"""``fit(walk, ready, taken)``: ``taken``, and the ``ready`` rows of ``walk`` that fit behind it."""


def mixed_rows(
    name: str, walks: Mapping[str, Walk], ready: Mapping[str, Sequence[Row]], fit: Fit
) -> tuple[str, list[Row]] | None:
    """The combined walk that runs ``name`` with others, and its rows; None if none has both kinds.

    ``walks`` holds combined walks only where steps are mixed.
    """
    for combined in walks.values():
        if name not in combined.combines:
            continue
        rows: list[Row] = []
        for part in sorted(combined.combines, key=lambda part: not walks[part].is_decode):
            rows = fit(walks[part], ready.get(part, ()), rows)
        if rows and rows[0].carry and not rows[-1].carry:
            return combined.name, rows
    return None
