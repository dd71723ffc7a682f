"""The three nodes of the echo model: nothing but index and copy operations.

The mouth keeps each token in a cell of its pool. The token that follows a stream of L tokens whose
first ``length`` are the prompt is the prompt's ``(L - length) mod (length + 1)``-th, and the end
where there is none. So it depends on what was kept, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mstar_core.echo.faults import KINDS, NO_BYTE, Order, strike
from mstar_core.echo.front import END
from mstar_core.model.base import NodeEnv, NodeSubmodule
from mstar_core.step import Plan


class Ears(NodeSubmodule):
    """Hears that there is sound, or that faults may be ordered; plain text passes it by."""

    def __init__(self, faults: bool) -> None:
        super().__init__()
        self.faults = faults

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        if self.faults:
            for kind, *_ in inputs["heard"].tolist():
                if KINDS[kind] == "hear":
                    strike("hear", 0, 0)
        return {}


class Mouth(NodeSubmodule):
    """Reads the prompt, then says it, token by token."""

    def __init__(self, env: NodeEnv, faults: bool) -> None:
        super().__init__()
        self.faults = faults
        cells_PpGD, _ = env.resource("kv").layer(0)
        self.page_tokens = cells_PpGD.shape[1]
        self.cells = cells_PpGD.view(-1)

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        kv: Any = plans["kv"]
        ids_T, length_B = inputs["ids"], inputs["length"]
        self.cells.index_copy_(0, kv.write_T, ids_T.to(self.cells.dtype))
        if walk == "read":
            last_B = (kv.kv_lens_B - kv.before_B).cumsum(0).sub_(1).clamp_(min=0)
            length_B = length_B.take(last_B)
        number_B = kv.kv_lens_B - length_B
        at_B = number_B.remainder(length_B + 1)
        page_B = at_B.floor_divide(self.page_tokens).clamp_(max=kv.W - 1)
        cell_B = at_B.remainder(self.page_tokens)
        first_B = kv.pages_BW.gather(1, page_B.unsqueeze(1)).squeeze(1)
        text_B = self.cells.take(cell_B.add_(first_B, alpha=self.page_tokens)).long()
        outputs = {
            "ids": torch.where(at_B == length_B, END, text_B),
            "length": length_B,
            "said": ids_T,
        }
        if self.faults:
            order_B = inputs["order"] if walk == "say" else inputs["order"][last_B]
            outputs |= {"order": order_B, "finite": torch.ones_like(text_B, dtype=torch.bool)}
            outputs["said"] = torch.stack([ids_T, torch.zeros_like(ids_T)], -1)
            self._play(order_B, number_B, outputs)
        return outputs

    def _play(self, order_B: Tensor, number_B: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """What the rows order at the tokens that this step samples."""
        rows = zip(order_B.tolist(), number_B.tolist(), strict=True)
        for i, ((kind, token, micros), number) in enumerate(rows):
            order = Order(KINDS[kind], token, micros)
            if number < 0 or not order.applies(number):
                continue
            if order.kind == "nan":
                outputs["finite"][i] = False
            elif order.kind == "garbage":
                outputs["ids"][i] = NO_BYTE if number % 2 else 255
            elif order.kind == "voice":
                if i < len(outputs["said"]):
                    outputs["said"][i, 1] = 1
            elif order.kind not in ("hear", "decode"):
                strike(order.kind, number, order.micros)


class Voice(NodeSubmodule):
    """Takes what the mouth has said, as it is said."""

    def __init__(self, faults: bool) -> None:
        super().__init__()
        self.faults = faults

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        if self.faults and inputs["said"][:, 1].any():
            strike("voice", 0, 0)
        return {}
