"""Checkpoint folders that the tests of this plugin read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from mstar_qwen35.model import Qwen35

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.device import CpuDevice
from mstar_core.engine.specs import in_order, with_carry
from mstar_core.fixed import FixedBuffers
from mstar_core.model.base import NodeEnv
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.load import load_weights
from mstar_core.ops.backend import BindRequest
from mstar_core.plugins.builtin import core_registries
from mstar_core.resources.base import BuildEnv, Opening
from mstar_core.resources.carry import CarryStep
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.step import stage_plan, staged_arrays

SHARED = Path(__file__).parents[4] / "shared" / "models"
TINY = Path(__file__).parents[1] / "mstar_qwen35" / "tiny"
ENGINE = (
    "model.dtype=fp32",
    "device=cpu",
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=512",
    "engine.capture.rows=[1, 8]",
    "engine.capture.require=true",
    "nodes.text.resources.kv.page_tokens=16",
)


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip("the shared reference folder is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def slow(shared):
    """The golden checkpoint whose states decay slowly."""
    return shared / "golden" / "qwen3_5-tiny-untied-8l-slow"


@pytest.fixture(scope="session")
def slow_cases(slow):
    """Its prompts with transformers' tokens."""
    return json.loads((slow / "golden.json").read_text())["cases"]


@pytest.fixture(scope="session")
def open_engine():
    """``open_engine(folder, *sets, lag)``: an engine of eight rows over a golden checkpoint."""

    def opened(folder, *sets, lag=None):
        device = CpuDevice(lag=lag) if lag else None
        return Engine.open("qwen35_tiny", (f"model.path={folder}", *ENGINE, *sets), device=device)

    return opened


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def folder(tmp_path):
    """``folder(changes)``: the tiny checkpoint's configuration with changes, in a new folder.

    A change is a dotted path to a value; None removes the key.
    """

    def write(changes=None, text_only=False):
        config = json.loads((TINY / "config.json").read_text())
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            at = config
            for name in parents:
                at = at[name]
            if value is None:
                at.pop(last, None)
            else:
                at[last] = value
        (tmp_path / "config.json").write_text(
            json.dumps(config["text_config"] if text_only else config)
        )
        return tmp_path

    return write


@pytest.fixture(scope="session")
def chat_folder(shared, tmp_path_factory):
    """A golden checkpoint's configuration with the shared tokenizer and template."""
    folder = tmp_path_factory.mktemp("chat")
    golden = shared / "golden" / "qwen3_5-tiny-untied-8l"
    for file in (*golden.glob("*config.json"), *(shared / "chat").glob("tokenizer*.json")):
        shutil.copy(file, folder)
    return folder


class Node:
    """The node ``text`` without an engine: real resources and weights, one step at a time."""

    def __init__(self, folder, device="cpu", max_rows=8, dtype=torch.float32, load=True):
        self.model = Qwen35.open(folder, None)
        (node,) = self.model.nodes()
        self.table, self.fences = RequestTable(max_rows), Fences()
        _, kinds, backends = core_registries()
        self.device = torch.device(device)

        def bind(operation, geometry):
            request = BindRequest(
                operation=operation, device="cpu", dtype=dtype, geometry=dict(geometry)
            )
            (offer,) = backends.candidates(operation)
            return offer.load().bind(request)

        self.resources = {}
        buffers = FixedBuffers(self.device)
        for spec in in_order(node.name, with_carry(node)):
            env = BuildEnv(
                node=node.name,
                device=self.device,
                dtype=dtype,
                buffers=buffers,
                table=self.table,
                fences=self.fences,
                max_rows=max_rows,
                token_budget=512,
                max_context=512,
                config={"page_tokens": 16} if spec.kind == "kv" else {},
                built=self.resources,
                bind=bind,
            )
            self.resources[spec.key] = kinds.resolve(spec.kind).build(spec, env)
        made = NodeEnv(
            node="text", device=self.device, dtype=dtype, resources=self.resources, bind=bind
        )
        self.submodule = self.model.build_submodule("text", made)
        if load:
            maps = {"text": self.model.weight_map("text")}
            load_weights({"text": self.submodule}, maps, open_checkpoint(folder), device)

    def open(self, prompt, tokens=512):
        """A handle with all that the request holds for life."""
        opening = Opening(
            tokens=dict.fromkeys(self.resources, tokens),
            settings={"sampler": SamplingSettings()},
            prompt_ids=np.asarray(prompt, dtype=np.int64),
        )
        handle = self.table.open()
        for resource in self.resources.values():
            resource.check(opening)
            assert resource.can_open(opening) is None
            resource.open(handle, opening)
        return handle

    def close(self, handle):
        for resource in self.resources.values():
            resource.close(handle, self.fences.retired)
        self.table.close(handle)
        self.table.recycle(handle)

    def step(self, walk, rows):
        """One eager step over ``rows`` of (handle, ids); its outputs, logits as ``logits``."""
        handles_B = np.array([handle for handle, _ in rows])
        spans_B = np.array([len(ids) for _, ids in rows])
        declared = {"handles_B": handles_B, "spans_B": spans_B}
        plans, parts = {}, {}
        for key in self.resources:
            samples = {"carry_B": np.zeros(len(rows), bool), "samples_B": np.ones(len(rows), bool)}
            parts[key] = CarryStep(key=key, **declared, **samples)
        for key, resource in self.resources.items():
            assert resource.room(parts[key]) is None
        for key, resource in self.resources.items():
            resource.take(parts[key])
        for key, resource in self.resources.items():
            plans[key] = resource.plan(parts[key], None, plans)
        staged = {
            key: stage_plan(plan, {n: torch.from_numpy(a) for n, a in staged_arrays(plan).items()})
            for key, plan in plans.items()
        }
        logits = []
        hook = self.submodule.head.register_forward_hook(lambda m, i, out: logits.append(out))
        ids_T = torch.tensor([one for _, ids in rows for one in ids])
        outputs = self.submodule(walk, {"ids": ids_T}, staged)
        hook.remove()
        for key, resource in self.resources.items():
            resource.commit(parts[key])
        return {**outputs, "logits": logits[0]}

    def greedy(self, prompts, steps, chunk=10**6):
        """The greedy tokens of ``prompts`` run together, prompts cut to ``chunk`` tokens."""
        handles = [self.open(prompt) for prompt in prompts]
        tokens = [[] for _ in prompts]
        for start in range(0, max(map(len, prompts)), chunk):
            rows = [
                (i, (h, p[start : start + chunk]))
                for i, (h, p) in enumerate(zip(handles, prompts, strict=True))
                if start < len(p)
            ]
            ids = self.step("prefill", [row for _, row in rows])["ids"].tolist()
            for (i, _), one in zip(rows, ids, strict=True):
                tokens[i] = [one]
        for _ in range(steps - 1):
            rows = [(h, t[-1:]) for h, t in zip(handles, tokens, strict=True)]
            for t, one in zip(tokens, self.step("decode", rows)["ids"].tolist(), strict=True):
                t.append(one)
        for handle in handles:
            self.close(handle)
        return tokens


@pytest.fixture
def node():
    return Node
