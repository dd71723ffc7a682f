"""Whisper: an encoder node and a decoder node, joined by the edge ``frames``.

::

    mel ──encode──> frames ══edge══> cross ──[align]──> prefill ──> decode ─┐
    (encoder)                        (decoder)                        ▲     │ token
                                                                      └─────┘
``align`` is run for a request that brings what was said, and wants to know where.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from mstar_core.errors import ConfigError, RequestError
from mstar_core.model.base import Model, NodeEnv, NodeSubmodule
from mstar_core.model.walks import Edge, Input, Loop, Node, Once, Output, Sequence, Walk
from mstar_whisper.config import WhisperConfig, read_config
from mstar_whisper.decoder import Decoder
from mstar_whisper.encoder import Encoder
from mstar_whisper.front import WhisperFront
from mstar_whisper.judging import FIRST_POSITIONS, NO_SPEECH
from mstar_whisper.options import WhisperOptions
from mstar_whisper.prompt import language_id
from mstar_whisper.resources import decoder_resources
from mstar_whisper.weights import weight_map

if TYPE_CHECKING:
    from mstar_core.model.weights import WeightMap

_SAMPLED = (
    Output(name="ids", read=True, loops_to="ids"),
    Output(name="logprob", dtype="float32", read=True),
    Output(name="finite", dtype="bool", read=True),
)
_NO_SPEECH = Output(name=NO_SPEECH, dtype="float32", read=True, reported=True)
MAX_WINDOWS = 8
"""Windows of one step at most, which bounds the memory of the activations."""
CAPTURED_WINDOWS = (1, 2, 3, 4, 6, 8)
"""Windows of the encoder's steps that are captured."""


class Whisper(Model):
    """Speech of one window to text."""

    Options: ClassVar[type] = WhisperOptions

    def __init__(self, folder: Path, config: WhisperConfig, options: WhisperOptions) -> None:
        self.folder = folder
        self.config = config
        self.options = options

    @classmethod
    def open(cls, folder: Path, options: Any) -> Self:
        config = read_config(folder)
        if options.default_language is not None:
            try:
                language_id(config.tokens, options.default_language)
            except RequestError as error:
                raise ConfigError(
                    where="model.options.default_language",
                    got=error.got,
                    want=error.want if config.tokens.multilingual else "null: an English model",
                    fix=error.fix if config.tokens.multilingual else "remove it",
                ) from None
        return cls(folder, config, options)

    def nodes(self) -> tuple[Node, ...]:
        return (
            Node(name="encoder", walks=(self._encode(),)),
            Node(
                name="decoder",
                walks=(self._cross(), self._align(), *self._token_walks()),
                resources=decoder_resources(self.config),
            ),
        )

    def edges(self) -> tuple[Edge, ...]:
        return (
            Edge(
                name="frames", source="encode", target="cross", input="frames", shape=self._window
            ),
        )

    def graph(self) -> Sequence:
        walks = ("encode", "cross", "align", "prefill")
        return Sequence((*map(Once, walks), Loop("decode")))

    @property
    def max_context(self) -> int:
        return self.config.target_positions

    def default_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.config.dtype)
        return dtype

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        return Encoder(self.config, env) if node == "encoder" else Decoder(self.config, env)

    def weight_map(self, node: str) -> WeightMap:
        return weight_map(self.config, node)

    def front(self) -> WhisperFront:
        return WhisperFront(self.folder, self.config, self.options.default_language)

    @property
    def _window(self) -> tuple[int, int]:
        """Encoder features of one window: positions, width."""
        return (self.config.source_positions, self.config.width)

    def _encode(self) -> Walk:
        mel = (self.config.mel_bins, self.config.window_frames)
        return Walk(
            name="encode",
            node="encoder",
            feed="prompt",
            inputs=(Input(name="mel", dtype="float32", shape=mel),),
            outputs=(Output(name="frames", dtype="model", shape=self._window, edge="frames"),),
            max_items=MAX_WINDOWS,
            capture_items=CAPTURED_WINDOWS,
        )

    def _cross(self) -> Walk:
        return Walk(
            name="cross",
            node="decoder",
            feed="edge",
            edge="frames",
            inputs=(Input(name="frames", dtype="model", shape=self._window),),
            max_items=MAX_WINDOWS,
            capture=False,
        )

    def _align(self) -> Walk:
        """One row that is as long as it may be, or several that are no longer together."""
        positions = Output(
            name=FIRST_POSITIONS,
            dtype="float32",
            shape=(self.config.target_positions,),
            read=True,
            reported=True,
        )
        return Walk(
            name="align",
            node="decoder",
            feed="prompt",
            inputs=(
                Input(name="said", below=self.config.vocab_size),
                Input(name="within", below=self.config.source_positions + 1),
            ),
            outputs=(positions,),
            max_items=self.config.target_positions,
            capture=False,
            optional=True,
        )

    def _token_walks(self) -> tuple[Walk, Walk]:
        ids = Input(name="ids", loops=True, below=self.config.vocab_size)
        prefill = Walk(
            name="prefill",
            node="decoder",
            feed="prompt",
            inputs=(ids,),
            outputs=(*_SAMPLED, _NO_SPEECH),
            samples=True,
            chunkable=True,
        )
        decode = Walk(
            name="decode",
            node="decoder",
            feed="loop",
            inputs=(ids,),
            outputs=_SAMPLED,
            samples=True,
        )
        return prefill, decode
