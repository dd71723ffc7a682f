"""Conformance of ``sampling`` backends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.sampling import Sampled, Sampling, cases, contract
from mstar_core.testing.ops.base import assert_near
from mstar_core.testing.ops.penalties import PenaltyConformance

every_case = pytest.mark.parametrize("case", cases.CASES, ids=str)
NEAR = 1e-4


class SamplingConformance(PenaltyConformance):
    """Subclass it with ``backend``."""

    dtypes = (torch.float32,)

    def run(self, case: cases.Case, x: cases.Inputs) -> Sampled:
        """One draw."""
        ops: Sampling = self.bound(torch.float32, {"vocab_size": case.vocab})
        return ops.sample(x.logits_BV, x.plan, draw=x.draw)

    @every_case
    def test_each_row_samples_the_id_that_its_settings_and_key_say(self, case: cases.Case) -> None:
        """Filters and noise, against integers and numpy, one id at a time."""
        x = cases.lay(case)
        got = self.run(case, self.there(x))
        logits = x.logits_BV.numpy()
        want = [cases.oracle_id(*row, case.draw) for row in zip(logits, case.rows, strict=True)]
        assert got.ids_B.tolist() == want
        assert got.finite_B.tolist() == x.logits_BV.isfinite().all(-1).tolist()

    @every_case
    def test_logprobs_are_those_of_the_logits_without_temperature(self, case: cases.Case) -> None:
        x = cases.lay(case)
        got = self.run(case, self.there(x))
        logprobs = x.logits_BV.log_softmax(-1).clamp_min(contract.LEAST_LOGPROB)
        ids = got.ids_B.cpu()
        assert_near(got.logprob_B, logprobs.gather(-1, ids[:, None])[:, 0], NEAR)
        if not case.top_logprobs:
            assert got.top_ids_BK is None
            return
        assert got.top_logprobs_BK is not None
        K = min(case.top_logprobs, case.vocab)
        assert_near(got.top_logprobs_BK, logprobs.topk(K, -1).values, NEAR)

    @every_case
    def test_a_row_alone_samples_as_among_others(self, case: cases.Case) -> None:
        """Noise is keyed by seed, position, draw and id; never by row."""
        together = self.run(case, self.there(cases.lay(case))).ids_B.tolist()
        for r in range(len(case.rows)):
            alone = self.run(case, self.there(cases.lay(case, only=[r])))
            assert alone.ids_B.tolist() == together[r : r + 1]

    @every_case
    def test_a_row_of_nan_is_told_and_changes_no_other(self, case: cases.Case) -> None:
        x = cases.lay(case)
        clean = self.run(case, self.there(x))
        spoilt = torch.cat([x.logits_BV, torch.full_like(x.logits_BV[:1], float("nan"))])
        rows = (*case.rows, cases.RowSettings(top_k=3, top_p=0.5, min_p=0.1))
        plan = cases.plan_of(rows, case.sampled, case.top_logprobs)
        got = self.run(case, self.there(evolve(x, logits_BV=spoilt, plan=plan)))
        assert got.ids_B[:-1].tolist() == clean.ids_B.tolist()
        assert got.finite_B.tolist() == [*clean.finite_B.tolist(), False]
        assert 0 <= int(got.ids_B[-1]) < case.vocab

    @every_case
    def test_a_row_of_masked_ids_gives_an_id_and_a_finite_logprob(self, case: cases.Case) -> None:
        x = cases.lay(case)
        masked = evolve(x, logits_BV=torch.full_like(x.logits_BV, float("-inf")))
        got = self.run(case, self.there(masked))
        assert ((got.ids_B >= 0) & (got.ids_B < case.vocab)).all()
        assert (got.logprob_B == contract.LEAST_LOGPROB).all()

    @every_case
    def test_a_capture_replays(self, case: cases.Case) -> None:
        ops: Sampling = self.bound(torch.float32, {"vocab_size": case.vocab})

        def forward(x: cases.Inputs) -> Mapping[str, Tensor]:
            got = ops.sample(x.logits_BV, x.plan, draw=case.draw)
            return {"ids": got.ids_B, "logprob": got.logprob_B, "finite": got.finite_B}

        x = cases.lay(case)
        want = self.run(case, self.there(x))
        outputs, _ = self.recorded(x, forward)(self.there(x))
        assert torch.equal(outputs["ids"], want.ids_B)
        assert_near(outputs["logprob"], want.logprob_B.cpu(), NEAR)

    def test_the_head_samples_as_its_logits_do(self) -> None:
        ops: Sampling = self.bound(torch.float32, {"vocab_size": 40})
        hidden, weight = (normal(seeded(n), n, 16) for n in (6, 40))
        plan = self.there(cases.plan_of([cases.RowSettings(seed=s) for s in range(6)]))
        fused = ops.head_sample(hidden.to(self.device), weight.to(self.device), plan)
        apart = ops.sample((hidden @ weight.t()).to(self.device), plan)
        assert torch.equal(fused.ids_B, apart.ids_B)
        assert_near(fused.logprob_B, apart.logprob_B.cpu(), contract.TOLERANCE[torch.float32])
