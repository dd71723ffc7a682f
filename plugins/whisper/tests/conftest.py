"""Checkpoints and sound that the tests of this plugin use."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mstar_whisper.model import Whisper
from mstar_whisper.options import WhisperOptions

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.fixed import FixedBuffers
from mstar_core.model.base import NodeEnv
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.load import load_weights
from mstar_core.model.transcription import Answered, Sound
from mstar_core.resources.attention import AttentionResource
from mstar_core.resources.carry import CarryResource
from mstar_core.resources.kv import KVResource
from mstar_core.resources.position import PositionResource
from mstar_core.resources.sampler import SamplerResource
from mstar_core.testing.world import World, carry_step_of, opening_of

sys.path.insert(0, str(Path(__file__).parent))

RESOURCES = (AttentionResource, KVResource, PositionResource, SamplerResource)
SHARED = Path(__file__).parents[4] / "shared"
REAL = Path(__file__).parents[4] / ".cache" / "whisper-tiny.en"


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of tiny checkpoints with reference output."""
    folder = SHARED / "models" / "golden"
    if not folder.is_dir():
        pytest.skip(f"the reference folder {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def sizes() -> Path:
    """The folder with the configurations and tensor lists of the published sizes."""
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip(f"the reference folder {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def speech() -> Path:
    """The folder of short recordings."""
    folder = SHARED / "data" / "audio"
    if not folder.is_dir():
        pytest.skip(f"the folder of recordings {folder} is not there")
    return folder


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The published tiny.en checkpoint."""
    if not (REAL / "model.safetensors").is_file():
        pytest.skip(f"the published whisper-tiny.en is not in {REAL}: download it there")
    return REAL


@pytest.fixture(scope="module")
def engine(real_weights, tmp_path_factory):
    """One over the published checkpoint, in fp32."""
    file = tmp_path_factory.mktemp("real") / "whisper.yaml"
    file.write_text(f"model: {{name: whisper, path: '{real_weights}', dtype: fp32}}\n")
    with Engine.open(file, ["engine.max_rows=8"], offline=True) as opened:
        yield opened


class Bench:
    """A checkpoint in fp32 with real resources, stepped by hand: the engine is absent."""

    def __init__(self, folder, rows=4, page_tokens=8, device="cpu"):
        self.model = Whisper.open(folder, WhisperOptions())
        self.config = self.model.config
        self.world = World(
            max_rows=rows,
            max_context=self.config.target_positions,
            buffers=FixedBuffers(torch.device(device)),
        )
        kinds = {cls.kind: cls for cls in RESOURCES}
        carry = {"tensors": {"ids": ((), torch.int64, 0)}}
        self.world.build(CarryResource, "carry", carry)
        for spec in self.model.nodes()[1].resources:
            config = {"page_tokens": page_tokens} if spec.kind == "kv" else {}
            cls = kinds[spec.kind]
            self.world.build(cls, spec.key, spec.options, config, spec.depends_on)
        self.modules = {name: self._build(name) for name in ("encoder", "decoder")}
        self.maps = {name: self.model.weight_map(name) for name in self.modules}
        if device == "cpu":
            load_weights(self.modules, self.maps, open_checkpoint(folder), "cpu")
        self.encoder, self.decoder = self.modules["encoder"], self.modules["decoder"]
        self.logits = []
        """What each token step computed, ``[rows, vocabulary]``."""

    def _build(self, node):
        return self.model.build_submodule(
            node,
            NodeEnv(
                node=node,
                device=torch.device("meta"),
                dtype=torch.float32,
                resources=self.world.resources,
            ),
        )

    def open(self, timestamps=False):
        tokens = {"kv": self.config.target_positions, "cross_kv": self.config.source_positions}
        settings = {
            "sampler": SamplingSettings(),
            "sampler_rules": {"timestamps": timestamps},
        }
        return self.world.open(opening_of(tokens, settings=settings))

    def hear(self, handles, mel):
        """Encode the windows ``[rows, bins, frames]`` and keep them for ``handles``."""
        frames = self.encoder("encode", {"mel": mel}, {})["frames"]
        plans = self._plans("cross", handles, [1] * len(handles))
        self.decoder("cross", {"frames": frames}, plans)
        return frames

    def step(self, walk, handles, ids):
        """One token step over lists of ids; the tokens chosen."""
        plans = self._plans(walk, handles, [len(row) for row in ids])
        packed = torch.tensor([token for row in ids for token in row])
        logits = self.decoder.logits(packed, plans)
        self.logits.append(logits)
        sampler = self.world.resources["sampler"]
        return sampler.sample(logits, plans["sampler"]).ids_B.tolist()

    def greedy(self, mel, prompts, steps, timestamps=False):
        """Prompt and tokens of each row; a row that ended goes on and is cut at its end."""
        handles = [self.open(timestamps) for _ in prompts]
        self.hear(handles, mel)
        rows = [list(prompt) for prompt in prompts]
        chosen = self.step("prefill", handles, prompts)
        for _ in range(steps):
            for row, token in zip(rows, chosen, strict=True):
                row.append(token)
            if len(rows[0]) - len(prompts[0]) == steps:
                break
            chosen = self.step("decode", handles, [[token] for token in chosen])
        eot = self.config.tokens.eot
        return [row[: row.index(eot)] if eot in row else row for row in rows]

    def _plans(self, walk, handles, spans):
        spans_B = np.asarray(spans, dtype=np.int64)
        declared = self.decoder.declare_step(walk, spans_B)
        steps = {
            key: carry_step_of(*handles, spans=list(added), carry=walk == "decode", key=key)
            for key, added in declared.items()
        }
        if walk != "cross":
            steps["carry"] = carry_step_of(*handles, spans=spans, carry=walk == "decode")
        return self.world.run(steps)


@pytest.fixture
def served(tmp_path):
    """Opens an engine over a checkpoint folder, in fp32: ``served(folder, "engine.in_flight=2")``.

    All engines are closed when the test ends, and by then nothing may be held.
    """
    engines = []

    def serve(folder, *sets, device=None):
        file = tmp_path / "whisper.yaml"
        file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: fp32}}\n")
        engines.append(Engine.open(file, sets, device=device, offline=True))
        return engines[-1]

    yield serve
    for engine in engines:
        held = engine.stats()["held"]
        engine.close()
        assert all(free == total for free, total in held.values()), held


@pytest.fixture(scope="session")
def transcribe():
    """Drives a plan of an engine: ``transcribe(engine, samples, rate=16000, **options)``.

    Gives the segments and the plan, which is over.
    """

    def drive(engine, samples_T, rate=16000, **options):
        plan = engine.front.transcription(Sound.of(samples_T, rate), **options)
        return followed(engine, plan), plan

    return drive


def followed(engine, plan, most=None):
    """The segments of ``plan``, driven to its end or over ``most`` requests."""
    segments, count = [], 0
    while (most is None or count < most) and (requests := plan.next()):
        count += len(requests)
        for result in engine.run(requests):
            assert result.error is None, result.error
            segments += plan.take(Answered.of(result))
    return segments


@pytest.fixture(scope="session")
def follow():
    """Drives a plan: see :func:`followed`."""
    return followed


@pytest.fixture
def bench():
    """Makes a bench of a checkpoint folder."""
    with torch.inference_mode():
        yield Bench
