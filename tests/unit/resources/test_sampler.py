"""The sampler: settings per row, penalties counted on the device, rules with state."""

from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import ConfigError, RequestError
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.sampler import LogitRule, SamplerResource, SuppressRule
from mstar_core.step import Bucket
from mstar_core.testing.resources import (
    World,
    carry_step_of,
    decode_lease,
    opening_of,
    prefill_lease,
)

V = 12


def build(rules=(), config=None, max_rows=4, **options):
    world = World(max_rows=max_rows)
    world.build(CarryResource, "carry", {"tensors": {"ids": ((), torch.int64, 0)}})
    options = {"vocab_size": V, "rules": rules} | options
    world.build(SamplerResource, "sampler", options, config, {"carry": "carry"})
    return world


def request(prompt=(1, 2, 3), rules=None, **settings):
    given = {"sampler": SamplingSettings(**settings), "sampler_rules": rules or {}}
    return opening_of(settings=given, prompt_ids=prompt)


def sample(world, logits_BV, *handles, spans=1, samples=True, lease=None):
    parts = {
        key: carry_step_of(*handles, spans=spans, samples=samples, key=key)
        for key in ("carry", "sampler")
    }
    plan = world.run(parts, lease)["sampler"]
    return world.resources["sampler"].sample(torch.as_tensor(logits_BV), plan)


def flat(**ids):
    row = torch.zeros(V)
    for name, value in ids.items():
        row[int(name[1:])] = value
    return row


def test_a_greedy_row_takes_the_likeliest_token_and_its_logprob():
    world = build()
    got = sample(world, torch.stack([flat(_4=2.0), flat(_7=1.0)]), world.open(), world.open())
    assert got.ids_B.tolist() == [4, 7]
    torch.testing.assert_close(got.logprob_B[0], flat(_4=2.0).log_softmax(-1)[4])
    assert got.finite_B.tolist() == [True, True]
    assert got.top_ids_BK is None


def test_ids_past_the_valid_vocabulary_are_never_sampled():
    world = build(valid_vocab=10)
    got = sample(world, flat(_11=50.0, _3=1.0)[None], world.open())
    assert got.ids_B.tolist() == [3]
    with pytest.raises(RequestError, match="logit_bias"):
        world.resources["sampler"].check(request(logit_bias={10: 1.0}))


def test_a_row_of_nan_is_flagged_and_leaves_its_neighbour_alone():
    world = build()
    logits = torch.stack([torch.full((V,), float("nan")), flat(_5=1.0)])
    got = sample(world, logits, world.open(), world.open())
    assert got.finite_B.tolist() == [False, True]
    assert got.ids_B[1] == 5
    assert 0 <= got.ids_B[0] < V


def test_every_generated_token_counts_at_once_the_first_included():
    """SM-11: with a frequency penalty of 2 the same token never comes twice in a row."""
    world = build()
    a = world.open(request(frequency_penalty=2.0))
    logits = torch.tensor([0.2, 0.2, 0.2, 0.6] + [0.0] * 8).clamp_min(1e-9).log()[None]
    ids = [int(sample(world, logits, a, spans=s).ids_B) for s in (3, 1, 1, 1, 1)]
    assert ids[0] == 3
    assert all(x != y for x, y in pairwise(ids))
    counts = world.resources["sampler"].pool.count_RV
    row = world.resources["sampler"].table.penalty_row[a]
    assert counts[row].tolist() == np.bincount(ids, minlength=V).tolist()
    assert not counts[0].any()


def test_repetition_covers_the_prompt_and_presence_does_not():
    world = build()
    a = world.open(request(prompt=[4], repetition_penalty=2.0))
    b = world.open(request(prompt=[4], presence_penalty=2.0))
    logits = flat(_4=1.0, _5=0.75)
    got = sample(world, torch.stack([logits, logits]), a, b)
    assert got.ids_B.tolist() == [5, 4]
    got = sample(world, torch.stack([logits, logits]), a, b)
    assert got.ids_B.tolist() == [4, 5]


