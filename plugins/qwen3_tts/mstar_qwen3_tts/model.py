"""Qwen3-TTS: a talker and a codec, joined by the edge ``frames`` while both run.

::

    script ──► prefill ──► talker_decode ─┐ ══ frames ══► voice ──► sound
    (talker)                    ▲         │              (codec)
                                └─────────┘

A base model is told the voice behind the script (``imitating.py``), and its codec goes through the
frames of the recording (``recall``) before it speaks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from mstar_core.model.base import Model, NodeEnv, NodeSubmodule
from mstar_core.model.walks import Edge, Input, Loop, Node, Once, Output, Sequence, Stream, Walk
from mstar_qwen3_tts.codec import RECALL, CodecSubmodule, codec_resources
from mstar_qwen3_tts.config import CODEC_FOLDER, RECORDED_FRAMES, TtsConfig, read_config
from mstar_qwen3_tts.front import Qwen3TTSFront
from mstar_qwen3_tts.imitating import (
    HEAR,
    HEARD,
    KNOW,
    LISTEN,
    SPEAKER,
    ImitatingTalker,
    hearing_walks,
    kept_blocks,
)
from mstar_qwen3_tts.options import Qwen3TTSOptions
from mstar_qwen3_tts.rules import logit_rules
from mstar_qwen3_tts.talker import (
    PREFILL,
    SCRIPT,
    TALKER_DECODE,
    TalkerSubmodule,
    talker_resources,
)
from mstar_qwen3_tts.weights import codec_weight_map, talker_weight_map

if TYPE_CHECKING:
    from mstar_core.model.weights import WeightMap

WAITING_FRAMES = 64
"""Frames that may wait for the codec, per request."""
FRAMES_A_STEP = 512
"""Frames of one step of the codec at most, which bounds the memory of the activations."""
SCRIPTS_A_STEP = 8


class Qwen3TTS(Model):
    """Text to speech, a frame of codes at a time."""

    Options: ClassVar[type] = Qwen3TTSOptions
    weight_folders: ClassVar[tuple[str, ...]] = (CODEC_FOLDER,)

    def __init__(self, folder: Path, config: TtsConfig, options: Qwen3TTSOptions) -> None:
        self.folder, self.config, self.options = folder, config, options

    @classmethod
    def open(cls, folder: Path, options: Any) -> Self:
        model = cls(folder, read_config(folder), options)
        model.front().check_options()
        return model

    def nodes(self) -> tuple[Node, ...]:
        rules = logit_rules(self.config, self.front().defaults.penalty)
        kept = kept_blocks(self.config) if self.config.imitates else {}
        talker = talker_resources(self.config, self.options.script, rules, kept)
        return (
            Node(name="talker", walks=self._talker(), resources=talker),
            Node(name="codec", walks=self._codec(), resources=codec_resources(self.config.decoder)),
        )

    def edges(self) -> tuple[Edge, ...]:
        shared: dict[str, Any] = {"shape": (self.config.code_groups,), "dtype": "int64"}
        frames = Edge(
            name="frames",
            source=TALKER_DECODE,
            target="voice",
            input="frames",
            capacity=WAITING_FRAMES,
            chunks=self.options.chunks,
            **shared,
        )
        if not self.config.imitates:
            return (frames,)
        heard = Edge(
            name=HEARD, source=HEAR, target=RECALL, input=HEARD, capacity=RECORDED_FRAMES, **shared
        )
        return frames, heard

    def graph(self) -> Sequence:
        heard: tuple[Once, ...] = ()
        if self.config.imitates:
            heard = tuple(Once(name) for name in (SPEAKER, LISTEN, KNOW, HEAR, RECALL))
        talker = Sequence((Once(SCRIPT), *heard, Once(PREFILL), Loop(TALKER_DECODE)))
        return Sequence((Stream(producer=talker, consumer=Once("voice"), edge="frames"),))

    @property
    def max_context(self) -> int:
        return self.config.max_context

    def default_dtype(self) -> torch.dtype:
        return torch.bfloat16

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        if node == "codec":
            return CodecSubmodule(self.config.decoder, env)
        return (ImitatingTalker if self.config.imitates else TalkerSubmodule)(self.config, env)

    def weight_map(self, node: str) -> WeightMap:
        if node == "codec":
            return codec_weight_map(self.config.decoder)
        return talker_weight_map(self.config)

    def front(self) -> Qwen3TTSFront:
        return Qwen3TTSFront(self.folder, self.config, self.options)

    def _talker(self) -> tuple[Walk, ...]:
        config = self.config
        script = Input(name=SCRIPT, shape=(self.options.script,), below=config.text_vocab_size)
        text = Input(name="text", below=config.text_vocab_size)
        codes = config.heard_frames.stop if config.imitates else config.vocab_size
        code = Input(name="code", below=codes + 1)
        hidden = (config.talker.hidden,)
        ids = Input(name="ids", below=config.vocab_size, loops=True)
        last = Input(name="hidden", dtype="model", shape=hidden, loops=True)
        frames = Output(name="frames", shape=(config.code_groups,), edge="frames")
        outputs = (
            Output(name="ids", read=True, loops_to="ids"),
            Output(name="hidden", dtype="model", shape=hidden, loops_to="hidden"),
            Output(name="logprob", dtype="float32", read=True),
            Output(name="finite", dtype="bool", read=True),
        )
        sampled: dict[str, Any] = {"node": "talker", "samples": True}
        return (
            Walk(
                name=SCRIPT,
                node="talker",
                feed="prompt",
                inputs=(script,),
                max_items=SCRIPTS_A_STEP,
                capture=False,
            ),
            *(hearing_walks(config) if config.imitates else ()),
            Walk(
                name=PREFILL,
                feed="prompt",
                inputs=(text, code),
                outputs=outputs,
                chunkable=True,
                **sampled,
            ),
            Walk(
                name=TALKER_DECODE,
                feed="loop",
                inputs=(ids, last),
                outputs=(*outputs, frames),
                **sampled,
            ),
        )

    def _codec(self) -> tuple[Walk, ...]:
        books = (self.config.code_groups,)
        samples = (self.config.decoder.samples_per_frame,)
        shared: dict[str, Any] = {"node": "codec", "max_items": FRAMES_A_STEP}
        voice = Walk(
            name="voice",
            feed="edge",
            edge="frames",
            inputs=(Input(name="frames", shape=books),),
            outputs=(
                Output(name="sound", dtype="float32", shape=samples, read=True, told=True),
                Output(name="finite", dtype="bool", read=True),
            ),
            capture_items=self.options.captured_frames,
            **shared,
        )
        recall = Walk(
            name=RECALL,
            feed="edge",
            edge=HEARD,
            inputs=(Input(name=HEARD, shape=books),),
            chunkable=True,
            optional=True,
            capture=False,
            **shared,
        )
        return (voice, recall) if self.config.imitates else (voice,)
