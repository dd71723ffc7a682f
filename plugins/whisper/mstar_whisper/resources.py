"""What the decoder keeps of a request, and what it may say."""

from __future__ import annotations

from mstar_core.resources.base import ResourceSpec
from mstar_core.resources.sampler.rules import LogitRule, SuppressRule
from mstar_whisper.asking import LANGUAGES
from mstar_whisper.config import WhisperConfig
from mstar_whisper.rules import OnlyRule, TimestampRule


def decoder_resources(config: WhisperConfig) -> tuple[ResourceSpec, ...]:
    """Two pools with an attention each, learned positions, and the sampler with its rules."""
    heads = {
        "num_kv_heads": config.decoder_heads,
        "head_dim": config.width // config.decoder_heads,
    }
    layers = {"num_layers": config.decoder_layers, **heads}
    attention = {"num_heads": config.decoder_heads, **heads}
    return (
        ResourceSpec(key="kv", kind="kv", options=layers),
        ResourceSpec(
            key="cross_kv", kind="kv", options={**layers, "max_tokens": config.source_positions}
        ),
        ResourceSpec(key="attention", kind="attention", options=attention, depends_on={"kv": "kv"}),
        ResourceSpec(
            key="cross_attention",
            kind="attention",
            options={**attention, "causal": False},
            depends_on={"kv": "cross_kv"},
        ),
        ResourceSpec(key="position", kind="position", options={"kind": "learned"}),
        ResourceSpec(
            key="sampler",
            kind="sampler",
            options={"vocab_size": config.vocab_size, "rules": logit_rules(config)},
            depends_on={"carry": "carry"},
        ),
    )


def logit_rules(config: WhisperConfig) -> tuple[LogitRule, ...]:
    """What may not be sampled, in the order in which the rules apply."""
    tokens = config.tokens
    rules: list[LogitRule] = [
        SuppressRule(ids=tokens.suppress, first_ids=tokens.begin_suppress),
        TimestampRule(
            begin=tokens.timestamp_begin,
            eot=tokens.eot,
            no_timestamps=tokens.no_timestamps,
            max_initial=tokens.max_initial_timestamp,
        ),
    ]
    languages = [OnlyRule(ids=tuple(tokens.languages.values()), name=LANGUAGES)]
    return (*rules, *(languages if tokens.multilingual else ()))