def test_a_prompt_in_pieces_begins_its_penalty_row_with_the_first_token():
    world = build()
    sampler = world.resources["sampler"]
    a = world.open(request(prompt=[4, 5], repetition_penalty=2.0, logit_bias={9: 3.0}))
    row = sampler.table.penalty_row[a]
    for rows in (sampler.pool.prompt_RV, sampler.pool.count_RV, sampler.pool.bias_RV):
        rows[row] = 1  # what an earlier request left
    sample(world, flat(_4=9.0)[None], a, samples=False)
    assert sampler.pool.prompt_RV[row].all()
    got = sample(world, flat(_4=4.0, _6=2.5)[None], a)
    assert got.ids_B.tolist() == [9]
    assert sampler.pool.prompt_RV[row].nonzero().flatten().tolist() == [4, 5]
    assert sampler.pool.bias_RV[row].nonzero().flatten().tolist() == [9]
    assert sampler.pool.count_RV[row].nonzero().flatten().tolist() == [9]


def test_a_bias_bans_or_forces_a_token():
    """SM-07, and SM-09: the logprob of a banned token is a finite number."""
    world = build(rules=(SuppressRule([2]),))
    a = world.open(request(logit_bias={3: -100}, logprobs=V))
    b = world.open(request(logit_bias={7: 100}))
    got = sample(world, torch.stack([flat(_3=5.0, _4=1.0), flat()]), a, b)
    assert got.ids_B.tolist() == [4, 7]
    assert got.top_logprobs_BK.isfinite().all()
    assert got.top_logprobs_BK.min() == -9999.0


def test_penalty_rows_run_out_and_come_back_behind_the_fence():
    world = build(config={"penalty_rows": 1})
    sampler = world.resources["sampler"]
    a = world.open(request(presence_penalty=1.0))
    sample(world, flat()[None], a)
    short = sampler.can_open(request(presence_penalty=1.0))
    assert (short.need, short.free, short.unit) == (1, 0, "penalty rows")
    assert sampler.can_open(request()) is None
    world.close(a)
    assert sampler.can_open(request(presence_penalty=1.0)).cooling == 1
    world.retire()
    assert sampler.can_open(request(presence_penalty=1.0)) is None


def test_without_penalty_rows_such_a_request_is_refused_at_the_door():
    sampler = build(config={"penalty_rows": 0}).resources["sampler"]
    with pytest.raises(RequestError, match="penalty_rows is 0"):
        sampler.check(request(logit_bias={1: 1.0}))
    sampler.check(request(temperature=1.0))


def test_more_logprobs_than_the_deployment_allows_are_refused():
    """SM-06."""
    sampler = build(config={"max_top_logprobs": 5}).resources["sampler"]
    sampler.check(request(logprobs=5))
    with pytest.raises(RequestError, match="at most 5"):
        sampler.check(request(logprobs=6))


def test_the_same_seed_gives_the_same_tokens_in_any_row_batch_and_step():
    logits, world = torch.randn(V, generator=torch.Generator().manual_seed(0)), build(max_rows=8)
    a = world.open(request(temperature=1.5, seed=7))
    alone = [int(sample(world, logits[None], a).ids_B) for _ in range(12)]
    others = [world.open(request(temperature=1.0)) for _ in range(3)]
    b = world.open(request(temperature=1.5, seed=7))
    for step, want in enumerate(alone):
        rows = [*others[: step % 4], b]
        lease = decode_lease(6, variant=1) if step % 2 else None
        n = 6 if lease else len(rows)
        got = sample(world, logits.expand(n, -1), *rows, lease=lease)
        assert int(got.ids_B[len(rows) - 1]) == want
    assert len(set(alone)) > 3


def test_requests_without_a_seed_draw_their_own():
    world = build(max_rows=8)
    handles = [world.open(request(temperature=1.0)) for _ in range(8)]
    assert len(set(world.resources["sampler"].table.seed[handles].tolist())) == 8


