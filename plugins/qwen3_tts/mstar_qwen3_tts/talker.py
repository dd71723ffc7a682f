"""The node ``talker``: a prompt of text and codec ids, then a frame of codes a step.

::

    prefill         text, code ─► talker ─► hidden, code 0 ────────────┐ (carry row)
    talker_decode   hidden, code 0 ─► code predictor ─► frame ─► edge  │
    ▲ │                                  └─ its embedding + text ─► talker ─► hidden, code 0
    └─┴────────────────────────────────────────────────────────────────┘

The text that is spoken while frames come is the request's *script*, kept in its slot by the walk
of that name. A frame whose code 0 is the end travels the edge only if it was launched before the
end had been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.ops.functional import rms_norm
from mstar_core.resources.base import ResourceSpec
from mstar_core.resources.sampler.rules import LogitRule
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.layers import Attend, Layer, Make
from mstar_qwen3_tts.predictor import CodePredictor

SCRIPT, PREFILL, TALKER_DECODE = "script", "prefill", "talker_decode"


class TalkerSubmodule(NodeSubmodule):
    """Walks ``script``, ``prefill`` and ``talker_decode``."""

    def __init__(self, config: TtsConfig, env: NodeEnv) -> None:
        super().__init__()
        make, sizes = Make.of(env), config.talker
        self.eps, self.linear = sizes.eps, make.linear
        self.text_table = make.weight(config.text_vocab_size, config.text_hidden)
        self.fc1 = make.weight(config.text_hidden, config.text_hidden)
        self.fc1_bias = make.weight(config.text_hidden)
        self.fc2 = make.weight(sizes.hidden, config.text_hidden)
        self.fc2_bias = make.weight(sizes.hidden)
        self.code_table = make.weight(config.vocab_size, sizes.hidden)
        self.layers = nn.ModuleList(
            Layer(sizes, make, normed=True, scaled=False) for _ in range(sizes.layers)
        )
        self.norm = make.weight(sizes.hidden)
        self.head = make.weight(config.vocab_size, sizes.hidden)
        self._kept = env.resource(SCRIPT).layer(0)
        self.predictor = CodePredictor(config, make, env, rows=len(self._script))
        self._attention = [env.resource("attention").layer(i) for i in range(sizes.layers)]
        self._position, self._sampler = env.resource("position"), env.resource("sampler")

    def init_random(self, generator: torch.Generator) -> None:
        """A norm of one."""
        self.norm.fill_(1)

    def declare_step(self, walk: str, spans_B: np.ndarray) -> Mapping[str, np.ndarray]:
        """What a slot keeps is written in walks of its own, and read by these two."""
        if walk not in (PREFILL, TALKER_DECODE):
            return {SCRIPT: spans_B}
        own = dict.fromkeys(("kv", "attention", "position", "sampler"), spans_B)
        return {**own, SCRIPT: spans_B}

    def resident_walks(self) -> frozenset[str]:
        """A frame a step."""
        return frozenset({TALKER_DECODE})

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """``script`` returns nothing; ``talker_decode`` also ``frames``, int64 ``[B, 16]``."""
        slots_B = plans[SCRIPT].slots_B
        if walk == SCRIPT:
            self._script.index_copy_(0, slots_B, inputs[SCRIPT])
            return {}
        if walk == PREFILL:
            return self._talk(self._prompt(inputs, plans), plans)
        frames_BQ = self._frames(inputs, plans)
        at_B = (plans["sampler"].generated_B.long() - 1).clamp(0, self._script.shape[1] - 1)
        script_B = self._script[slots_B, at_B]
        text_B = torch.where(plans[SCRIPT].fresh_B, 0, script_B)  # padding has no script
        x_BH = self.frame(frames_BQ) + self.text(text_B)
        return {**self._talk(x_BH, plans), "frames": frames_BQ}

    def text(self, ids_T: Tensor) -> Tensor:
        """Ids of the text vocabulary → ``[T, hidden]``."""
        x_TH = F.embedding(ids_T, self.text_table)
        x_TH = F.silu(self.linear.linear(x_TH, self.fc1, self.fc1_bias))
        return self.linear.linear(x_TH, self.fc2, self.fc2_bias)

    def frame(self, codes_TQ: Tensor) -> Tensor:
        """Frames of codes → the sum of the codes' embeddings, ``[T, hidden]``."""
        first_TH = F.embedding(codes_TQ[:, 0], self.code_table)
        return first_TH + self.predictor.embed(codes_TQ[:, 1:])

    @property
    def _script(self) -> Tensor:
        """Text ids by slot; the last is what is beside sound for which there is no text."""
        script: Tensor = self._kept[SCRIPT]
        return script

    def _prompt(self, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]) -> Tensor:
        """Text and, where ``code`` is not 0, the embedding of code ``code - 1``."""
        code_T, x_TH = inputs["code"], self.text(inputs["text"])
        code_TH = self._codes((code_T - 1).clamp(min=0), plans)
        return x_TH + torch.where(code_T[:, None] > 0, code_TH, 0)

    def _codes(self, code_T: Tensor, plans: Mapping[str, Any]) -> Tensor:
        """Codec ids → ``[T, hidden]``."""
        return F.embedding(code_T.clamp(max=len(self.code_table) - 1), self.code_table)

    def _frames(self, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]) -> Tensor:
        first_B = inputs["ids"]
        first_BH = F.embedding(first_B, self.code_table)
        later_BQ = self.predictor(inputs["hidden"], first_BH, plans["sampler"])
        return torch.cat([first_B[:, None], later_BQ], 1)

    def _talk(self, x_TH: Tensor, plans: Mapping[str, Any]) -> dict[str, Tensor]:
        rope = self._position.rope(plans["position"])
        for layer, face in zip(self.layers, self._attention, strict=True):
            x_TH = layer(x_TH, self._attend(face, plans["attention"], rope))
        last_BH = self._sampler.last(x_TH, plans["sampler"])
        hidden_BH = rms_norm(last_BH, self.norm, self.eps)
        logits_BV = self.linear.linear(hidden_BH, self.head)
        sampled = self._sampler.sample(logits_BV, plans["sampler"])
        return {
            "ids": sampled.ids_B,
            "hidden": hidden_BH,
            "logprob": sampled.logprob_B,
            "finite": sampled.finite_B,
        }

    def _attend(self, face: Any, plan: Any, rope: tuple[Tensor, Tensor]) -> Attend:
        def attend(q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, layer: Layer) -> Tensor:
            o_TND: Tensor = face.step(
                q_TND,
                k_TGD,
                v_TGD,
                plan,
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
                eps=self.eps,
                rope=rope,
            )
            return o_TND

        return attend


