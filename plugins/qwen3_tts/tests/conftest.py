"""Checkpoints that the tests of this plugin use, and its nodes without an engine."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from mstar_qwen3_tts.codec import CodecSubmodule, codec_resources
from mstar_qwen3_tts.columns import torch_backend as columns
from mstar_qwen3_tts.config import CODEC_FOLDER, read_config
from mstar_qwen3_tts.weights import codec_weight_map

from mstar_core.fixed import FixedBuffers
from mstar_core.model.base import NodeEnv
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.load import load_weights
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.base import ResourceSpec
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource
from mstar_core.resources.state import StateResource
from mstar_core.testing.world import World, bind_torch, opening_of, step_of

SHARED = Path(__file__).parents[4] / "shared"
KINDS = {
    cls.kind: cls
    for cls in (
        AttentionResource,
        CarryResource,
        KVResource,
        PositionResource,
        SamplerResource,
        StateResource,
    )
}
GENERATION = {
    "do_sample": True,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "max_new_tokens": 8192,
}
TINY = (
    "qwen3_tts-tiny-0b6-base",
    "qwen3_tts-tiny-0b6-custom_voice",
    "qwen3_tts-tiny-1b7-custom_voice",
    "qwen3_tts-tiny-1b7-voice_design",
)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tiny checkpoints with reference output; or a copy beside the code."""
    places = (SHARED / "models" / "golden", Path(__file__).parents[3] / ".shared" / "golden")
    found = [folder for folder in places if folder.is_dir()]
    if not found:
        pytest.skip(f"the reference folder {places[0]} is not there")
    return found[0]


@pytest.fixture(scope="session")
def sizes() -> Path:
    """The folder with the configurations and tensor lists of the published sizes."""
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip(f"the reference folder {folder} is not there")
    return folder