def test_a_prompts_token_and_a_later_token_draw_by_their_position():
    """The position is the stream's, however many steps brought the prompt."""
    world = build()
    a, b = (
        world.open(request(temperature=1.0, seed=1)),
        world.open(request(temperature=1.0, seed=1)),
    )
    logits = torch.zeros(1, V)
    whole = sample(world, logits, a, spans=5)
    sample(world, logits, b, spans=3, samples=False)
    pieces = sample(world, logits, b, spans=2)
    assert whole.ids_B.tolist() == pieces.ids_B.tolist()
    assert sample(world, logits, a).ids_B.tolist() == sample(world, logits, b).ids_B.tolist()


@pytest.mark.parametrize("k", [-1, 0, 1, V, V + 1, 9999999])
def test_any_top_k_leaves_the_neighbour_alone(k):
    """SM-05."""
    world = build()
    a, b = world.open(request(temperature=1.0, top_k=k, seed=3)), world.open()
    got = sample(world, torch.stack([flat(_2=4.0), flat(_6=1.0)]), a, b)
    assert got.ids_B[1] == 6
    if k == 1:
        assert got.ids_B[0] == 2


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-6, 1e-30, 0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_tiny_temperature_is_as_good_as_greedy(temperature, dtype):
    """SM-02."""
    world = build()
    a = world.open(request(temperature=temperature, top_p=1e-4, seed=5))
    got = sample(world, flat(_2=40.0, _9=39.0).to(dtype)[None], a)
    assert got.ids_B.tolist() == [2]
    assert got.logprob_B.isfinite().all()


def test_the_variant_is_the_union_of_the_needs_of_rows_that_sample():
    world = build()
    sampler = world.resources["sampler"]
    plain, hot = world.open(), world.open(request(temperature=1.0))
    biased = world.open(request(logit_bias={1: 1.0}, logprobs=2))
    assert sampler.variant(carry_step_of(plain)) == 0
    assert sampler.variant(carry_step_of(plain, hot)) == 1
    assert sampler.variant(carry_step_of(plain, hot, biased)) == 7
    assert sampler.variant(carry_step_of(plain, biased, samples=[True, False])) == 0
    assert sampler.variants() == (0, 1)
    penalised = Bucket(walk="decode", rows=4, tokens=4, kind="decode", variant=2)
    assert sampler.capture_refusal(penalised).code == "penalties"
    assert sampler.capture_refusal(Bucket(walk="d", rows=4, tokens=4, kind="decode")) is None


def test_last_picks_each_rows_last_hidden_state():
    world = build()
    a, b = world.open(), world.open()
    parts = {key: carry_step_of(a, b, spans=[3, 2], key=key) for key in ("carry", "sampler")}
    plan = world.run(parts, prefill_lease(3, 8))["sampler"]
    hidden = torch.arange(8.0)[:, None]
    assert world.resources["sampler"].last(hidden, plan)[:2, 0].tolist() == [2, 4]


def test_sampling_from_the_head_equals_sampling_its_logits():
    for rules in ((), (SuppressRule([0]),)):
        world = build(rules=rules, valid_vocab=10)
        sampler, a = world.resources["sampler"], world.open()
        parts = {key: carry_step_of(a, key=key) for key in ("carry", "sampler")}
        plan = world.run(parts)["sampler"]
        hidden, weight = torch.randn(1, 6), torch.randn(V, 6)
        got, want = (
            sampler.sample_head(hidden, weight, plan),
            sampler.sample(hidden @ weight.T, plan),
        )
        assert got.ids_B.tolist() == want.ids_B.tolist()
        torch.testing.assert_close(got.logprob_B, want.logprob_B)


def test_suppressed_ids_are_never_chosen_and_first_ids_not_first():
    world = build(rules=(SuppressRule([3], first_ids=[4]),))
    a = world.open()
    logits = flat(_3=9.0, _4=8.0, _5=7.0)[None]
    ids = [int(sample(world, logits, a, spans=s).ids_B) for s in (4, 1, 1)]
    assert ids == [5, 4, 4]


