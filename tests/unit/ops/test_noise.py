"""The keyed noise: reproducible to the bit, uniform, independent. Seeds are fixed."""

import pytest
import torch

from mstar_core.ops.sampling import reference
from mstar_core.ops.sampling.cases import RowSettings, keyed_bits, plan_of
from mstar_core.ops.sampling.noise import gumbel, random_bits, row_keys

SHARES = torch.tensor([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
CRITICAL = {7: 24.32, 15: 37.70, 49: 85.35, 255: 330.5}
"""Degrees of freedom → the chi-square that one fair experiment in a thousand passes."""


def words(seeds, positions, ids, draw=0):
    """Unsigned 32-bit words [rows, ids]."""
    keys = row_keys(torch.as_tensor(seeds), torch.as_tensor(positions), draw)
    return random_bits(*keys, torch.as_tensor(ids, dtype=torch.int32)[None]).long() & 0xFFFFFFFF


def chi_square(counts, shares):
    want = counts.sum() * shares
    return float(((counts - want) ** 2 / want).sum())


def test_the_bits_are_those_of_plain_integers():
    seeds = [0, 1, -1, 2**63 - 1, -(2**63), 123456789012345]
    positions = [0, 1, 2**31, 262143, 7, 2**40]
    ids = [0, 1, 2, 51865, 248319, 2**31 - 1]
    for draw in (0, 1, 17):
        got = words(seeds, positions, ids, draw).tolist()
        want = [
            [keyed_bits(s, p, draw, i) for i in ids] for s, p in zip(seeds, positions, strict=True)
        ]
        assert got == want


@pytest.mark.parametrize("vary", ["seed", "position"])
@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_every_byte_is_uniform_over_ids_seeds_and_positions(vary, shift):
    n = torch.arange(256)
    fixed = torch.full_like(n, 5)
    got = words(*((n, fixed) if vary == "seed" else (fixed, n)), torch.arange(256))
    counts = torch.bincount(((got >> shift) & 255).flatten(), minlength=256).float()
    assert chi_square(counts, torch.full((256,), 1 / 256)) < CRITICAL[255]


@pytest.mark.parametrize("vary", ["seed", "position", "draw", "id"])
def test_one_step_of_any_key_part_flips_half_of_the_bits(vary):
    n = torch.arange(200)
    a = words(n, n * 3, n)
    changed = {
        "seed": lambda: words(n + 1, n * 3, n),
        "position": lambda: words(n, n * 3 + 1, n),
        "draw": lambda: words(n, n * 3, n, draw=1),
        "id": lambda: words(n, n * 3, n + 1),
    }[vary]()
    flips = torch.stack([((a ^ changed) >> bit & 1).float().mean() for bit in range(32)])
    assert (flips - 0.5).abs().max() < 0.012  # 40,000 words: 5 standard errors


@pytest.mark.parametrize(
    ("row", "shares"),
    [
        (RowSettings(), SHARES),
        (RowSettings(temperature=2.0), SHARES.sqrt() / SHARES.sqrt().sum()),
        (RowSettings(top_k=5), SHARES[:5] / SHARES[:5].sum()),
        (RowSettings(top_p=0.72), SHARES[:4] / SHARES[:4].sum()),
        (RowSettings(min_p=0.25), SHARES[:6] / SHARES[:6].sum()),
    ],
    ids=["plain", "hot", "top-k", "top-p", "min-p"],
)
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_ids_are_drawn_by_their_probability(row, shares, vary):
    """SM-11: over 8,000 seeds of one position, and 8,000 positions of one seed."""
    n = 8000
    plan = plan_of([RowSettings(temperature=row.temperature)])
    many, fixed = torch.arange(n), torch.full((n,), 41)
    plan = plan_of([row])
    wide = {name: getattr(plan, name).expand(n) for name in PLAN_COLUMNS}
    keys = (many, fixed) if vary == "seed" else (fixed, many)
    plan = type(plan)(**wide, seed_B=keys[0], position_B=keys[1], sampled=1, top_logprobs=0)
    ids = reference.sample(SHARES.log().expand(n, -1), plan).ids_B
    counts = torch.bincount(ids, minlength=8).float()
    assert counts[len(shares) :].sum() == 0
    assert chi_square(counts[: len(shares)], shares) < CRITICAL[7]


PLAN_COLUMNS = ("temperature_B", "top_k_B", "top_p_B", "min_p_B")


@pytest.mark.parametrize("apart", ["seed", "position", "draw"])
def test_neighbouring_keys_draw_independently(apart):
    """Pairs of draws fill their table as a product of its margins."""
    n = 8000
    seeds, positions = torch.arange(n), torch.full((n,), 3)
    other = {
        "seed": (seeds + 1, positions, 0),
        "position": (seeds, positions + 1, 0),
        "draw": (seeds, positions, 1),
    }[apart]
    ids = torch.arange(8, dtype=torch.int32)[None]
    first = (SHARES.log() + gumbel(seeds, positions, 0, ids)).argmax(-1)
    second = (SHARES.log() + gumbel(*other, ids)).argmax(-1)
    counts = torch.bincount(first * 8 + second, minlength=64).float()
    shares = torch.outer(SHARES, SHARES).flatten()
    large = shares * n > 20
    counts = torch.cat([counts[large], counts[~large].sum()[None]])
    shares = torch.cat([shares[large], shares[~large].sum()[None]])
    assert chi_square(counts, shares) < CRITICAL[49]


def test_the_noise_is_a_gumbel_distribution_over_a_real_vocabulary():
    g = gumbel(torch.arange(4), torch.arange(4), 0, torch.arange(248_320, dtype=torch.int32)[None])
    assert g.isfinite().all()
    torch.testing.assert_close(g.mean(-1), torch.full((4,), 0.5772), atol=0.01, rtol=0)
    torch.testing.assert_close(g.var(-1), torch.full((4,), 1.6449), atol=0.03, rtol=0)
    assert g.unique().numel() > 0.95 * g.numel()


def test_a_large_vocabulary_of_equals_is_drawn_evenly():
    """Ends of the fp32 range do not favour any id: 16 slices of 40,000 equal ids."""
    n, V = 1500, 40_000
    ids = torch.arange(V, dtype=torch.int32)[None]
    drawn = torch.cat(
        [
            gumbel(torch.arange(first, first + 100), torch.zeros(100).long(), 0, ids).argmax(-1)
            for first in range(0, n, 100)
        ]
    )
    counts = torch.bincount(drawn * 16 // V, minlength=16).float()
    assert chi_square(counts, torch.full((16,), 1 / 16)) < CRITICAL[15]
