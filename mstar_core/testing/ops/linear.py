"""Conformance of ``linear`` backends."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mstar_core.ops.cases import normal, seeded
from mstar_core.ops.functional import rms_norm
from mstar_core.ops.linear import Linear, contract
from mstar_core.testing.ops.base import OpConformance, assert_near

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
SIZES = [(0, 8, 12), (1, 8, 12), (5, 24, 7)]
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


class LinearConformance(OpConformance):
    """Subclass it with ``backend``."""

    def given(self, size: tuple[int, int, int], dtype: torch.dtype) -> dict[str, Tensor]:
        """Tensors of ``(rows, in, out)``, rounded to ``dtype``, on the CPU."""
        T, H, F = size
        g = seeded(size)
        shapes = {"x": (T, H), "norm": (H,), "weight": (F, H), "bias": (F,), "residual": (T, F)}
        made = {name: normal(g, *shape) for name, shape in shapes.items()}
        made["weight"] = made["weight"] * H**-0.5
        return {name: value.to(dtype) for name, value in made.items()}

    @every_dtype
    @every_size
    def test_products_are_those_of_fp32(
        self, size: tuple[int, int, int], dtype: torch.dtype
    ) -> None:
        ops: Linear = self.bound(dtype, {})
        cpu = self.given(size, dtype)
        x, norm, weight, bias, residual = (t.to(self.device) for t in cpu.values())
        wide = {name: t.float() for name, t in cpu.items()}
        product = wide["x"] @ wide["weight"].t()
        normed = rms_norm(wide["x"], wide["norm"], 1e-5) @ wide["weight"].t()
        near = contract.TOLERANCE[dtype]
        assert_near(ops.linear(x, weight), product, near)
        assert_near(ops.linear(x, weight, bias), product + wide["bias"], near)
        assert_near(ops.norm_linear(x, norm, weight, eps=1e-5), normed, near)
        got = ops.linear_residual(x, weight, residual, bias)
        assert got.dtype == dtype
        assert_near(got, wide["residual"] + product + wide["bias"], near)

    @every_dtype
    @every_size
    def test_a_gate_and_what_it_gates_are_those_of_fp32(
        self, size: tuple[int, int, int], dtype: torch.dtype
    ) -> None:
        ops: Linear = self.bound(dtype, {})
        T, H, F = size
        cpu = self.given((T, H, 2 * F), dtype)
        x, norm, weight = (cpu[name].to(self.device) for name in ("x", "norm", "weight"))
        wide = {name: t.float() for name, t in cpu.items()}
        both = rms_norm(wide["x"], wide["norm"], 1e-5) @ wide["weight"].t()
        gate, up = both.chunk(2, -1)
        got = ops.norm_gated(x, norm, weight, eps=1e-5)
        assert got.dtype == dtype
        assert_near(got, gate * gate.sigmoid() * up, contract.TOLERANCE[dtype])
