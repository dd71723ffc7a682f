"""The sampling settings of every carry row, on the device.

A step that is planned on the host keeps what its plan says of each row; a resident step, which
brings no settings, reads them by the number of the carry row.
"""

from __future__ import annotations

from typing import Self

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.resources.base import BuildEnv
from mstar_core.resources.sampler.plan import SamplerPlan
from mstar_core.resources.sampler.table import NEUTRAL

FLOATS = ("temperature_B", "top_p_B", "min_p_B")
WHOLES = ("top_k_B", "seed_B")


@frozen(kw_only=True, eq=False)
class KeptSettings:
    """One line per carry row; row 0, which padding reads, is greedy."""

    floats_RF: Tensor
    """float32, in the order of ``FLOATS``."""
    wholes_RI: Tensor
    """int64, in the order of ``WHOLES``."""
    enabled_RR: Tensor
    """bool, which logit rules apply."""

    @classmethod
    def claim(cls, key: str, num_rows: int, num_rules: int, env: BuildEnv) -> Self:
        """Lines for ``num_rows`` carry rows."""
        floats_RF = env.claim(key, "settings", (num_rows, len(FLOATS)), torch.float32)
        floats_RF.copy_(torch.from_numpy(NEUTRAL[: len(FLOATS)]).expand(num_rows, -1))
        return cls(
            floats_RF=floats_RF,
            wholes_RI=env.claim(key, "top_k and seed", (num_rows, len(WHOLES)), torch.int64),
            enabled_RR=env.claim(key, "rules", (num_rows, num_rules), torch.bool),
        )

    def keep(self, plan: SamplerPlan) -> None:
        """In a host-planned step: what its plan says of each row."""
        at_B = plan.carry_row_B
        floats_BF = torch.stack([getattr(plan, name) for name in FLOATS], 1)
        self.floats_RF.index_copy_(0, at_B, floats_BF)
        wholes_BI = torch.stack([getattr(plan, name).long() for name in WHOLES], 1)
        self.wholes_RI.index_copy_(0, at_B, wholes_BI)
        if plan.enabled_BR is not None:
            self.enabled_RR.index_copy_(0, at_B, plan.enabled_BR)

    def of(self, carry_row_B: Tensor) -> dict[str, Tensor | None]:
        """In a resident step that draws: the fields of its plan that are settings."""
        floats_BF, wholes_BI = self.floats_RF[carry_row_B], self.wholes_RI[carry_row_B]
        found: dict[str, Tensor | None] = {n: floats_BF[:, i] for i, n in enumerate(FLOATS)}
        found["top_k_B"], found["seed_B"] = wholes_BI[:, 0].int(), wholes_BI[:, 1]
        return found