def talker_resources(
    config: TtsConfig, script: int, rules: tuple[LogitRule, ...], kept: Mapping[str, Any]
) -> tuple[ResourceSpec, ...]:
    """A pool, attention, positions, a script of ``script`` ids, and the sampler with its rules.

    ``kept`` are further blocks beside the script.

    The three axes of a position are always equal here, so that plain rope turns what is stored for
    mrope.
    """
    sizes = config.talker
    heads = {"num_kv_heads": sizes.kv_heads, "head_dim": sizes.head_dim}
    blocks = {SCRIPT: ((script,), torch.int64), **kept}
    return (
        ResourceSpec(key="kv", kind="kv", options={"num_layers": sizes.layers, **heads}),
        ResourceSpec(
            key="attention",
            kind="attention",
            options={"num_heads": sizes.heads, **heads},
            depends_on={"kv": "kv"},
        ),
        ResourceSpec(
            key="position",
            kind="position",
            options={"kind": "rope", "rotary_dim": sizes.head_dim, "theta": sizes.theta},
        ),
        ResourceSpec(key=SCRIPT, kind="state", options={"num_layers": 1, "blocks": blocks}),
        ResourceSpec(
            key="sampler",
            kind="sampler",
            options={"vocab_size": config.vocab_size, "rules": rules},
            depends_on={"carry": "carry"},
        ),
    )
