"""Echo: three nodes, one stream edge, no weights."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from attrs import field, frozen

from mstar_core.config.checks import flag
from mstar_core.echo.asked import VOCAB
from mstar_core.echo.front import CONTEXT, EchoFront
from mstar_core.echo.nodes import Ears, Mouth, Voice
from mstar_core.model.base import Model, NodeEnv, NodeSubmodule
from mstar_core.model.walks import Edge, Input, Loop, Node, Once, Output, Sequence, Stream, Walk
from mstar_core.model.weights import WeightMap
from mstar_core.resources.base import ResourceSpec

ORDER = (3,)
"""The shape of an order: kind, token, microseconds."""


@frozen(kw_only=True)
class EchoOptions:
    """``model.options`` of the echo model."""

    faults: bool = field(default=False, validator=flag)
    """A prompt may order faults of its own request; see ``docs/echo.md``."""


class Echo(Model):
    """Answers with the prompt's own tokens and an end, over and over."""

    Options = EchoOptions
    has_checkpoint: ClassVar[bool] = False

    def __init__(self, options: EchoOptions) -> None:
        self.faults = options.faults

    @classmethod
    def open(cls, folder: Path, options: Any) -> Self:
        return cls(options)

    def nodes(self) -> tuple[Node, ...]:
        heard, said = Input(name="heard", shape=ORDER), Input(name="said", shape=self._item)
        hear = Walk(
            name="hear", node="ears", feed="prompt", inputs=(heard,), capture=False, optional=True
        )
        voice = Walk(
            name="voice", node="voice", feed="edge", edge="said", inputs=(said,), capture=False
        )
        cells = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 1}
        kept = ResourceSpec(key="kv", kind="kv", options=cells)
        return (
            Node(name="ears", walks=(hear,)),
            Node(name="mouth", walks=self._mouth(), resources=(kept,)),
            Node(name="voice", walks=(voice,)),
        )

    def edges(self) -> tuple[Edge, ...]:
        return (
            Edge(
                name="said",
                source="say",
                target="voice",
                input="said",
                shape=self._item,
                dtype="int64",
                capacity=8,
            ),
        )

    def graph(self) -> Sequence:
        mouth = Sequence((Once("read"), Loop("say")))
        stream = Stream(producer=mouth, consumer=Once("voice"), edge="said")
        return Sequence((Once("hear"), stream))

    @property
    def max_context(self) -> int:
        return CONTEXT

    def default_dtype(self) -> torch.dtype:
        return torch.float32

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        if node == "mouth":
            return Mouth(env, self.faults)
        return Ears(self.faults) if node == "ears" else Voice(self.faults)

    def weight_map(self, node: str) -> WeightMap:
        return WeightMap()

    def run_again(
        self, arrays: Mapping[str, np.ndarray], tokens: Listed[int]
    ) -> Mapping[str, np.ndarray]:
        more = {"ids": np.asarray(tokens, np.int64)}
        for name in arrays.keys() - {"heard", "ids"}:
            more[name] = np.repeat(arrays[name][:1], len(tokens), axis=0)
        return {
            name: np.concatenate([array, more[name]]) if name in more else array
            for name, array in arrays.items()
        }

    def front(self) -> EchoFront:
        return EchoFront(self.faults)

    @property
    def _item(self) -> tuple[int, ...]:
        """The shape of what the mouth sends: a token, and whether the voice is to raise at it."""
        return (2,) if self.faults else ()

    def _mouth(self) -> tuple[Walk, Walk]:
        inputs = [Input(name="ids", below=VOCAB, loops=True), Input(name="length", loops=True)]
        outputs = [
            Output(name="ids", read=True, loops_to="ids"),
            Output(name="length", loops_to="length"),
        ]
        if self.faults:
            inputs.append(Input(name="order", shape=ORDER, loops=True))
            outputs.append(Output(name="order", shape=ORDER, loops_to="order"))
            outputs.append(Output(name="finite", dtype="bool", read=True))
        shared: dict[str, Any] = {
            "node": "mouth",
            "inputs": tuple(inputs),
            "samples": True,
            "capture": not self.faults,  # a fault is looked for on the host
        }
        said = Output(name="said", shape=self._item, edge="said")
        return (
            Walk(name="read", feed="prompt", chunkable=True, outputs=tuple(outputs), **shared),
            Walk(name="say", feed="loop", outputs=(*outputs, said), **shared),
        )
