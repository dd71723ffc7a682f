"""The ledger model: exact, fast, and wrong at once when anything is stale, misplaced or shared.

A KV cell holds (token, position, salt) of its request; the recurrent state is a rolling hash in
int64; the next token is a hash of every readable cell, the state and the position. So a wrong
page, slot, length, order or a stale state changes a token, with no tolerance. :func:`next_token` is
the definition, over plain lists.

It is built from the core's own resources: ``kv`` (whose float32 cells hold integers exactly),
``state`` and ``carry``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mstar_core.model.base import Model, NodeEnv, NodeSubmodule
from mstar_core.model.front import Front, Request
from mstar_core.model.walks import Input, Loop, Node, Once, Output, Walk
from mstar_core.model.walks import Sequence as Parts
from mstar_core.model.weights import WeightMap
from mstar_core.ops.lead import in_lead, joined
from mstar_core.resources.base import ResourceSpec
from mstar_core.step import Plan

VOCAB = 97
MAX_CONTEXT = 256
FACTOR = 6364136223846793005
STEP = 1442695040888963407
_WORD = 1 << 64


def _signed(value: int) -> int:
    value %= _WORD
    return value - _WORD if value >= _WORD >> 1 else value


def mix(token: int, position: int, salt: int) -> int:
    """What one cell adds, as a signed 64-bit integer."""
    return _signed((token * 1000003 + position * 8191 + salt * 131071 + 7) * FACTOR + STEP)


def next_token(tokens: Sequence[int], salt: int) -> int:
    """The definition: the token that follows ``tokens`` in a request with this ``salt``."""
    cells = [mix(t, i, salt) for i, t in enumerate(tokens)]
    state = 0
    for cell in cells:
        state = _signed(state * FACTOR + cell)
    seen = _signed(sum(cell * (2 * i + 1) for i, cell in enumerate(cells)))
    return _signed(state * 31 + seen * 17 + len(tokens)) % _WORD // 65536 % VOCAB


def continuation(prompt: Sequence[int], salt: int, count: int) -> list[int]:
    """The ``count`` tokens that follow ``prompt``."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens, salt))
    return tokens[len(prompt) :]


def ledger_request(prompt: Sequence[int], salt: int, max_new_tokens: int, **more: Any) -> Request:
    """A request of the ledger model; every request of a test has a salt of its own."""
    ids = np.asarray(prompt, np.int64)
    arrays = {"ids": ids, "salt": np.full(len(ids), salt, np.int64)}
    return Request(arrays=arrays, max_new_tokens=max_new_tokens, **more)


class LedgerSubmodule(NodeSubmodule):
    """The forward, in torch: static shapes, no host reads, so that it captures."""

    def __init__(self, env: NodeEnv) -> None:
        super().__init__()
        self.k_PpGD, self.v_PpGD = env.resource("kv").layer(0)
        self.write = env.resource("kv").writer(0)
        self.state = env.resource("state")
        powers = [1]
        for _ in range(2 * MAX_CONTEXT):
            powers.append(_signed(powers[-1] * FACTOR))
        self.register_buffer("powers", torch.tensor(powers, device=env.device), persistent=False)

    def resident_walks(self) -> frozenset[str]:
        return frozenset({"decode"})

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        kv: Any = plans["kv"]
        state: Any = plans["state"]
        rows: Any = plans["rows"]
        ids_T, salt_T = inputs["ids"], inputs["salt"]
        before_T = kv.before_B.long()[rows.row_T.long()]
        at_T = before_T + rows.col_T
        cells_TGD = torch.stack([ids_T, at_T, salt_T, torch.ones_like(ids_T)], -1).float()[:, None]
        self.write(cells_TGD, cells_TGD, kv)
        seen_B = self._seen(kv)
        hash_B = self._roll(_mix(ids_T, at_T, salt_T), rows, state)
        last_B = (rows.q_starts_B + rows.q_lens_B - 1).clamp(min=0).long()
        mixed_B = hash_B * 31 + seen_B * 17 + kv.kv_lens_B.long()
        return {
            "ids": (mixed_B.bitwise_right_shift(16) & ((1 << 48) - 1)) % VOCAB,
            "salt": salt_T[last_B],
            "finite": torch.ones_like(hash_B, dtype=torch.bool),
        }

    def _seen(self, kv: Any) -> Tensor:
        """The weighted sum over every readable cell of each row, read back from the pages."""
        cells = self.v_PpGD[kv.pages_BW.long()].flatten(1, 2)[:, :, 0]
        index = torch.arange(cells.shape[1], device=cells.device)
        readable = index[None] < kv.kv_lens_B[:, None]
        cells = torch.where(readable[..., None], cells, 0).long()
        each = _mix(cells[..., 0], cells[..., 1], cells[..., 2]) * cells[..., 3]
        return (each * (2 * index + 1)).sum(1)

    def _roll(self, mixed_T: Tensor, rows: Any, state: Any) -> Tensor:
        """Each row's rolling hash over its tokens, read from and kept in its state slot."""
        pool_S = self.state.layer(0)["hash"][:, 0]
        old_B = torch.where(state.fresh_B, 0, pool_S[state.slots_B])
        left_T = rows.q_lens_B[rows.row_T.long()] - 1 - rows.col_T
        powers: Tensor = self.get_buffer("powers")
        adds_B = torch.zeros_like(old_B).index_add_(
            0, rows.row_T.long(), mixed_T * powers[left_T.clamp(0).long()]
        )
        if rows.num_lead_1 is not None:  # the lead in place: row i owns token i
            lead_L = in_lead(rows.num_lead_1, rows.lead_rows)
            adds_B = joined(lead_L, mixed_T[: rows.lead_rows], adds_B)
        new_B = old_B * powers[rows.q_lens_B.long()] + adds_B
        pool_S.index_copy_(0, state.slots_B, new_B)
        return new_B


