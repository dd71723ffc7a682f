"""Write the tiny checkpoint that the qwen35 plugin ships: ``python tools/make_tiny_qwen35.py OUT``.

It has the published architecture and file layout (safetensors in bf16 with fp32 decay and gated
norm, tokenizer, chat template) at about half a million random parameters. Its text means nothing;
it lets every command run without a download. The recurrent decay is near one, so that a request
that read another's state would say something else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

REPOSITORY = Path(__file__).parent.parent
TEXT_IDS = 1000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
VOCAB, HIDDEN, MLP, LAYERS = 1024, 64, 96, 8
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
K_HEADS, V_HEADS, STATE_DIM, TAPS = 2, 4, 16, 4

CONFIG = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (LAYERS // 4),
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "linear_num_key_heads": K_HEADS,
        "linear_num_value_heads": V_HEADS,
        "linear_key_head_dim": STATE_DIM,
        "linear_value_head_dim": STATE_DIM,
        "linear_conv_kernel_dim": TAPS,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "eos_token_id": TEXT_IDS,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
}

TEMPLATE = """\
{%- macro words(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is not none -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set last = namespace(user=-1) -%}
{%- for message in messages if message.role == 'user' -%}
    {%- set last.user = messages.index(message) -%}
{%- endfor -%}
{%- if last.user < 0 -%}{{- raise_exception('no user message') -}}{%- endif -%}
{%- if tools -%}
    {{- '<|im_start|>system\\n# Tools\\n\\n<tools>' -}}
    {%- for tool in tools -%}{{- '\\n' ~ (tool | tojson) -}}{%- endfor -%}
    {{- '\\n</tools>' -}}
    {%- if messages[0].role == 'system' -%}
        {{- '\\n\\n' ~ (words(messages[0].content) | trim) -}}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- elif messages[0].role == 'system' -%}
    {{- '<|im_start|>system\\n' ~ (words(messages[0].content) | trim) ~ '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{- raise_exception('the system message must come first') -}}
        {%- endif -%}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\\n' ~ (words(message.content) | trim) ~ '<|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\\n' ~ (words(message.content).split('</think>')[-1] | trim) -}}
        {{- '<|im_end|>\\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>user\\n<tool_response>\\n' ~ words(message.content) -}}
        {{- '\\n</tool_response><|im_end|>\\n' -}}
    {%- else -%}
        {{- raise_exception('unknown role ' ~ message.role) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n<think>\\n' -}}
    {%- if not enable_thinking -%}{{- '\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
"""


def make_tokenizer() -> Tokenizer:
    """Byte-level BPE of ``TEXT_IDS`` ids learnt from the licence, then the tags."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_IDS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train([str(REPOSITORY / "LICENSE")], trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens(list(PLAIN))
    return tokenizer


def make_weights(readable: Tensor) -> dict[str, Tensor]:
    """Seeded random weights by their published names.

    Head rows of ids that are not ``readable`` are zero, so that the likeliest id is readable.
    """
    draws = torch.Generator().manual_seed(35)
    weights: dict[str, Tensor] = {}

    def normal(name: str, *shape: int, scale: float | None = None, mean: float = 0.0) -> None:
        fan_in = shape[-1] ** -0.5 if scale is None else scale
        drawn = torch.randn(shape, generator=draws) * fan_in + mean
        keeps_fp32 = name.endswith(("A_log", "linear_attn.norm.weight"))
        weights[name] = drawn if keeps_fp32 else drawn.bfloat16()

    def linear_attention(at: str) -> None:
        key, value = K_HEADS * STATE_DIM, V_HEADS * STATE_DIM
        normal(at + "in_proj_qkv.weight", 2 * key + value, HIDDEN)
        normal(at + "in_proj_z.weight", value, HIDDEN)
        normal(at + "in_proj_b.weight", V_HEADS, HIDDEN)
        normal(at + "in_proj_a.weight", V_HEADS, HIDDEN)
        normal(at + "conv1d.weight", 2 * key + value, 1, TAPS)
        normal(at + "A_log", V_HEADS, scale=0.3, mean=0.7)
        normal(at + "dt_bias", V_HEADS, scale=0.3, mean=-6.0)
        normal(at + "norm.weight", STATE_DIM, scale=0.2, mean=1.0)
        normal(at + "out_proj.weight", HIDDEN, value)

    def full_attention(at: str) -> None:
        normal(at + "q_proj.weight", 2 * HEADS * HEAD_DIM, HIDDEN)
        normal(at + "k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        normal(at + "v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        normal(at + "o_proj.weight", HIDDEN, HEADS * HEAD_DIM)
        normal(at + "q_norm.weight", HEAD_DIM, scale=0.2)
        normal(at + "k_norm.weight", HEAD_DIM, scale=0.2)

    root = "model.language_model."
    normal(root + "embed_tokens.weight", VOCAB, HIDDEN, scale=0.5)
    normal(root + "norm.weight", HIDDEN, scale=0.2)
    normal("lm_head.weight", VOCAB, HIDDEN)
    weights["lm_head.weight"][~readable] = 0
    for i in range(LAYERS):
        at = f"{root}layers.{i}."
        if (i + 1) % 4:
            linear_attention(at + "linear_attn.")
        else:
            full_attention(at + "self_attn.")
        normal(at + "mlp.gate_proj.weight", MLP, HIDDEN)
        normal(at + "mlp.up_proj.weight", MLP, HIDDEN)
        normal(at + "mlp.down_proj.weight", HIDDEN, MLP)
        normal(at + "input_layernorm.weight", HIDDEN, scale=0.2)
        normal(at + "post_attention_layernorm.weight", HIDDEN, scale=0.2)
    return weights


def readable_ids(tokenizer: Tokenizer) -> Tensor:
    """bool ``[vocabulary]``: ids that are printable text on their own."""
    texts = [tokenizer.decode([i]) for i in range(TEXT_IDS)]
    known = [t.isascii() and t.strip().isprintable() and t != "" for t in texts]
    return torch.tensor(known + [False] * (VOCAB - TEXT_IDS))


def main(out: Path) -> None:
    """Write the checkpoint into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(out / "tokenizer.json"))
    save_file(make_weights(readable_ids(tokenizer)), out / "model.safetensors", {"format": "pt"})
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    for name, content in (
        ("config.json", CONFIG),
        ("tokenizer_config.json", settings),
        ("generation_config.json", {"eos_token_id": ends}),
    ):
        (out / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
