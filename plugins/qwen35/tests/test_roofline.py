"""The floors of steps at published sizes, against sums by hand."""

from __future__ import annotations

import json

import pytest

from mstar_core.bench.roofline import decode_costs, prompt_costs
from mstar_core.engine.opening import resolve_config

SIZES = {
    "hidden_size": 1024, "num_hidden_layers": 8, "intermediate_size": 3584, "vocab_size": 1000,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "max_position_embeddings": 4096, "dtype": "bfloat16",
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [11, 11, 10], "mrope_interleaved": True},
    "hidden_act": "silu", "attn_output_gate": True, "mamba_ssm_dtype": "float32",
    "model_type": "qwen3_5_text",
}  # fmt: skip
LINEAR = 1024 * (6144 + 2048 + 32) + 2048 * 1024 + 6144 * 4
FULL = 1024 * (2 * 2048 + 2 * 512) + 2048 * 1024
MLP = 3 * 1024 * 3584
BODY, HEAD = 6 * LINEAR + 2 * FULL + 8 * MLP, 1000 * 1024
"""Weights of matrices and windows; norms and decays are thousands beside these millions."""


@pytest.fixture
def resolved(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    file = tmp_path / "sizes.yaml"
    file.write_text(f"model: {{name: qwen35, path: {tmp_path}, load: random, dtype: bf16}}\n")
    return resolve_config(file)


def test_a_decode_step_moves_its_weights_once_and_its_rows_states_and_keys(resolved):
    one, many = decode_costs(resolved, [1, 64], 640)
    for step in (one, many):
        assert step.weight_bytes == pytest.approx(2 * (BODY + HEAD), rel=1e-3)
    state, window, token = 6 * 16 * 128 * 128 * 4, 6 * 6144 * 3 * 2, 2 * 2 * 2 * 256 * 2
    assert many.row.num_bytes == 2 * (state + window) + 641 * token
    assert many.num_flops == pytest.approx(
        64 * (2 * (BODY - 6 * 6144 * 4 + HEAD) + 2 * 4 * 8 * 256 * 641 + 6 * 16 * 7 * 128 * 128),
        rel=1e-3,
    )


def test_a_prompt_step_multiplies_for_every_token_and_asks_the_head_for_the_last(resolved):
    (step,) = prompt_costs(resolved, [4], 512)
    triangle = 512 * 513 // 2
    each = 512 * 2 * (BODY - 6 * 6144 * 4) + 2 * HEAD + 2 * 4 * 8 * 256 * triangle
    assert step.num_flops == pytest.approx(4 * (each + 512 * 6 * 16 * 7 * 128 * 128), rel=2e-3)
    assert step.row.num_bytes < 512 * 2 * 2 * 2 * 256 * 2 + 6 * (16 * 128 * 128 * 4 + 6144 * 6) + 1
