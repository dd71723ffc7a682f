"""The training loop: conversations in, a checkpoint folder out."""

from __future__ import annotations

import time

import numpy as np
import torch
from attrs import frozen
from tokenizers import Tokenizer
from torch.nn import functional as F

from tools.train_micro.batches import Plan, stream
from tools.train_micro.model import MicroModel, half
from tools.train_micro.optimiser import Optimiser

WARMUP, COOLDOWN = 0.02, 0.5
"""Shares of the run in which the learning rate rises, and in which it falls to nothing."""


@frozen(kw_only=True)
class Settings:
    """Of one run. The corpus follows ``steps``; the rate also ends after ``seconds``."""

    steps: int = 9000
    tokens: int = 65_536
    seconds: float = 400.0
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
    optimiser = Optimiser(model, settings.matrix_rate, settings.rate)
    plan = Plan(seed=settings.seed, steps=settings.steps, tokens=settings.tokens)
    begin, heard = time.perf_counter(), Losses()
    for step, (ids, learnt) in enumerate(stream(plan, tokenizer, settings.processes)):
        loss = answer_loss(model, moved(ids, device).long(), moved(learnt, device))
        loss.backward()
        passed = time.perf_counter() - begin
        progress = max(step / settings.steps, passed / settings.seconds)
        optimiser.step(share_of_rate(progress))
        heard.hear(ids.shape[1], loss.detach())
        if step % settings.told_every == 0 or step + 1 == settings.steps:
            print(f"{step:6d} {passed:6.1f} s  {heard.told()}", flush=True)
        if progress >= 1:
            break
    trained = MicroModel().to(device)
    trained.load_state_dict(model.state_dict())
    return trained


def moved(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """``array`` on ``device``, copied while the device works."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def answer_loss(model: MicroModel, ids_BL: torch.Tensor, learnt_BL: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the tokens that are to be learnt."""
    with half(ids_BL.device):
        logits = model(ids_BL)
    targets = torch.where(learnt_BL[:, 1:], ids_BL[:, 1:], -100)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten())


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
