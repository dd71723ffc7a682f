"""Conformance of the penalty functions of ``sampling`` backends."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.sampling import Sampling, penalty_cases
from mstar_core.ops.sampling.penalty_cases import REQUESTS, Inputs
from mstar_core.testing.ops.base import OpConformance, assert_near

STEPS = max(len(r.generated) for r in REQUESTS)


class PenaltyConformance(OpConformance):
    """Penalties of requests over their life. Part of the conformance of ``sampling``."""

    def penalties(self) -> Sampling:
        """The backend's record."""
        return self.bound(torch.float32, {"vocab_size": penalty_cases.VOCAB})  # type: ignore[no-any-return]

    @staticmethod
    def generate(ops: Sampling, x: Inputs) -> None:
        """Every request enters and generates its ids, one a step; who has none counts in row 0."""
        ops.enter(x.rows, x.plan)
        for step in range(STEPS):
            ids_B = penalty_cases.generated_step(step).to(x.logits_BV.device)
            row_B = torch.where(ids_B < 0, 0, x.plan.penalty_row_B)
            ops.count(x.rows, evolve(x.plan, penalty_row_B=row_B), ids_B.clamp_min(0))

    def test_logits_are_penalised_by_prompt_bias_and_what_was_generated(self) -> None:
        x = penalty_cases.lay()
        want = [penalty_cases.oracle(*row) for row in zip(x.logits_BV, REQUESTS, strict=True)]
        ops, x = self.penalties(), self.there(x)
        self.generate(ops, x)
        given = x.logits_BV.clone()
        assert_near(ops.penalise(x.logits_BV, x.rows, x.plan), torch.stack(want), 1e-5)
        assert torch.equal(x.logits_BV, given)

    def test_row_zero_stays_zero(self) -> None:
        """Whatever padding writes."""
        ops, x = self.penalties(), self.there(penalty_cases.lay())
        self.generate(ops, x)
        for table in (x.rows.prompt_RV, x.rows.count_RV, x.rows.bias_RV):
            assert not table[0].any()

    def test_entering_again_forgets_what_a_row_held(self) -> None:
        ops, x = self.penalties(), self.there(penalty_cases.lay())
        self.generate(ops, x)
        self.generate(ops, x)
        again = self.there(penalty_cases.lay(garbage=False))
        self.generate(ops, again)
        assert torch.equal(x.rows.count_RV, again.rows.count_RV)
        assert torch.equal(x.rows.prompt_RV, again.rows.prompt_RV)
        assert torch.equal(x.rows.bias_RV, again.rows.bias_RV)

    def test_a_capture_replays_penalties(self) -> None:
        ops = self.penalties()

        def forward(x: Inputs) -> Mapping[str, Tensor]:
            ops.enter(x.rows, x.plan)
            ruled = ops.penalise(x.logits_BV, x.rows, x.plan)
            ops.count(x.rows, x.plan, ruled.argmax(-1))
            return {"ruled": ruled}

        x, eager = penalty_cases.lay(), self.there(penalty_cases.lay())
        want = forward(eager)["ruled"]
        outputs, static = self.recorded(x, forward)(self.there(x))
        assert torch.equal(outputs["ruled"], want)
        assert torch.equal(static.rows.count_RV, eager.rows.count_RV)
