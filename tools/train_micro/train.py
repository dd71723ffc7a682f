"""The training loop: conversations in, a checkpoint folder out."""

from __future__ import annotations

import time

import numpy as np
import torch
from attrs import frozen
from tokenizers import Tokenizer
from torch.nn import functional as F

from tools.train_micro.batches import EVERY, Plan, stream
from tools.train_micro.model import MicroModel, half
from tools.train_micro.optimiser import Optimiser

WARMUP, COOLDOWN = 0.02, 0.5
"""Shares of the run in which the learning rate rises, and in which it falls to nothing."""

WARM_STEPS = 3
"""Steps of each shape before it is captured."""


@frozen(kw_only=True)
class Settings:
    """Of one run. The corpus follows ``steps``; the rate also ends after ``seconds``."""

    steps: int = 6900
    tokens: int = EVERY
    seconds: float = 250.0
    seed: int = 9
    matrix_rate: float = 0.02
    rate: float = 0.004
    processes: int = 12
    told_every: int = 100
    compiled: bool = True
    device: str = "cuda"


def train(settings: Settings, tokenizer: Tokenizer) -> MicroModel:
    """The trained model, with nothing compiled."""
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device(settings.device)
    model = MicroModel().to(device)
    if settings.compiled:
        model.compile_parts()
    run = Run(model, settings)
    plan = Plan(seed=settings.seed, steps=settings.steps, tokens=settings.tokens)
    begin, heard = time.perf_counter(), Losses()
    for step, (ids, learnt) in enumerate(stream(plan, tokenizer, settings.processes)):
        passed = time.perf_counter() - begin
        progress = max(step / settings.steps, passed / settings.seconds)
        heard.hear(ids.shape[1], run.step(ids, learnt, share_of_rate(progress)))
        if step % settings.told_every == 0 or step + 1 == settings.steps:
            print(f"{step:6d} {passed:6.1f} s  {heard.told()}", flush=True)
        if progress >= 1:
            break
    trained = MicroModel().to(device)
    trained.load_state_dict(model.state_dict())
    return trained


class Run:
    """A model in training. On a GPU a step is captured for each shape of batch, and replayed."""

    def __init__(self, model: MicroModel, settings: Settings) -> None:
        self._model = model
        self._share = torch.zeros((), device=settings.device)
        self._optimiser = Optimiser(model, settings.matrix_rate, settings.rate, self._share)
        self._graphs: dict[tuple[int, ...], Captured] = {}
        self._is_cuda = settings.device == "cuda"
        if self._is_cuda:
            torch.cuda.set_stream(torch.cuda.Stream())
            self._pool = torch.cuda.graph_pool_handle()

    def step(self, ids: np.ndarray, learnt: np.ndarray, share: float) -> torch.Tensor:
        """Learn from one batch; its loss."""
        self._share.fill_(share)
        targets = np.where(learnt, ids, -1)
        batch = [torch.from_numpy(x.astype(np.int64)) for x in (ids, targets)]
        if not self._is_cuda:
            return self._learn(*batch).clone()
        captured = self._graphs.setdefault(ids.shape, Captured())
        captured.take(batch)
        if captured.seen <= WARM_STEPS:
            return self._learn(*captured.inputs).clone()
        if captured.loss is None:
            with torch.cuda.graph(captured.graph, self._pool, torch.cuda.current_stream()):
                captured.loss = self._learn(*captured.inputs)
        captured.graph.replay()
        return captured.loss.clone()

    def _learn(self, ids_BL: torch.Tensor, targets_BL: torch.Tensor) -> torch.Tensor:
        next_BL = F.pad(targets_BL[:, 1:], (0, 1), value=-1)
        with half(ids_BL.device):
            loss = self._model.loss(self._model.stream(ids_BL), next_BL.flatten())
        loss.backward()
        self._optimiser.step()
        return loss.detach()


class Captured:
    """One shape of batch: where its inputs lie, and its step once it is captured."""

    def __init__(self) -> None:
        self.inputs: list[torch.Tensor] = []
        self.graph = torch.cuda.CUDAGraph()
        self.loss: torch.Tensor | None = None
        self.seen = 0

    def take(self, batch: list[torch.Tensor]) -> None:
        """Put ``batch`` where the step reads it."""
        self.seen += 1
        self.inputs = self.inputs or [torch.empty_like(x, device="cuda") for x in batch]
        for held, given in zip(self.inputs, batch, strict=True):
            held.copy_(given.pin_memory(), non_blocking=True)


def share_of_rate(progress: float) -> float:
    """Of the learning rate: up, level, and down to nothing."""
    return max(0.0, min(progress / WARMUP + 0.01, 1.0, (1 - progress) / COOLDOWN))


class Losses:
    """Running means by length of row, read only when they are told."""

    def __init__(self) -> None:
        self._heard: dict[int, list[torch.Tensor]] = {}

    def hear(self, length: int, loss: torch.Tensor) -> None:
        """Take in one batch's loss."""
        self._heard.setdefault(length, []).append(loss)

    def told(self) -> str:
        """The means since it was told last."""
        heard = sorted(self._heard.items())
        parts = [f"{n}: {torch.stack(x).mean():.4f} ({len(x)})" for n, x in heard]
        self._heard = {}
        return "  ".join(parts)
