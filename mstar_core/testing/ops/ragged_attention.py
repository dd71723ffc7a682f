"""Conformance of ``ragged_attention`` backends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from mstar_core.ops.ragged_attention import RaggedAttention, cases, contract
from mstar_core.testing.ops.attention import GARBAGE, every_dtype, heads_of
from mstar_core.testing.ops.base import OpConformance, assert_near

every_case = pytest.mark.parametrize("case", cases.CASES, ids=str)


class RaggedAttentionConformance(OpConformance):
    """Subclass it with ``backend``."""

    def run(self, case: cases.Case, x: cases.Inputs) -> Tensor:
        """Attend."""
        ops: RaggedAttention = self.bound(x.q_TND.dtype, heads_of(case))
        return ops.attend(x.q_TND, x.k_TGD, x.v_TGD, x.plan, scale=case.scale, causal=case.causal)

    @every_dtype
    @every_case
    def test_rows_attend_to_themselves_only(self, case: cases.Case, dtype: torch.dtype) -> None:
        want = cases.oracle(case, dtype)
        for garbage in GARBAGE:
            x = self.there(cases.lay(case, dtype=dtype, garbage=garbage))
            got = self.run(case, x)
            assert_near(got[: x.num_real], want, contract.TOLERANCE[dtype])

    @every_case
    def test_a_row_alone_is_the_row_among_others(self, case: cases.Case) -> None:
        together = self.run(case, self.there(cases.lay(case))).cpu()
        near = contract.TOLERANCE[torch.float32]
        for r, rows in enumerate(torch.split(together[: sum(case.rows)], list(case.rows))):
            if len(rows):
                alone = self.run(case, self.there(cases.lay(case, only=[r])))
                assert_near(alone, rows, near)

    @every_case
    def test_a_capture_replays(self, case: cases.Case) -> None:
        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            return {"o": self.run(case, x)}

        x = cases.lay(case)
        outputs, _ = self.recorded(x, forward)(self.there(x))
        near = contract.TOLERANCE[torch.float32]
        assert_near(outputs["o"][: x.num_real], cases.oracle(case), near)
