"""Norms, rotary positions and gates."""

import pytest
import torch

from mstar_core.ops.functional import (
    gated_rms_norm,
    l2_norm,
    mrope_angles,
    rms_norm,
    rope_angles,
    rope_half_split,
    sigmoid_gate,
)


def test_the_rms_norm_multiplies_by_the_effective_weight_before_it_casts():
    x = torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16)
    weight = torch.tensor([1.0, 1.001])
    want = torch.tensor([[3.0, 4.0 * 1.001]]) / (12.5 + 1e-6) ** 0.5
    assert rms_norm(x, weight, 1e-6).dtype == torch.bfloat16
    assert torch.equal(rms_norm(x, weight, 1e-6), want.bfloat16())


def test_the_l2_norm_leaves_a_zero_vector_zero():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    torch.testing.assert_close(l2_norm(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


def test_the_gated_norm_takes_values_beyond_fp16_and_returns_the_gates_dtype():
    x, gate = torch.tensor([[1e5, -3e5]]), torch.tensor([[2.0, -1.0]], dtype=torch.float16)
    got = gated_rms_norm(x, gate, torch.ones(2), 1e-6)
    assert got.dtype == torch.float16
    want = x / x.square().mean().sqrt() * gate.float() * gate.float().sigmoid()
    torch.testing.assert_close(got.float(), want, atol=1e-3, rtol=1e-3)


def test_the_sigmoid_gate_of_zero_halves():
    x = torch.tensor([2.0, -6.0], dtype=torch.bfloat16)
    assert torch.equal(sigmoid_gate(x, torch.zeros(2)), x / 2)


def test_rope_turns_pairs_half_apart_and_leaves_the_rest():
    x = torch.tensor([[[1.0, 0.0, 0.0, 1.0, 7.0]]])
    cos, sin = rope_angles(torch.tensor([1]), 4, 100.0)
    got = rope_half_split(x, cos, sin)[0, 0]
    a, b = torch.tensor(1.0), torch.tensor(0.1)
    torch.testing.assert_close(got, torch.stack([a.cos(), -b.sin(), a.sin(), b.cos(), 7 + 0 * a]))


def test_rope_scores_depend_on_distance_alone():
    q, k = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(0))

    def score(at_q, at_k):
        turned = [
            rope_half_split(x, *rope_angles(torch.tensor([at]), 16, 1e4))
            for x, at in ((q, at_q), (k, at_k))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(9, 4), score(105, 100), atol=1e-4, rtol=1e-4)


def test_equal_position_rows_are_plain_rope():
    t = torch.arange(50)
    for interleaved in (True, False):
        got = mrope_angles(t.expand(3, -1), 64, 1e7, (11, 11, 10), interleaved)
        assert all(torch.equal(a, b) for a, b in zip(got, rope_angles(t, 64, 1e7), strict=True))


@pytest.mark.parametrize("interleaved", [True, False])
def test_each_frequency_reads_the_position_row_of_its_section(interleaved):
    positions = torch.tensor([[0], [1], [2]])
    cos, _ = mrope_angles(positions, 64, 1e7, (11, 11, 10), interleaved)
    expected = [rope_angles(positions[a], 64, 1e7)[0][0] for a in range(3)]
    if interleaved:
        axis = [1 if i in range(1, 32, 3) else 2 if i in range(2, 30, 3) else 0 for i in range(32)]
    else:
        axis = [0] * 11 + [1] * 11 + [2] * 10
    want = torch.stack([expected[axis[i % 32]][i] for i in range(64)])
    assert torch.equal(cos[0], want)
    assert [axis.count(a) for a in range(3)] == [11, 11, 10]