def test_a_rule_applies_to_the_requests_that_want_it():
    world = build(rules=(SuppressRule([3]),))
    a, b = world.open(), world.open(request(rules={"suppress": False}))
    got = sample(world, torch.stack([flat(_3=2.0, _4=1.0)] * 2), a, b)
    assert got.ids_B.tolist() == [4, 3]


class NeverDown(LogitRule):
    """No token below the highest so far: the state is known to the device alone."""

    name = "never_down"
    state: ClassVar = {"highest": ((), torch.int64, -1), "steps": ((), torch.int32, 0)}

    def build(self, vocab_size, claim):
        self.ids_V = claim("ids", vocab_size, torch.int64)
        self.ids_V.copy_(torch.arange(vocab_size))

    def apply(self, logits_BV, state_B, context):
        return logits_BV.masked_fill(self.ids_V < state_B["highest"][:, None], float("-inf"))

    def update(self, state_B, ids_B, context):
        return {
            "highest": torch.maximum(state_B["highest"], ids_B),
            "steps": state_B["steps"] + 1,
        }


def test_a_rule_keeps_state_on_the_device_from_token_to_token():
    world = build(rules=(NeverDown(),))
    a, b = world.open(), world.open()
    up, down = flat(_6=1.0), flat(_2=1.0)
    assert sample(world, torch.stack([up, down]), a, b, spans=[2, 3]).ids_B.tolist() == [6, 2]
    got = sample(world, torch.stack([down] * 4), b, a, lease=decode_lease(4))
    assert got.ids_B[:2].tolist() == [2, 6]


def test_a_rules_state_starts_anew_in_a_row_that_is_used_again():
    world = build(rules=(NeverDown(),), max_rows=1)
    a = world.open()
    sample(world, flat(_9=1.0)[None], a)
    world.close(a)
    world.retire()
    assert sample(world, flat(_2=1.0)[None], world.open()).ids_B.tolist() == [2]


def test_a_step_that_does_not_sample_leaves_a_rules_state():
    world = build(rules=(NeverDown(),))
    a = world.open()
    sample(world, flat(_4=1.0)[None], a)
    sample(world, flat(_9=1.0)[None], a, samples=False)
    assert sample(world, flat(_5=1.0)[None], a).ids_B.tolist() == [5]
    kept = world.resources["sampler"].chain.kept[0]["steps"]
    assert kept[world.resources["carry"].row[a]] == 2


def test_a_thousand_seeds_draw_what_the_logits_say():
    """SM-11: the first token obeys the temperature (chi-square over 2,000 seeds)."""
    world = World(max_rows=1000, num_handles=1000)
    world.build(CarryResource, "carry", {"tensors": {}})
    world.build(SamplerResource, "sampler", {"vocab_size": 4})
    logits, counts = torch.tensor([2.0, 1.0, 0.0, -1.0]), np.zeros(4)
    for base in (0, 1000):
        handles = [world.open(request(temperature=2.0, seed=base + i)) for i in range(1000)]
        got = sample(world, logits.expand(1000, -1), *handles, spans=5)
        counts += np.bincount(got.ids_B.numpy(), minlength=4)
        for handle in handles:
            world.close(handle)
        world.retire()
    want = 2000 * (logits / 2).softmax(-1).numpy()
    assert ((counts - want) ** 2 / want).sum() < 16.3  # 3 degrees of freedom, p = 0.001


def test_a_suppressed_id_outside_the_vocabulary_is_named():
    with pytest.raises(ConfigError, match="suppressed tokens"):
        build(rules=(SuppressRule([3, V]),))


def test_a_sampler_without_carry_is_refused():
    with pytest.raises(ConfigError, match=r"depends_on\.carry"):
        World().build(SamplerResource, "sampler", {"vocab_size": 4})
