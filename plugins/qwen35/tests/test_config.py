"""config.json: what is read from it, and what is refused."""

from __future__ import annotations

import json

import attrs
import pytest
from mstar_qwen35.config import FULL, LINEAR, read_config

from mstar_core.errors import CheckpointError


def test_the_published_root_form_is_read(folder):
    config = read_config(folder())
    assert config.layer_types == (LINEAR, LINEAR, LINEAR, FULL) * 2
    assert (config.num_full, config.num_linear) == (2, 6)
    assert (config.key_width, config.value_width, config.conv_channels) == (32, 64, 128)
    assert (config.rope.rotary_dim, config.rope.sections) == (8, (2, 1, 1))
    assert config.eos_ids == {1000}
    assert config.dtype == "bfloat16"


def test_a_text_only_export_reads_the_same(folder):
    published = read_config(folder())
    assert read_config(folder(text_only=True)) == published


def test_layer_types_follow_the_interval_where_they_are_not_listed(folder):
    changes = {"text_config.layer_types": None, "text_config.full_attention_interval": 4}
    assert read_config(folder(changes)).layer_types == (LINEAR, LINEAR, LINEAR, FULL) * 2


@pytest.mark.parametrize("spelling", ["rope_scaling", "flat"])
def test_older_spellings_of_the_rope_settings_read_the_same(folder, spelling):
    """QW-06"""
    want = read_config(folder()).rope
    flat = {"text_config.rope_theta": 10000000, "text_config.partial_rotary_factor": 0.25}
    multi = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    if spelling == "rope_scaling":
        other = {"text_config.rope_scaling": {"rope_type": "default", **multi}}
    else:
        other = {f"text_config.{key}": value for key, value in multi.items()}
    assert read_config(folder({"text_config.rope_parameters": None, **flat, **other})).rope == want


def test_an_end_id_of_the_generation_config_is_added(folder):
    """QW-07"""
    at = folder({"text_config.eos_token_id": [2, 3]})
    (at / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 11]}))
    assert read_config(at).eos_ids == {2, 3, 11}


def test_an_extra_key_of_a_later_release_is_accepted(folder):
    assert read_config(folder({"text_config.output_gate_type": "swish"}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"text_config.hidden_size": None}, "text_config.hidden_size"),
        ({"text_config.hidden_size": "64"}, "text_config.hidden_size"),
        ({"text_config.hidden_size": True}, "text_config.hidden_size"),
        ({"text_config.head_dim": 0}, "text_config.head_dim"),
        ({"text_config.rms_norm_eps": float("nan")}, "text_config.rms_norm_eps"),
        ({"text_config.num_attention_heads": 3}, "text_config.num_attention_heads"),
        ({"text_config.linear_num_value_heads": 3}, "text_config.linear_num_value_heads"),
        ({"text_config.layer_types": ["full_attention"]}, "text_config.layer_types"),
        ({"text_config.layer_types": ["sliding_attention"] * 8}, "text_config.layer_types"),
        ({"text_config.hidden_act": "gelu"}, "text_config.hidden_act"),
        ({"text_config.attention_bias": True}, "text_config.attention_bias"),
        ({"text_config.attn_output_gate": False}, "text_config.attn_output_gate"),
        ({"text_config.dtype": "int4"}, "text_config.dtype"),
        ({"text_config.eos_token_id": "x"}, "text_config.eos_token_id"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"text_config.rope_parameters.rope_theta": None}, "rope_theta"),
        ({"text_config.rope_parameters.rope_type": "yarn"}, "rope_parameters.rope_type"),
        ({"text_config.rope_parameters.mrope_section": [1, 1, 1]}, "rope_parameters.mrope_section"),
        ({"text_config.rope_parameters.partial_rotary_factor": 2}, "partial_rotary_factor"),
        ({"model_type": "qwen3_5_moe"}, "model_type"),
        ({"text_config.num_experts": 8}, "text_config.model_type"),
        ({"model_type": "llama"}, "model_type"),
        ({"text_config": 3}, "text_config"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(folder, changes, field):
    with pytest.raises(CheckpointError) as caught:
        read_config(folder(changes))
    assert caught.value.where.endswith(field)
    assert "config.json" in caught.value.where
    assert caught.value.want
    assert caught.value.fix


@pytest.mark.parametrize("text", [None, "", "[1]", '{"model_type": '])
def test_a_file_that_is_no_json_object_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        read_config(tmp_path)
    assert str(tmp_path / "config.json") in caught.value.where


@pytest.mark.shared
@pytest.mark.parametrize("size", ["0.8B", "2B", "4B", "9B", "27B"])
def test_every_published_dense_size_is_read(shared, tmp_path, size):
    published = json.loads((shared / "configs" / f"Qwen3.5-{size}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(published["config"]))
    config = read_config(tmp_path)
    text = published["config"]["text_config"]
    assert attrs.asdict(config)["hidden_size"] == text["hidden_size"]
    assert config.tied is (size in ("0.8B", "2B", "4B"))
    assert config.rope.sections == (11, 11, 10)
    assert config.num_linear == 3 * config.num_full


@pytest.mark.shared
@pytest.mark.parametrize("size", ["35B-A3B", "122B-A10B", "397B-A17B"])
def test_a_published_mixture_of_experts_is_refused(shared, tmp_path, size):
    published = json.loads((shared / "configs" / f"Qwen3.5-{size}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(published["config"]))
    with pytest.raises(CheckpointError, match="mixtures of experts are not served"):
        read_config(tmp_path)
