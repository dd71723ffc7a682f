"""Conformance of ``gated_delta`` backends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.gated_delta import GatedDelta, GdnPools, cases, contract
from mstar_core.ops.gated_delta.recurrence import oracle, recurrence
from mstar_core.testing.ops.base import OpConformance, assert_near, planned
from mstar_core.testing.ops.gated_delta_forms import chunk, k_last

every_case = pytest.mark.parametrize("case", cases.CASES, ids=str)
every_split = pytest.mark.parametrize("case", cases.SPLIT, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
GARBAGE = (float("nan"), 1e3)
LONG = cases.Case(name="long", rows=((512, True),), num_k_heads=1, num_v_heads=2)


class GatedDeltaConformance(OpConformance):
    """Subclass it with ``backend``. The layout of its states is the contract's, or ``K_LAST``."""

    def ops(self, case: cases.Case, dtype: torch.dtype) -> GatedDelta:
        """The backend's record for a case."""
        names = ("num_k_heads", "num_v_heads", "k_dim", "v_dim")
        geometry = {name: getattr(case, name) for name in names} | {"conv_taps": case.taps}
        ops: GatedDelta = self.bound(dtype, geometry | {"activation": "silu"})
        if ops.layout == contract.K_LAST:
            return evolve(ops, layout=contract.LAYOUT, step=k_last(ops))
        if ops.layout != contract.LAYOUT:
            pytest.skip(f"state layout {ops.layout}, and the cases are laid out as the contract's")
        return ops

    @staticmethod
    def run(ops: GatedDelta, x: cases.Inputs) -> Tensor:
        """One step."""
        plan = planned(ops, x.plan)
        return ops.step(x.qkv_TC, x.z_TV, x.b_TH, x.a_TH, x.weights, x.pools, plan)

    def check(self, case: cases.Case, x: cases.Inputs, got_TV: Tensor, near: float) -> None:
        """Outputs, windows and states of the real rows are the recurrence's."""
        want = oracle(case, x.qkv_TC.dtype)
        assert_near(got_TV[: x.num_real], torch.cat([o for o, _, _ in want]), near)
        for r, (slot, (_, window, state)) in enumerate(zip(x.slots.tolist(), want, strict=True)):
            if case.rows[r][0]:
                assert_near(x.pools.conv_SCK[slot], window, 0)
                assert_near(x.pools.ssm_SHDE[slot], state, near)

    @every_dtype
    @every_case
    def test_a_step_is_the_recurrence_of_each_row(
        self, case: cases.Case, dtype: torch.dtype
    ) -> None:
        """GDN-13, GDN-15, GDN-20: whatever slots held before, and whoever else is packed."""
        ops = self.ops(case, dtype)
        for garbage in GARBAGE:
            x = self.there(cases.lay(case, dtype=dtype, garbage=garbage))
            got = self.run(ops, x)
            assert got.dtype == dtype
            assert got.isfinite().all(), "padding rows too give finite output"
            self.check(case, x, got, contract.TOLERANCE[dtype])

    @every_case
    def test_slots_of_others_and_the_null_slot_are_left_alone(self, case: cases.Case) -> None:
        ops, x = self.ops(case, torch.float32), self.there(cases.lay(case, garbage=5.0))
        before = self.there(x.pools)
        self.run(ops, x)
        busy = {s for s, (span, _) in zip(x.slots.tolist(), case.rows, strict=True) if span}
        idle = [s for s in range(len(x.pools.conv_SCK)) if s not in busy]
        assert 0 in idle
        assert torch.equal(x.pools.conv_SCK[idle], before.conv_SCK[idle])
        assert torch.equal(x.pools.ssm_SHDE[idle], before.ssm_SHDE[idle])

    @every_case
    def test_a_row_alone_is_the_row_among_others(self, case: cases.Case) -> None:
        ops, first = self.ops(case, torch.float32), 0
        together = self.run(ops, self.there(cases.lay(case))).cpu()
        for r, (span, _) in enumerate(case.rows):
            if span:
                alone = self.run(ops, self.there(cases.lay(case, only=[r], layout=3)))
                near = contract.TOLERANCE[torch.float32]
                assert_near(alone, together[first : first + span], near)
            first += span

    @every_case
    def test_a_capture_replays_on_any_layout(self, case: cases.Case) -> None:
        ops = self.captured(self.ops(case, torch.float32), cases.lay(case).plan)

        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            return {"o": self.run(ops, x)}

        replay = self.recorded(cases.lay(case), forward)
        for layout in range(2):
            x = self.there(cases.lay(case, layout=layout, garbage=GARBAGE[layout]))
            outputs, static = replay(x)
            self.check(case, static, outputs["o"], contract.TOLERANCE[torch.float32])

    @pytest.mark.parametrize("cut", [64, 1, 130])
    def test_a_copy_of_a_slot_goes_on_as_the_slot_would(self, cut: int) -> None:
        """GDN-08, for a backend that says ``snapshots``: another slot, filled by copying alone."""
        ops, near = self.ops(LONG, torch.float32), contract.TOLERANCE[torch.float32]
        if not ops.snapshots:
            pytest.skip("its slots cannot be copied as snapshots, as it says")
        x, other = self.there(cases.lay(LONG)), self.there(cases.lay(LONG, garbage=GARBAGE[0]))
        self.run(ops, chunk(x, 0, cut, fresh=True))
        other.pools.conv_SCK[x.slots] = x.pools.conv_SCK[x.slots]
        other.pools.ssm_SHDE[x.slots] = x.pools.ssm_SHDE[x.slots]
        got = self.run(ops, chunk(other, cut, 512, fresh=False))
        assert_near(got, oracle(LONG, torch.float32)[0][0][cut:], near)

    @every_split
    def test_a_mixed_capture_replays_any_order_of_rows(self, case: cases.Case) -> None:
        """Captured on one layout, replayed on another: how long the lead is, is a value."""
        ops, first = self.ops(case, torch.float32), cases.SPLIT[0]
        ops = self.captured(ops, cases.lay(case).plan)

        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            return {"o": self.run(ops, x)}

        replay = self.recorded(cases.lay(first), forward)
        for other in (first, case):
            x = self.there(cases.lay(other, layout=2))
            outputs, static = replay(x)
            left = evolve(static, num_real=x.num_real)
            self.check(other, left, outputs["o"], contract.TOLERANCE[torch.float32])

    @every_split
    @pytest.mark.parametrize("lead", [0, 1, 2, 6])
    def test_the_width_of_the_lead_changes_no_row(self, case: cases.Case, lead: int) -> None:
        ops, near = self.ops(case, torch.float32), contract.TOLERANCE[torch.float32]
        wanted, x = self.there(cases.lay(case)), self.there(cases.lay(evolve(case, lead=lead)))
        want, got = self.run(ops, wanted).cpu(), self.run(ops, x)
        assert_near(got[: x.num_real], want[: x.num_real], near)
        kept, mine = wanted.pools, x.pools
        assert_near(mine.ssm_SHDE[x.slots], kept.ssm_SHDE[x.slots].cpu(), near)
        assert torch.equal(mine.conv_SCK[x.slots], kept.conv_SCK[x.slots])

    @pytest.mark.parametrize("block", [range(1 + i, 131, 5) for i in range(5)], ids=str)
    def test_any_length_leaves_the_state_of_the_recurrence(self, block: range) -> None:
        """GDN-14: lengths 1 to 130, one row each."""
        for length in block:
            case = cases.Case(name="length", rows=((length, True),), num_v_heads=2)
            x = self.there(cases.lay(case))
            self.check(case, x, self.run(self.ops(case, torch.float32), x), 1e-4)

    @pytest.mark.parametrize("cut", [1, 2, 3, 4, 63, 64, 65, 256, 511])
    def test_a_stream_may_be_cut_anywhere(self, cut: int) -> None:
        """GDN-16: two steps give what one does, also where a part is shorter than the window."""
        ops = self.ops(LONG, torch.float32)
        whole, parts = self.there(cases.lay(LONG)), self.there(cases.lay(LONG))
        want = self.run(ops, whole)
        got = [
            self.run(ops, chunk(parts, 0, cut, True)),
            self.run(ops, chunk(parts, cut, 512, False)),
        ]
        assert_near(torch.cat(got), want.cpu(), 1e-4)
        slot = whole.slots
        assert_near(parts.pools.ssm_SHDE[slot], whole.pools.ssm_SHDE[slot].cpu(), 1e-4)
        assert torch.equal(parts.pools.conv_SCK[slot], whole.pools.conv_SCK[slot])

    @pytest.mark.parametrize("gate", [(-40.0, 0.0), (15.0, 20.0)], ids=["keeps", "forgets"])
    def test_decays_of_one_and_of_almost_zero_are_exact(self, gate: tuple[float, float]) -> None:
        """GDN-17: a decay that is exactly 1, and one of 1e-8 and less, in every second token."""
        case = cases.Case(name="gate", rows=((70, False),))
        x = cases.lay(case)
        x.a_TH[::2] = gate[0]
        x.weights.dt_bias_H.fill_(gate[1] / 4)
        x.weights.A_log_H.fill_(0.2)
        stream = evolve(cases.stream_of(case, 0, torch.float32), a_TH=x.a_TH)
        want, _, state = recurrence(stream, x.weights, case)
        x = self.there(x)
        assert_near(self.run(self.ops(case, torch.float32), x), want, 1e-4)
        assert_near(x.pools.ssm_SHDE[x.slots[0]], state, 1e-4)

    @pytest.mark.parametrize("span", [1, 3])
    def test_a_read_out_beyond_fp16_is_normed_before_it_is_cast(self, span: int) -> None:
        """GDN-18: state entries of 1e5, so the read-out is past 65504."""
        case = cases.Case(name="large", rows=((span, False),), decode=int(span == 1))
        x = cases.lay(case, dtype=torch.float16)
        pools = GdnPools(conv_SCK=x.pools.conv_SCK, ssm_SHDE=torch.full_like(x.pools.ssm_SHDE, 1e5))
        stream = cases.stream_of(case, 0, torch.float16)
        stream = evolve(stream, state_HDE=torch.full_like(stream.state_HDE, 1e5))
        want, _, _ = recurrence(stream, x.weights, case)
        got = self.run(self.ops(case, torch.float16), self.there(evolve(x, pools=pools)))
        assert_near(got, want, contract.TOLERANCE[torch.float16])
