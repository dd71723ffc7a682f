"""Wrong kernels, each of which must fail a named check of the kit."""

import pytest
import torch
from attrs import evolve

from mstar_core.ops.gated_delta import cases as gdn_cases
from mstar_core.ops.gated_delta import reference as gdn
from mstar_core.ops.gated_delta.torch_backend import BACKEND as GATED_DELTA
from mstar_core.ops.paged_attention import cases as paged_cases
from mstar_core.ops.paged_attention.torch_backend import BACKEND as PAGED_ATTENTION
from mstar_core.ops.sampling import cases as sampling_cases
from mstar_core.ops.sampling.torch_backend import BACKEND as SAMPLING
from mstar_core.testing.ops import (
    GatedDeltaConformance,
    PagedAttentionConformance,
    SamplingConformance,
)

ATTENTION = PAGED_ATTENTION.bind(None)
SAMPLE = SAMPLING.bind(None)


def fails(conformance, ops, check, *args):
    """The named check fails for the record ``ops``."""

    class Wrong(conformance):
        def bound(self, dtype, geometry):
            return ops

    with pytest.raises((AssertionError, IndexError)):
        getattr(Wrong(), check)(*args)


def case(module, name):
    return next(c for c in module.CASES if c.name == name)


def stale(*args):
    """A fresh row's slot is loaded."""
    plan = evolve(args[-1], fresh_B=torch.zeros_like(args[-1].fresh_B))
    return gdn.step(*args[:-1], plan)


def multiplied(*args):
    """A fresh row's slot is zeroed by multiplying."""
    pools, plan = args[-2:]
    keep = torch.ones(len(pools.conv_SCK)).index_fill(0, plan.slots_B[plan.fresh_B], 0)
    pools.conv_SCK.mul_(keep[:, None, None])
    pools.ssm_SHDE.mul_(keep[:, None, None, None])
    return stale(*args)


def leaky(*args):
    """The convolution reads the tokens of the row packed before."""
    whole = gdn.convolve

    def convolve(qkv, conv, window, plan):
        return whole(qkv, conv, window, evolve(plan, col_T=plan.col_T + 8))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gdn, "convolve", convolve)
        return gdn.step(*args)


def forgetful(*args):
    """A step shorter than the window drops what the window held."""
    out, (pools, plan) = gdn.step(*args), args[-2:]
    pools.conv_SCK[plan.slots_B[plan.q_lens_B < 3], :, 0] = 0
    return out


def transposed(*args):
    """Heads are stored with their two widths exchanged."""
    out, pools = gdn.step(*args), args[-2]
    pools.ssm_SHDE.copy_(pools.ssm_SHDE.transpose(-1, -2).reshape(pools.ssm_SHDE.shape))
    return out


def linear_gate(*args):
    """The decay is given where its logarithm is wanted."""
    whole = gdn.streams_of

    def streams(*given):
        found = whole(*given)
        return evolve(found, g=found.g.exp())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gdn, "streams_of", streams)
        return gdn.step(*args)


def padding_writes(*args):
    """A padding row's step lands in the null slot."""
    out = gdn.step(*args)
    args[-2].ssm_SHDE[0] += 1
    return out


RECURRENCE = "test_a_step_is_the_recurrence_of_each_row"


@pytest.mark.parametrize(
    ("wrong", "check", "name"),
    [
        (stale, RECURRENCE, "packed"),
        (multiplied, RECURRENCE, "packed"),
        (leaky, RECURRENCE, "packed"),
        (forgetful, RECURRENCE, "shorter-than-the-window"),
        (transposed, RECURRENCE, "decode"),
        (linear_gate, RECURRENCE, "prompt"),
        (
            padding_writes,
            "test_slots_of_others_and_the_null_slot_are_left_alone",
            "decode-padded",
        ),
    ],
)
def test_a_wrong_gated_delta_fails_its_check(wrong, check, name):
    """GDN-13, GDN-15, GDN-16, GDN-17, GDN-20."""
    ops = evolve(GATED_DELTA.bind(None), step=wrong)
    dtype = (torch.float32,) if check == RECURRENCE else ()
    fails(GatedDeltaConformance, ops, check, case(gdn_cases, name), *dtype)


def attend_with(**changed):
    """Attention over a plan with ``kv_lens_B`` or ``before_B`` shifted."""

    def attend(q, k, v, plan, *, scale, causal):
        shifted = {name: getattr(plan, name) + by for name, by in changed.items()}
        return ATTENTION.attend(q, k, v, evolve(plan, **shifted), scale=scale, causal=causal)

    return attend


SOFTMAX = "test_attention_is_the_softmax_of_each_query_alone"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"kv_lens_B": 100, "before_B": 100}, "packed"),
        ({"kv_lens_B": -1}, "decode"),
        ({"kv_lens_B": 1}, "decode"),
        ({"before_B": 1}, "prompt"),
    ],
    ids=["no-mask", "one-short", "one-too-many", "sees-the-next"],
)
def test_a_wrong_mask_fails_its_check(changed, name):
    ops = evolve(ATTENTION, attend=attend_with(**changed))
    fails(PagedAttentionConformance, ops, SOFTMAX, case(paged_cases, name), torch.float32)


def test_a_mask_that_multiplies_fails_its_check():
    """Zero times NaN."""

    def attend(q, k, v, plan, *, scale, causal):
        used = (torch.arange(len(k)) > 0)[:, None, None, None]
        return ATTENTION.attend(q, k, v * used, plan, scale=scale, causal=causal) + v.sum() * 0

    ops = evolve(ATTENTION, attend=attend)
    fails(PagedAttentionConformance, ops, SOFTMAX, case(paged_cases, "packed"), torch.float32)


def test_padding_that_writes_a_live_page_fails_its_check():
    def write(k, v, k_pool, v_pool, write_T):
        ATTENTION.write(k, v, k_pool, v_pool, torch.where(write_T < 8, write_T + 8, write_T))

    ops = evolve(ATTENTION, write=write)
    check = "test_writing_changes_the_cells_of_this_step_only"
    fails(PagedAttentionConformance, ops, check, case(paged_cases, "packed-and-padded"))


def noise_by_row(logits, plan, **options):
    """Seeds depend on the row's place in the batch."""
    plan = evolve(plan, seed_B=plan.seed_B + torch.arange(len(plan.seed_B)))
    return SAMPLE.sample(logits, plan, **options)


def one_total(logits, plan, **options):
    """The log-probabilities of temperature 2."""
    return evolve(
        SAMPLE.sample(logits, plan, **options),
        logprob_B=SAMPLE.sample(logits / 2, plan, **options).logprob_B,
    )


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (noise_by_row, "test_a_row_alone_samples_as_among_others"),
        (noise_by_row, "test_each_row_samples_the_id_that_its_settings_and_key_say"),
        (one_total, "test_logprobs_are_those_of_the_logits_without_temperature"),
    ],
)
def test_a_wrong_sampler_fails_its_check(wrong, check):
    fails(SamplingConformance, evolve(SAMPLE, sample=wrong), check, case(sampling_cases, "plain"))


def test_counting_for_padding_fails_its_check():
    def count(rows, plan, ids):
        rows.count_RV[plan.penalty_row_B, ids] += 1

    fails(SamplingConformance, evolve(SAMPLE, count=count), "test_row_zero_stays_zero")
