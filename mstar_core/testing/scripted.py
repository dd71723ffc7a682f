"""A scripted model: the ledger model, in which some requests say what they sample and do.

A request's salt finds its script on the submodule. A request without one is the ledger's own, so
its tokens show whether a neighbour's fault has reached it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Lag
from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.step import Plan
from mstar_core.testing.cores import open_model
from mstar_core.testing.ledger import LedgerModel, LedgerSubmodule

SCRIPTED = "mstar_core.testing.scripted:ScriptedModel"


@frozen
class ScriptedError(Exception):
    """What a script raises in the forward."""

    salt: int
    token: int


@frozen(kw_only=True)
class Script:
    """What the request of one salt does; token numbers count from 0."""

    prompt: int
    """Tokens of its prompt."""
    tokens: Sequence[int] = ()
    """What it samples; past the end, the ledger's own."""
    raise_at: int | None = None
    """The forward that would sample this token raises."""
    nan_at: int | None = None
    """The forward that samples this token reports logits that are not finite, and leaves NaN in
    the request's pages and garbage in its state slot."""
    sleep_s: float = 0.0
    """Every forward that samples for it takes this long."""


class ScriptedSubmodule(LedgerSubmodule):
    """Runs the ledger's forward, then each row's script. It reads on the host: eager alone."""

    def __init__(self, env: NodeEnv) -> None:
        super().__init__(env)
        self.scripts: dict[int, Script] = {}
        """Salt → script."""
        self.steps: list[tuple[str, tuple[tuple[int, int], ...]]] = []
        """Per forward that has run: its walk, and (salt, tokens readable) of each row."""

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        outputs = super().forward(walk, inputs, plans)
        kv: Any = plans["kv"]
        salts, lengths = outputs["salt"].tolist(), kv.kv_lens_B.tolist()
        self.steps.append((walk, tuple(zip(salts, lengths, strict=True))))
        for i, (salt, length) in enumerate(zip(salts, lengths, strict=True)):
            script = self.scripts.get(salt)
            if script is not None and length >= script.prompt:
                self._play(i, script, length - script.prompt, outputs, plans)
        return outputs

    def _play(
        self,
        i: int,
        script: Script,
        token: int,
        outputs: Mapping[str, Tensor],
        plans: Mapping[str, Plan],
    ) -> None:
        """Row ``i`` samples token number ``token`` of ``script``."""
        kv: Any = plans["kv"]
        state: Any = plans["state"]
        time.sleep(script.sleep_s)
        if script.raise_at == token:
            raise ScriptedError(int(outputs["salt"][i]), token)
        if token < len(script.tokens):
            outputs["ids"][i] = script.tokens[token]
        if script.nan_at == token:
            outputs["finite"][i] = False
            self.v_PpGD[kv.pages_BW[i].long()] = torch.nan
            self.state.layer(0)["hash"][state.slots_B[i]] = -1


class ScriptedModel(LedgerModel):
    """The ledger model's node and walks, scripted."""

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        return ScriptedSubmodule(env)


def open_scripted(
    folder: Path,
    scripts: Mapping[int, Script],
    sets: Sequence[str] = (),
    lag: Lag | None = None,
) -> tuple[EngineCore, ScriptedSubmodule]:
    """A warmed core over the scripted model, and its submodule."""
    core, _ = open_model(SCRIPTED, folder, sets, lag)
    submodule = core.nodes["ledger"].submodule
    assert isinstance(submodule, ScriptedSubmodule)
    submodule.scripts.update(scripts)
    return core, submodule
