"""What is measured of each operation: random inputs at published sizes, and what cannot be spared.

A decode step's bytes are those of its weights, states, keys and logits, each moved once; the
floor of a prompt is mostly its products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import asdict, evolve, field, fields, frozen
from torch import Tensor

from mstar_core.ops.cases import Packing
from mstar_core.ops.functional import rope_angles
from mstar_core.ops.gated_delta import GdnPools, GdnWeights
from mstar_core.ops.gated_delta import cases as gdn
from mstar_core.ops.paged_attention import AttentionStep
from mstar_core.ops.paged_attention import cases as paged
from mstar_core.ops.sampling import cases as sampling
from mstar_core.step import Bucket

Call = Callable[[Any], object]
"""Runs the operation once with a backend's record."""


@frozen(kw_only=True)
class Sizes:
    """Published sizes of a hybrid decoder of 0.8e9 parameters, and of a speech encoder."""

    heads: tuple[int, int, int] = (8, 2, 256)
    """Query heads, key heads, width."""
    encoder: tuple[int, int, int] = (20, 20, 64)
    delta: tuple[int, int, int] = (16, 16, 128)
    """Key heads, value heads, width of both."""
    projections: tuple[tuple[int, int], ...] = ((8224, 1024), (5120, 1024))
    """``(out, in)`` behind a norm."""
    gated: tuple[int, int] = (7168, 1024)
    """The same, of which one half gates the other."""
    outputs: tuple[tuple[int, int], ...] = ((1024, 2048), (1024, 3584))
    """``(out, in)`` before a residual."""
    vocab: tuple[int, int] = (248320, 1024)
    context: int = 640
    """Tokens of a row in a decode step."""
    prompt: int = 512
    clip: int = 1500
    """Tokens of an encoder's row."""
    page_tokens: int = 64
    prompts: tuple[int, ...] = (1, 8)
    """Rows of a prefill step."""


@frozen(kw_only=True)
class Subject:
    """One operation at one shape."""

    operation: str
    shape: str
    rows: int
    span: int = 1
    """Tokens of each row."""
    geometry: Mapping[str, Any]
    num_bytes: int
    num_flops: int = 0
    make: Callable[[torch.device, torch.dtype], Call] = field(repr=False)
    """A call with inputs of its own, at random."""

    @property
    def bucket(self) -> Bucket:
        """What a graph of it holds, as backends are asked whether they can be captured."""
        kind = "decode" if self.span == 1 else "prefill"
        tokens = self.rows * self.span
        return Bucket(walk=self.operation, rows=self.rows, tokens=tokens, kind=kind)


def subjects(sizes: Sizes, rows: Sequence[int], item: int) -> Iterator[Subject]:
    """All of them; ``item`` is the width of the dtype in bytes."""
    for B in rows:
        yield attention(sizes, B, 1, item)
    for B in sizes.prompts:
        yield attention(sizes, B, sizes.prompt, item)
    for B in sizes.prompts:
        yield encoder(sizes, B, item)
    for B in rows:
        yield delta(sizes, B, 1, item)
    for B in sizes.prompts:
        yield delta(sizes, B, sizes.prompt, item)
    for B in rows:
        for shape in (*sizes.projections, sizes.vocab):
            yield product(shape, B, item, "norm_linear")
        yield product(sizes.gated, B, item, "norm_gated")
        for shape in sizes.outputs:
            yield product(shape, B, item, "linear_residual")
    for B in rows:
        yield choice(sizes, B, item, sampled=0)
        yield choice(sizes, B, item, sampled=1)


