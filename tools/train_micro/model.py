"""The Qwen3.5 text model for training: whole rows, no caches, weights by their published names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from attrs import frozen
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from tools.train_micro.delta import CHUNK, UnitLowerInverse, chunk_terms, pass_state
from tools.train_micro.tokenizer import CONTEXT, VOCAB

HIDDEN, MLP, LAYERS, EPS = 256, 576, 8, 1e-6
HEADS, KV_HEADS, HEAD_DIM, ROTARY, THETA = 2, 1, 256, 64, 1e7
DELTA_HEADS, STATE_DIM, TAPS = 2, 128, 4
DELTA = DELTA_HEADS * STATE_DIM
KINDS = (["linear_attention"] * 3 + ["full_attention"]) * (LAYERS // 4)
ROOT = "model."


def config(end_of_text: int) -> dict[str, Any]:
    """``config.json`` of a text-only export, whose tokenizer is the one beside it.

    Under the root of the published models transformers would read the tokenizer's vocabulary, and
    cut words by a rule of its own.
    """
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "layer_types": KINDS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "linear_num_key_heads": DELTA_HEADS,
        "linear_num_value_heads": DELTA_HEADS,
        "linear_key_head_dim": STATE_DIM,
        "linear_value_head_dim": STATE_DIM,
        "linear_conv_kernel_dim": TAPS,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "rms_norm_eps": EPS,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": end_of_text,
        "tie_word_embeddings": True,
        "mamba_ssm_dtype": "float32",
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": int(THETA),
            "partial_rotary_factor": ROTARY / HEAD_DIM,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
    }


class Norm(nn.Module):
    """RMS norm whose weight is an offset from one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` normed over its last axis, in its dtype."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
        return (scaled * (1 + self.weight)).to(x.dtype)


class FullAttention(nn.Module):
    """Gated softmax attention; queries and keys are normed per head and turned."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = _linear(2 * HEADS * HEAD_DIM, HIDDEN)
        self.k_proj = _linear(KV_HEADS * HEAD_DIM, HIDDEN)
        self.v_proj = _linear(KV_HEADS * HEAD_DIM, HIDDEN)
        self.o_proj = _linear(HIDDEN, HEADS * HEAD_DIM)
        self.q_norm, self.k_norm = Norm(HEAD_DIM), Norm(HEAD_DIM)

    def before(self, x_TH: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Queries, keys and values ``[T, N, D]``, and the queries' gate."""
        T = len(x_TH)
        q, gate = self.q_proj(x_TH).view(T, HEADS, 2, HEAD_DIM).unbind(2)
        k = self.k_proj(x_TH).view(T, KV_HEADS, HEAD_DIM)
        v = self.v_proj(x_TH).view(T, KV_HEADS, HEAD_DIM)
        q, k = turn(self.q_norm(q), *rope), turn(self.k_norm(k), *rope)
        k, v = (y.expand(T, HEADS, HEAD_DIM) for y in (k, v))
        return q, k, v, gate

    def after(self, o_TND: Tensor, gate_TND: Tensor) -> Tensor:
        """The gate and the output's product."""
        return self.o_proj((o_TND * gate_TND.sigmoid()).flatten(1))


def attend(q: Tensor, k: Tensor, v: Tensor, num_rows: int) -> Tensor:
    """Causal attention inside each of ``num_rows`` rows, ``[T, N, D]``."""
    heads = (y.unflatten(0, (num_rows, -1)).transpose(1, 2) for y in (q, k, v))
    o = F.scaled_dot_product_attention(*heads, is_causal=True)
    return o.transpose(1, 2).flatten(0, 1)


class LinearAttention(nn.Module):
    """The gated delta net."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_qkv = _linear(3 * DELTA, HIDDEN)
        self.in_proj_z = _linear(DELTA, HIDDEN)
        self.in_proj_b = _linear(DELTA_HEADS, HIDDEN)
        self.in_proj_a = _linear(DELTA_HEADS, HIDDEN)
        self.conv1d = nn.Conv1d(3 * DELTA, 3 * DELTA, TAPS, groups=3 * DELTA, bias=False)
        self.A_log = nn.Parameter(torch.empty(DELTA_HEADS).uniform_(1, 16).log())
        step = torch.exp(torch.empty(DELTA_HEADS).uniform_(math.log(1e-3), math.log(1e-1)))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(STATE_DIM))
        self.out_proj = _linear(HIDDEN, DELTA)

    def before(self, x_TH: Tensor, position_T: Tensor) -> tuple[Tensor, ...]:
        """The terms of the chunks, and the output's gate."""
        T = len(x_TH)
        inputs = (self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a)
        rows = F.linear(x_TH, torch.cat([each.weight for each in inputs]))
        mixed, z, b, a = rows.split([3 * DELTA, DELTA, DELTA_HEADS, DELTA_HEADS], -1)
        q, k, v = self.convolved(mixed, position_T).view(T, 3, DELTA_HEADS, STATE_DIM).unbind(1)
        g = -self.A_log.exp() * F.softplus(a.float() + self.dt_bias)
        beta = b.float().sigmoid()
        return *chunk_terms(_unit(q) * STATE_DIM**-0.5, _unit(k), v, g, beta), z

    def convolved(self, x_TC: Tensor, position_T: Tensor) -> Tensor:
        """The causal convolution of each row, fp32, behind its activation."""
        taps_KC = self.conv1d.weight[:, 0].T
        total = x_TC.float() * taps_KC[-1]
        for back in range(1, TAPS):
            earlier = F.pad(x_TC, (0, 0, back, 0))[: len(x_TC)]
            there = (position_T >= back)[:, None]
            total = total + torch.where(there, earlier.float() * taps_KC[-1 - back], 0)
        return F.silu(total)

    def after(self, o_THD: Tensor, z_TV: Tensor) -> Tensor:
        """The gated norm and the output's product."""
        o = o_THD * torch.rsqrt(o_THD.square().mean(-1, keepdim=True) + EPS) * self.norm.weight
        gated = o.flatten(1) * F.silu(z_TV.float())
        return self.out_proj(gated.to(z_TV.dtype))


@frozen(eq=False)
class Rows:
    """How packed tokens are rows of one length."""

    num: int
    position_T: Tensor
    rope: tuple[Tensor, Tensor]


class Layer(nn.Module):
    """A mixer and an MLP, each with its norm and added to the stream ``[T, H]``."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.is_full = kind == "full_attention"
        if self.is_full:
            self.self_attn = FullAttention()
        else:
            self.linear_attn = LinearAttention()
        self.mlp = nn.Module()
        self.mlp.gate_proj = _linear(MLP, HIDDEN)
        self.mlp.up_proj = _linear(MLP, HIDDEN)
        self.mlp.down_proj = _linear(HIDDEN, MLP)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        """The stream behind the layer."""
        if self.is_full:
            q, k, v, gate = self.full_before(x, rows.rope)
            return self.full_after(x, attend(q, k, v, rows.num), gate)
        system, sides, *terms, z = self.linear_before(x, rows.position_T)
        with torch.autocast(x.device.type, enabled=False):
            solved = UnitLowerInverse.apply(system) @ sides
            o = pass_state([solved, *terms], rows.num)
        return self.linear_after(x, o, z)

    def full_before(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """A layer of full attention as far as the attention."""
        return self.self_attn.before(self.input_layernorm(x), rope)

    def full_after(self, x: Tensor, o: Tensor, gate: Tensor) -> Tensor:
        """A layer of full attention behind the attention."""
        return self.feed(x + self.self_attn.after(o, gate))

    def linear_before(self, x: Tensor, position_T: Tensor) -> tuple[Tensor, ...]:
        """A linear layer as far as its chunks' terms."""
        return self.linear_attn.before(self.input_layernorm(x), position_T)

    def linear_after(self, x: Tensor, o: Tensor, z: Tensor) -> Tensor:
        """A linear layer from its states' outputs on."""
        return self.feed(x + self.linear_attn.after(o, z))

    def feed(self, x: Tensor) -> Tensor:
        """The MLP."""
        n = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(n)) * self.mlp.up_proj(n))


PARTS = ("full_before", "full_after", "linear_before", "linear_after")


class MicroModel(nn.Module):
    """Token ids ``[B, L]`` to logits ``[B, L, V]``."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(kind) for kind in KINDS)
        self.norm = Norm(HIDDEN)

    def forward(self, ids_BL: Tensor) -> Tensor:
        """Logits; rows are padded behind to whole chunks inside."""
        B, L = ids_BL.shape
        x_TH = self.stream(F.pad(ids_BL, (0, -L % CHUNK)))
        return self.head(x_TH).view(B, -1, VOCAB)[:, :L]

    def stream(self, ids_BL: Tensor) -> Tensor:
        """The residual stream behind the last layer, ``[T, H]``; L is whole chunks."""
        B, L = ids_BL.shape
        x = self.embedded(ids_BL.flatten())
        position_T = torch.arange(L, device=ids_BL.device).repeat(B)
        rows = Rows(B, position_T, rope_tables(position_T))
        for layer in self.layers:
            x = layer(x, rows)
        return x

    def embedded(self, ids_T: Tensor) -> Tensor:
        """The embeddings as a product with ones and zeros, whose gradient is a product too."""
        weight = self.embed_tokens.weight
        is_it_TV = ids_T[:, None] == torch.arange(VOCAB, device=ids_T.device)
        return is_it_TV.to(weight.dtype) @ weight

    def head(self, x_TH: Tensor) -> Tensor:
        """The tied head."""
        return F.linear(self.norm(x_TH), self.embed_tokens.weight)

    def loss(self, x_TH: Tensor, targets_T: Tensor) -> Tensor:
        """Mean cross entropy; a target below zero doesn't count."""
        return F.cross_entropy(self.head(x_TH).float(), targets_T, ignore_index=-1)

    def compile_parts(self) -> None:
        """Compile what lies between the products of the chunks.

        Layers of a kind share the code, and so do batches of as many tokens.
        """
        torch._dynamo.config.recompile_limit = 64
        self.loss = torch.compile(self.loss, dynamic=False)
        for layer in self.layers:
            for name in PARTS:
                setattr(layer, name, torch.compile(getattr(layer, name), dynamic=False))


def half(device: torch.device) -> torch.autocast:
    """Matrix products in bf16 where they are fast."""
    on = device.type == "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=on, cache_enabled=False)


def rope_tables(position_T: Tensor) -> tuple[Tensor, Tensor]:
    """``(cos, sin)``, ``[T, 1, rotary]``; of text all three axes have the same position."""
    step = torch.arange(0, ROTARY, 2, device=position_T.device, dtype=torch.float32)
    angles = position_T[:, None] * THETA ** (-step / ROTARY)
    angles = torch.cat([angles, angles], -1)[:, None]
    return angles.cos(), angles.sin()


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` ``[T, N, D]`` with its first features turned, half-split."""
    head, rest = x.split([ROTARY, x.shape[-1] - ROTARY], -1)
    low, high = head.chunk(2, -1)
    turned = head * cos + torch.cat([-high, low], -1) * sin
    return torch.cat([turned.to(x.dtype), rest], -1)


def _linear(rows: int, columns: int) -> nn.Linear:
    made = nn.Linear(columns, rows, bias=False)
    nn.init.normal_(made.weight, std=0.5 * columns**-0.5)
    return made


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)


def stored(model: MicroModel) -> dict[str, Tensor]:
    """The weights by their published names, in their published dtypes."""
    return {
        ROOT + name: weight.detach().cpu().float()
        if name.endswith(("A_log", "linear_attn.norm.weight"))
        else weight.detach().cpu().bfloat16()
        for name, weight in model.state_dict().items()
    }


def round_weights(model: MicroModel) -> None:
    """Make the weights what a stored checkpoint would give."""
    rounded = {name.removeprefix(ROOT): weight.float() for name, weight in stored(model).items()}
    model.load_state_dict(rounded)


def save_model(model: MicroModel, folder: Path, ends: tuple[int, int]) -> None:
    """Write weights and configurations; ``ends`` are ``<|im_end|>`` and ``<|endoftext|>``."""
    save_file(stored(model), folder / "model.safetensors", {"format": "pt"})
    for name, content in (
        ("config.json", config(ends[1])),
        ("generation_config.json", {"eos_token_id": list(ends)}),
    ):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