class Golden:
    """A tiny checkpoint and what the reference said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = json.loads((folder / "golden.json").read_text())

    @property
    def wave(self):
        """The samples of the codes of non-streaming text, ``[T]``."""
        return torch.load(self.folder / "wave.pt", weights_only=True)["wave"]

    def codes(self, whole_text=True):
        """The frames ``[T, 16]`` that the reference chose greedily."""
        return torch.tensor(self.told[f"codes_non_streaming_{whole_text}"])


STACK = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
}
SPECIAL = ("codec_pad_id", "codec_bos_id", "codec_eos_token_id", "codec_think_id")
SPECIAL += ("codec_nothink_id", "codec_think_bos_id", "codec_think_eos_id")
CONFIG = {
    "model_type": "qwen3_tts",
    "tts_model_size": "1b7",
    "tts_model_type": "custom_voice",
    "tts_pad_token_id": 90,
    "tts_bos_token_id": 91,
    "tts_eos_token_id": 92,
    "talker_config": {
        **STACK,
        **{name: 32 + i for i, name in enumerate(SPECIAL)},
        "vocab_size": 32 + 1024,
        "text_vocab_size": 100,
        "text_hidden_size": 24,
        "num_code_groups": 4,
        "max_position_embeddings": 256,
        "codec_language_id": {"english": 50, "chinese": 51, "sichuan_dialect": 52},
        "spk_id": {"ann": 60, "bo": 61},
        "spk_is_dialect": {"ann": False, "bo": "sichuan_dialect"},
        "code_predictor_config": {**STACK, "hidden_size": 16, "vocab_size": 32},
    },
}
CODEC = {
    "output_sample_rate": 24000,
    "decode_upsample_rate": 12,
    "decoder_config": {
        **STACK,
        "num_quantizers": 4,
        "num_semantic_quantizers": 1,
        "codebook_size": 32,
        "codebook_dim": 8,
        "latent_dim": 8,
        "sliding_window": 4,
        "decoder_dim": 8,
        "upsampling_ratios": [2],
        "upsample_rates": [3, 2],
    },
}


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """A folder of configurations, for noise as weights: other sizes than any that is published."""
    folder = tmp_path_factory.mktemp("small")
    (folder / CODEC_FOLDER).mkdir()
    (folder / CODEC_FOLDER / "config.json").write_text(json.dumps(CODEC))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    return folder


@pytest.fixture(params=TINY)
def tiny(request, golden, tmp_path) -> Golden:
    """Each tiny checkpoint."""
    return Golden(settled(golden / request.param, tmp_path / "checkpoint"))


@pytest.fixture
def voice(golden, tmp_path) -> Golden:
    """One of them."""
    return Golden(settled(golden / TINY[1], tmp_path / "checkpoint"))


@pytest.fixture
def base(golden, tmp_path) -> Golden:
    """The one that imitates."""
    return Golden(settled(golden / TINY[0], tmp_path / "checkpoint"))


def settled(folder, copy):
    """``folder`` with the published settings beside it."""
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "generation_config.json").write_text(json.dumps(GENERATION))
    return copy


def world_of(specs, rows, device="cpu", **sizes):
    """Resources of a node without an engine."""
    world = World(max_rows=rows, buffers=FixedBuffers(torch.device(device)), **sizes)
    for spec in specs:
        config = {"page_tokens": 8} if spec.kind == "kv" else {}
        world.build(KINDS[spec.kind], spec.key, spec.options, config, spec.depends_on)
    return world


def bind_own(operation, geometry):
    """The torch backend of an operation of the core or of this plugin."""
    own = columns.BACKEND
    return own.bind(None) if operation == own.operation else bind_torch(operation, geometry)


def env_of(node, world):
    """What a submodule is built with."""
    return NodeEnv(
        node=node,
        device=torch.device("meta"),
        dtype=torch.float32,
        resources=world.resources,
        bind=bind_own,
    )


class CodecBench:
    """The codec of a checkpoint in fp32 with real resources, stepped by hand."""

    def __init__(self, folder, rows=4):
        self.config = read_config(folder).decoder
        self.world = world_of(codec_resources(self.config), rows, max_context=4096)
        self.codec = CodecSubmodule(self.config, env_of("codec", self.world))
        nodes, maps = {"codec": self.codec}, {"codec": codec_weight_map(self.config)}
        load_weights(nodes, maps, open_checkpoint(folder / CODEC_FOLDER), "cpu")

    def open(self):
        """A row for one more request."""
        return self.world.open(opening_of(keys=tuple(self.world.resources)))

    def close(self, *handles):
        """The requests are over, and every step has been read."""
        for handle in handles:
            self.world.close(handle)
        self.world.retire()

    def step(self, handles, codes):
        """One step; the samples of each row, flat."""
        spans = [len(each) for each in codes]
        steps = {key: step_of(*handles, spans=spans, key=key) for key in self.world.resources}
        plans = self.world.run(steps)
        sound = self.codec("voice", {"frames": torch.cat(codes)}, plans)["sound"]
        return [piece.flatten() for piece in sound.split(spans)]

    def decode(self, codes, chunks):
        """The samples of ``codes`` cut into chunks, one step each."""
        handle, found = self.open(), []
        for piece in cut(codes, chunks):
            found += self.step([handle], [piece])
        self.close(handle)
        return torch.cat(found)


def cut(codes, chunks):
    """``codes`` in pieces of these lengths; the last length goes on."""
    at, index, pieces = 0, 0, []
    while at < len(codes):
        size = chunks[min(index, len(chunks) - 1)]
        pieces.append(codes[at : at + size])
        at, index = at + size, index + 1
    return pieces


@pytest.fixture
def codec_bench():
    """Makes a bench of a checkpoint folder."""
    with torch.inference_mode():
        yield CodecBench


@pytest.fixture(scope="session")
def equations():
    """The reference's equations in plain torch, as a module."""
    file = SHARED / "models" / "tiny_configs" / "spec_qwen3_tts.py"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    spec = importlib.util.spec_from_file_location("spec_qwen3_tts", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def on_meta():
    """Builds the nodes of a model on the meta device: ``on_meta(model)`` → submodules by name."""

    def build(model):
        modules = {}
        for node in model.nodes():
            carry = ResourceSpec(key="carry", kind="carry", options={"tensors": {}})
            specs = (*node.resources[:-1], carry, node.resources[-1])
            if node.name == "codec":
                specs = node.resources
            world = world_of(specs, 1, device="meta")
            modules[node.name] = model.build_submodule(node.name, env_of(node.name, world))
        return modules

    return build