def attention(sizes: Sizes, B: int, span: int, item: int) -> Subject:
    """A decode step over ``context`` tokens, or a prompt of ``span``: norms, rope, write, gate."""
    (N, G, D), p = sizes.heads, sizes.page_tokens
    length = sizes.context if span == 1 else span
    width = -(-length // p)

    def make(device: torch.device, dtype: torch.dtype) -> Call:
        T, at = B * span, Packing.of([span] * B, decode=int(span == 1))
        pages_BW = 1 + torch.randperm(B * width).view(B, width)
        t = length - span + at.col_T.long()
        cells_T = pages_BW[at.row_T.long(), t // p] * p + t % p
        lens_B = torch.full((B,), length, dtype=torch.int32)
        plan = paged.CasePlan(
            pages_BW=pages_BW.int(),
            kv_lens_B=lens_B,
            before_B=lens_B - span,
            write_T=cells_T,
            **asdict(at),
        )
        plan = on(plan, device)
        k_PpGD, v_PpGD = rand(device, dtype, 2, B * width + 1, p, G, D)
        packed = rand(device, dtype, T, 2 * N * D + 2 * G * D)
        q_TND, gate_TND = packed[:, : 2 * N * D].view(T, N, 2, D).unbind(2)
        k_TGD, v_TGD = packed[:, 2 * N * D :].view(T, 2, G, D).unbind(1)
        ones = torch.ones(D, device=device)
        step = AttentionStep(
            scale=D**-0.5,
            gate_TND=gate_TND,
            q_norm_D=ones,
            k_norm_D=ones,
            rope=rope_angles(t.to(device), D // 4, 1e7),
        )
        return lambda ops: ops.step(q_TND, k_TGD, v_TGD, (k_PpGD, v_PpGD), plan, step)

    keys = 2 * B * length * G * D * item
    return Subject(
        operation="paged_attention",
        shape=f"{B} x {'1 token over ' + str(length) if span == 1 else span}",
        rows=B,
        span=span,
        geometry={"num_heads": N, "num_kv_heads": G, "head_dim": D, "page_tokens": p},
        num_bytes=keys + B * span * (3 * N + 2 * G) * D * item,
        num_flops=4 * B * N * D * (length if span == 1 else span * (span + 1) // 2),
        make=make,
    )


def encoder(sizes: Sizes, B: int, item: int) -> Subject:
    """Attention of whole clips over themselves."""
    (N, G, D), S = sizes.encoder, sizes.clip

    def make(device: torch.device, dtype: torch.dtype) -> Call:
        plan = on(Packing.of([S] * B), device)
        q, k, v = (rand(device, dtype, B * S, n, D) for n in (N, G, G))
        return lambda ops: ops.attend(q, k, v, plan, scale=D**-0.5, causal=False)

    return Subject(
        operation="ragged_attention",
        shape=f"{B} x {S}",
        rows=B,
        span=S,
        geometry={"num_heads": N, "num_kv_heads": G, "head_dim": D},
        num_bytes=2 * B * S * (N + G) * D * item,
        num_flops=4 * B * N * D * S * S,
        make=make,
    )


def delta(sizes: Sizes, B: int, span: int, item: int) -> Subject:
    """A token of every row, or prompts of ``span`` tokens, through the delta rule."""
    (G, H, D), taps = sizes.delta, 4
    C, T = (2 * G + H) * D, B * span

    def make(device: torch.device, dtype: torch.dtype) -> Call:
        plan = gdn.CasePlan(
            slots_B=1 + torch.randperm(B),
            fresh_B=torch.zeros(B, dtype=torch.bool),
            **asdict(Packing.of([span] * B, decode=int(span == 1))),
        )
        plan = on(plan, device)
        packed = rand(device, dtype, T, C + H * D + 2 * H)
        inputs = torch.split(packed, [C, H * D, H, H], -1)
        pools = GdnPools(
            conv_SCK=rand(device, dtype, B + 1, C, taps - 1),
            ssm_SHDE=rand(device, torch.float32, B + 1, H, D, D),
        )
        weights = GdnWeights(
            conv_CK=rand(device, dtype, C, taps),
            A_log_H=rand(device, torch.float32, H),
            dt_bias_H=rand(device, torch.float32, H) - 4,
            norm_D=torch.ones(D, device=device),
        )
        return lambda ops: ops.step(*inputs, weights, pools, plan)

    state = 2 * B * (4 * H * D * D + C * (taps - 1) * item)
    return Subject(
        operation="gated_delta",
        shape=f"{B} x {span}",
        rows=B,
        span=span,
        geometry={"num_k_heads": G, "num_v_heads": H, "k_dim": D, "v_dim": D}
        | {"conv_taps": taps, "activation": "silu"},
        num_bytes=state + T * (C + 2 * H * D) * item,
        num_flops=6 * T * H * D * D,
        make=make,
    )


def product(shape: tuple[int, int], B: int, item: int, kind: str) -> Subject:
    """A product with a weight ``(out, in)``, behind a norm or before a residual."""
    F, K = shape
    left = F // 2 if kind == "norm_gated" else F

    def make(device: torch.device, dtype: torch.dtype) -> Call:
        x, weight = rand(device, dtype, B, K), rand(device, dtype, F, K)
        norm, residual = torch.ones(K, device=device), rand(device, dtype, B, F)
        if kind != "linear_residual":
            return lambda ops: getattr(ops, kind)(x, norm, weight, eps=1e-6)
        return lambda ops: ops.linear_residual(x, weight, residual)

    return Subject(
        operation="linear",
        shape=f"{kind} {B} x {K} -> {F}",
        rows=B,
        geometry={},
        num_bytes=(F * K + B * (left + K)) * item,
        num_flops=2 * B * F * K,
        make=make,
    )


def choice(sizes: Sizes, B: int, item: int, sampled: int) -> Subject:
    """The likeliest id, or one drawn behind top-k, top-p and min-p."""
    V = sizes.vocab[0]

    def make(device: torch.device, dtype: torch.dtype) -> Call:
        settings = sampling.RowSettings(top_k=50, top_p=0.9, min_p=0.01)
        plan = on(sampling.plan_of([settings] * B, sampled), device)
        logits_BV = rand(device, dtype, B, V)
        return lambda ops: ops.sample(logits_BV, plan).ids_B

    return Subject(
        operation="sampling",
        shape=f"{'drawn' if sampled else 'greedy'} {B} x {V}",
        rows=B,
        geometry={"vocab_size": V},
        num_bytes=B * V * item,
        make=make,
    )


def rand(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """Of a normal distribution: zeros would take less power than what is served."""
    return torch.randn(shape, device=device, dtype=dtype)


def on(record: Any, device: torch.device) -> Any:
    """``record`` with its tensors on ``device``."""
    values = {a.name: getattr(record, a.name) for a in fields(type(record))}
    moved = {n: v.to(device) if isinstance(v, Tensor) else v for n, v in values.items()}
    return evolve(record, **moved)
