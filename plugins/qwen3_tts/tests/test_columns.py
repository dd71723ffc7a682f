"""The kernels of ``codec_columns`` beside torch: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mstar_qwen3_tts.columns import torch_backend
from mstar_qwen3_tts.columns.contract import TOLERANCE, Bend, Frames, Taps, Window
from mstar_qwen3_tts.packed import PackedRows

from mstar_core.ops.functional import rope_angles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # noqa: TID251
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # noqa: TID251
pytest.importorskip("triton")
from mstar_qwen3_tts.columns import triton_backend, triton_launches  # noqa: E402

pytestmark = [pytest.mark.gpu] if DEVICE == "cuda" else []
DTYPES = [torch.float16]
if DEVICE == "cuda":
    DTYPES.append(torch.bfloat16)
STEPS = ((3, 1, 2), (1, 4, 0))
"""Items of three rows in steps that follow each other; a row may have none."""


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def noise(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).to(DEVICE)


def rows_of(lens, number):
    """Rows in slots 2, 3, 1; the first step finds nothing."""
    lens_B = torch.tensor(lens)
    packed = PackedRows(
        starts_B=lens_B.cumsum(0) - lens_B,
        lens_B=lens_B,
        row_T=torch.arange(len(lens)).repeat_interleave(lens_B),
        slots_B=torch.tensor([2, 3, 1]),
        fresh_B=torch.full((3,), number == 0),
    )
    moved = {name: getattr(packed, name).to(DEVICE) for name in PackedRows.__annotations__}
    return PackedRows(**moved)


def bend(channels):
    return Bend(alpha_C=noise(channels, seed=8), beta_C=noise(channels, seed=9).abs())


def close(found, want):
    assert found.dtype != torch.float32
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.float(), want, atol=tolerance, rtol=tolerance)


CASES = {
    "256 at once": ((64, 256, 7), 9, False, True, True),
    "128 at once": ((96, 96, 7), 3, False, True, True),
    "64 at once": ((64, 192, 2), 1, False, True, False),
    "dilated": ((24, 24, 7), 3, False, True, True),
    "wide": ((96, 40, 7), 9, False, True, False),
    "one channel": ((32, 1, 7), 1, False, True, False),
    "one tap": ((48, 48, 1), 1, False, False, True),
    "by channel": ((40, 40, 7), 1, True, False, False),
}
"""Channels in, out and taps; dilation; by channel; a snake before; one behind, and a sum."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rate", [1, 4, 32])
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_is_torchs_step_by_step(monkeypatch, case, rate, dtype):
    """In fp32 over the same numbers. Of 32 columns an item, a step has more than a tile's."""
    monkeypatch.setattr(triton_launches, "PROCESSORS", 1)
    (inputs, outputs, taps), dilation, by_channel, before, behind = CASES[case]
    kept = (taps - 1) * dilation
    weight = noise(outputs, 1 if by_channel else inputs, taps, seed=1)
    weight /= (taps * (1 if by_channel else inputs)) ** 0.5
    shared = {"taps": taps, "dilation": dilation, "by_channel": by_channel}
    low = {
        "bias_N": noise(outputs, seed=2).to(dtype),
        "before": lowered(bend(inputs), dtype) if before else None,
        "behind": lowered(bend(outputs), dtype) if behind else None,
    }
    same = {
        "bias_N": low["bias_N"].float(),
        "before": lowered(low["before"], torch.float32),
        "behind": lowered(low["behind"], torch.float32),
    }
    memory = torch.full((4, kept, inputs), float("nan"), device=DEVICE) if kept else None
    own = None if memory is None else memory.to(dtype)
    weight = weight.to(dtype)
    plain = torch_backend.prepare(weight.float(), by_channel=by_channel)
    prepared = triton_backend.prepare(weight, by_channel=by_channel)
    for number, lens in enumerate(STEPS):
        rows = rows_of(lens, number)
        x_LC = noise(rate * sum(lens), inputs, seed=number).to(dtype)
        added = noise(rate * sum(lens), outputs, seed=7).to(dtype) if behind else None
        want = torch_backend.convolve(
            x_LC.float(),
            Taps(weight=plain, memory_SKC=memory, **shared, **same),
            rows,
            None if added is None else added.float(),
        )
        found = triton_launches.convolve(
            x_LC, Taps(weight=prepared, memory_SKC=own, **shared, **low), rows, added
        )
        close(found, want)
        if memory is not None:
            close(own[1:], memory[1:])


def lowered(given, dtype):
    if given is None:
        return None
    return Bend(alpha_C=given.alpha_C.to(dtype), beta_C=given.beta_C.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "width", "size"), [(4, 2, 16, 4), (2, 2, 32, 9)])
def test_a_window_of_attention_is_torchs_step_by_step(heads, kv_heads, width, size, dtype):
    kept = torch.full((4, size - 1, 2 * kv_heads * width), float("nan"), device=DEVICE)
    own, at_B = kept.to(dtype), torch.zeros(3, dtype=torch.int64)
    for number, lens in enumerate(STEPS):
        rows = rows_of(lens, number)
        inside = torch.cat([torch.arange(n) + at for n, at in zip(lens, at_B, strict=True)])
        index_T, at_B = inside.to(DEVICE), at_B + torch.tensor(lens)
        frames = Frames(rows=rows, index_T=index_T, rope=rope_angles(index_T, width, 1e4))
        qkv = noise(sum(lens), heads + 2 * kv_heads, width, seed=number)
        split = [heads, kv_heads, kv_heads]
        want = torch_backend.attend(
            *qkv.split(split, 1), Window(size=size, memory_SKC=kept), frames
        )
        found = triton_launches.attend(
            *qkv.to(dtype).split(split, 1), Window(size=size, memory_SKC=own), frames
        )
        close(found, want)
        close(own[1:], kept[1:])


@pytest.mark.long
def test_every_kernel_compiles_for_a_gpu_at_the_published_sizes(monkeypatch):
    """The interpreter would not tell."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    script = Path(__file__).with_name("compiling.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"join", "taps", "depth", "turn", "window"} <= set(done.stdout.split())