def _mix(token: Tensor, position: Tensor, salt: Tensor) -> Tensor:
    return (token * 1000003 + position * 8191 + salt * 131071 + 7) * FACTOR + STEP


class LedgerFront(Front):
    """Ids as text: the numbers, with blanks between them."""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def text_request(self, prompt: str, **options: Any) -> Request:
        return ledger_request([int(word) % VOCAB for word in prompt.split()], 1, 8, **options)


class LedgerModel(Model):
    """One node, ``ledger``, with the walks ``prefill`` and ``decode``, and ``mixed`` of both."""

    @classmethod
    def open(cls, folder: Path, options: Any) -> Self:
        return cls()

    def nodes(self) -> tuple[Node, ...]:
        inputs = (Input(name="ids", below=VOCAB, loops=True), Input(name="salt", loops=True))
        outputs = (
            Output(name="ids", read=True, loops_to="ids"),
            Output(name="salt", read=True, loops_to="salt"),
            Output(name="finite", dtype="bool", read=True),
        )
        shared: dict[str, Any] = {
            "node": "ledger",
            "inputs": inputs,
            "outputs": outputs,
            "samples": True,
        }
        walks = (
            Walk(name="prefill", feed="prompt", chunkable=True, **shared),
            Walk(name="decode", feed="loop", **shared),
            Walk(name="mixed", feed="rows", combines=("decode", "prefill"), **shared),
        )
        kv = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 4}
        resources = (
            ResourceSpec(key="kv", kind="kv", options=kv),
            ResourceSpec(
                key="state",
                kind="state",
                options={"num_layers": 1, "blocks": {"hash": ((1,), torch.int64)}},
            ),
            ResourceSpec(
                key="rows",
                kind="attention",
                options={"num_heads": 1, "num_kv_heads": 1, "head_dim": 4},
                depends_on={"kv": "kv"},
            ),
        )
        return (Node(name="ledger", walks=walks, resources=resources),)

    def graph(self) -> Parts:
        return Parts((Once("prefill"), Loop("decode")))

    @property
    def max_context(self) -> int:
        return MAX_CONTEXT

    def default_dtype(self) -> torch.dtype:
        return torch.float32

    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        return LedgerSubmodule(env)

    def weight_map(self, node: str) -> WeightMap:
        return WeightMap()

    def run_again(
        self, arrays: Mapping[str, np.ndarray], tokens: Sequence[int]
    ) -> Mapping[str, np.ndarray]:
        ids = np.concatenate([arrays["ids"], np.asarray(tokens, np.int64)])
        return {"ids": ids, "salt": np.full(len(ids), arrays["salt"][0])}

    def front(self) -> Front:
        return LedgerFront()
