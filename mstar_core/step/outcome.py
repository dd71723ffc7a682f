"""What the host reads of a step once its event has passed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import field, frozen


@frozen(kw_only=True, eq=False)
class Outcome:
    """The read-back of one step: one array per output that the submodule declared as read.

    ``arrays["ids"]`` is int64 ``[rows]``, ``arrays["logprob"]`` float32 ``[rows]`` and
    ``arrays["finite"]`` bool ``[rows]`` where the node samples; others are the model's own.
    """

    number: int
    arrays: Mapping[str, np.ndarray]
    walk: str = ""
    spans_B: np.ndarray = field(factory=lambda: np.zeros(0, np.int64))
    """Items of each row."""
