"""Conformance of ``paged_attention`` backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.functional import rms_norm, rope_angles, rope_half_split
from mstar_core.ops.paged_attention import AttentionStep, PagedAttention, cases, contract
from mstar_core.testing.ops.base import OpConformance, assert_near, planned

every_case = pytest.mark.parametrize("case", cases.CASES, ids=str)
every_split = pytest.mark.parametrize("case", cases.SPLIT, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
GARBAGE = (float("nan"), 1e3)


def heads_of(case: Any) -> dict[str, Any]:
    """The geometry of a case, by the contract's names."""
    names = ("num_heads", "num_kv_heads", "head_dim")
    return {name: getattr(case, name) for name in names}


class PagedAttentionConformance(OpConformance):
    """Subclass it with ``backend``."""

    def ops(self, case: cases.Case, dtype: torch.dtype) -> PagedAttention:
        """The backend's record for a case."""
        geometry = heads_of(case) | {"page_tokens": case.page_tokens}
        return self.bound(dtype, geometry)  # type: ignore[no-any-return]

    @staticmethod
    def run(ops: PagedAttention, case: cases.Case, x: cases.Inputs) -> Tensor:
        """Write, then attend."""
        ops.write(x.k_TGD, x.v_TGD, x.k_PpGD, x.v_PpGD, x.plan.write_T)
        plan = planned(ops, x.plan)
        return ops.attend(x.q_TND, x.k_PpGD, x.v_PpGD, plan, scale=case.scale, causal=case.causal)

    @every_dtype
    @every_case
    def test_attention_is_the_softmax_of_each_query_alone(
        self, case: cases.Case, dtype: torch.dtype
    ) -> None:
        ops, want = self.ops(case, dtype), cases.oracle(case, dtype)
        for garbage in GARBAGE:
            x = self.there(cases.lay(case, dtype=dtype, garbage=garbage))
            got = self.run(ops, case, x)
            assert got.dtype == dtype
            assert_near(got[: x.num_real], want, contract.TOLERANCE[dtype])

    @every_case
    def test_padding_gives_finite_output(self, case: cases.Case) -> None:
        x = self.there(cases.lay(case))
        assert self.run(self.ops(case, torch.float32), case, x).isfinite().all()

    @every_case
    def test_a_row_without_readable_keys_gives_zeros(self, case: cases.Case) -> None:
        ops = self.ops(case, torch.float32)
        x = self.there(cases.lay(case))
        plan = evolve(x.plan, kv_lens_B=torch.zeros_like(x.plan.kv_lens_B))
        assert (self.run(ops, case, evolve(x, plan=plan)) == 0).all()

    @every_case
    def test_writing_changes_the_cells_of_this_step_only(self, case: cases.Case) -> None:
        ops, x = self.ops(case, torch.float32), self.there(cases.lay(case, garbage=5.0))
        keys, values = x.k_PpGD.clone(), x.v_PpGD.clone()
        self.run(ops, case, x)
        mine = x.plan.write_T[: x.num_real]
        for pool, old, new in ((x.k_PpGD, keys, x.k_TGD), (x.v_PpGD, values, x.v_TGD)):
            assert torch.equal(pool.flatten(0, 1)[mine], new[: x.num_real])
            old.flatten(0, 1)[mine] = new[: x.num_real]
            assert torch.equal(pool[1:], old[1:])

    @every_case
    def test_a_row_alone_is_the_row_among_others(self, case: cases.Case) -> None:
        ops = self.ops(case, torch.float32)
        together = self.run(ops, case, self.there(cases.lay(case))).cpu()
        first = 0
        for r, (_, span) in enumerate(case.rows):
            if span:
                alone = self.run(ops, case, self.there(cases.lay(case, only=[r], layout=3)))
                near = contract.TOLERANCE[torch.float32]
                assert_near(alone, together[first : first + span], near)
            first += span

    @every_case
    def test_a_capture_replays_on_any_layout(self, case: cases.Case) -> None:
        ops, want = self.ops(case, torch.float32), cases.oracle(case)
        ops = self.captured(ops, cases.lay(case).plan)

        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            return {"o": self.run(ops, case, x)}

        replay = self.recorded(cases.lay(case), forward)
        for layout in range(3):
            x = cases.lay(case, layout=layout, garbage=GARBAGE[layout % 2])
            outputs, _ = replay(self.there(x))
            near = contract.TOLERANCE[torch.float32]
            assert_near(outputs["o"][: x.num_real], want, near)

    @every_split
    def test_a_mixed_capture_replays_any_order_of_rows(self, case: cases.Case) -> None:
        """Captured on one layout, replayed on another: how long the lead is, is a value."""
        ops, first = self.ops(case, torch.float32), cases.SPLIT[0]
        ops = self.captured(ops, cases.lay(case).plan)

        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            return {"o": self.run(ops, case, x)}

        replay = self.recorded(cases.lay(first), forward)
        for other in (first, case):
            x = cases.lay(other, layout=2)
            outputs, _ = replay(self.there(x))
            near = contract.TOLERANCE[torch.float32]
            assert_near(outputs["o"][: x.num_real], cases.oracle(other), near)

    @every_split
    @pytest.mark.parametrize("lead", [0, 1, 2, 6])
    def test_the_width_of_the_lead_changes_no_row(self, case: cases.Case, lead: int) -> None:
        ops, near = self.ops(case, torch.float32), contract.TOLERANCE[torch.float32]
        want = self.run(ops, case, self.there(cases.lay(case))).cpu()
        x = cases.lay(evolve(case, lead=lead))
        got = self.run(ops, case, self.there(x))
        assert_near(got[: x.num_real], want[: x.num_real], near)

    @every_dtype
    @every_case
    def test_a_step_norms_turns_writes_attends_and_gates(
        self, case: cases.Case, dtype: torch.dtype
    ) -> None:
        ops, x = self.ops(case, dtype), self.there(cases.lay(case, dtype=dtype))
        by_hand = self.there(x)
        D, scale, causal = case.head_dim, case.scale, case.causal
        positions_T = (x.plan.before_B[x.plan.row_T.long()] + x.plan.col_T).long()
        norms = [torch.linspace(0.5, 1.5, D, device=self.device) * n for n in (1.0, 0.7)]
        step = AttentionStep(
            scale=scale,
            causal=causal,
            gate_TND=torch.sin(torch.arange(x.q_TND.numel(), device=self.device))
            .view(x.q_TND.shape)
            .to(dtype),
            q_norm_D=norms[0],
            k_norm_D=norms[1],
            rope=rope_angles(positions_T, D // 2, 1e4),
        )
        got = ops.step(x.q_TND, x.k_TGD, x.v_TGD, (x.k_PpGD, x.v_PpGD), planned(ops, x.plan), step)
        q, k = (
            rope_half_split(rms_norm(t.float(), n, step.eps), *step.rope).to(dtype)  # type: ignore[misc]
            for t, n in zip((by_hand.q_TND, by_hand.k_TGD), norms, strict=True)
        )
        o = self.run(ops, case, evolve(by_hand, q_TND=q, k_TGD=k)).float()
        want = (o * torch.sigmoid(step.gate_TND.float())).cpu()  # type: ignore[union-attr]
        near = 2 * contract.TOLERANCE[dtype]
        assert_near(got[: x.num_real], want[: x.num_real], near)

    @every_case
    def test_a_step_without_keys_only_reads_the_pool(self, case: cases.Case) -> None:
        ops, x = self.ops(case, torch.float32), self.there(cases.lay(case, garbage=5.0))
        want = self.run(ops, case, x)
        keys, values = x.k_PpGD.clone(), x.v_PpGD.clone()
        step = AttentionStep(scale=case.scale, causal=case.causal)
        got = ops.step(x.q_TND, None, None, (x.k_PpGD, x.v_PpGD), planned(ops, x.plan), step)
        assert_near(got, want.cpu(), contract.TOLERANCE[torch.float32])
        assert torch.equal(x.k_PpGD, keys)
        assert torch.equal(x.v_PpGD, values)
