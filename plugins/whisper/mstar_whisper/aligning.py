"""Where in its window each token was said: the published alignment of text and sound.

::

    attention of some heads,        over tokens    over time      of heads
    [heads, tokens, positions] ──►  normalised ──► median ──────► mean     match [tokens, positions]
                                                                             │
    first position of each token  ◄── the dearest path through it, ─────────┘
                                      a token down, a position on, or both

Letters: M aligned tokens of a row at most, S positions of a window.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mstar_core.resources.attention import AttentionPlan

TINY = 1e-30
INF = float("inf")


class Alignment:
    """How well the tokens of a step's rows match the positions of their windows.

    It is filled layer by layer and waits for no value: what it takes from the host are bounds.
    """

    def __init__(self, within_T: Tensor, plan: AttentionPlan, num_positions: int) -> None:
        """``within_T``: positions that a token may lie in; 0 for the row's leading tokens, which
        are not aligned."""
        rows, self._most = len(plan.q_lens_B), plan.max_q
        row_T = plan.row_T.long()
        prompt_B = torch.zeros_like(plan.q_lens_B, dtype=torch.int64)
        prompt_B.index_add_(0, row_T, (within_T == 0).long())
        col_T = torch.where(within_T == 0, self._most, plan.col_T - prompt_B[row_T])
        self._cell_T = row_T * (self._most + 1) + col_T.clamp(0, self._most)
        self.tokens_B = plan.q_lens_B - prompt_B
        last_T = (plan.q_starts_B + plan.q_lens_B - 1).long()
        self.positions_B = within_T[last_T].clamp(1, num_positions)
        self._pages_BW = plan.pages_BW.long()
        self.match_BMS = torch.zeros(rows, self._most, num_positions, device=within_T.device)

    def add(
        self, q_TND: Tensor, k_PpGD: Tensor, heads: tuple[int, ...], scale: float, width: int
    ) -> None:
        """Add the ``heads`` of one layer, by its queries and the pool of its keys."""
        rows, most, num_positions = self.match_BMS.shape
        q_TnD = torch.stack([q_TND[:, head] for head in heads], 1).float() * scale
        cells = q_TnD.new_zeros(rows * (most + 1), *q_TnD.shape[1:])
        q_BMnD = cells.index_copy(0, self._cell_T, q_TnD).view(rows, most + 1, *q_TnD.shape[1:])
        for row in range(rows):
            k_SGD = k_PpGD[self._pages_BW[row]].flatten(0, 1)[:num_positions]
            k_nDS = torch.stack([k_SGD[:, head] for head in heads]).float().transpose(1, 2)
            weights_nMS = (q_BMnD[row, :most].transpose(0, 1) @ k_nDS).softmax(-1)
            self.match_BMS[row] += smoothed(
                weights_nMS, self.tokens_B[row], self.positions_B[row], width
            ).sum(0)

    def first_positions(self) -> Tensor:
        """int64 ``[rows, M]``: where each token begins, −1 behind a row's last."""
        return first_positions(-self.match_BMS.double(), self.tokens_B, self.positions_B)


def smoothed(weights_nMS: Tensor, num_tokens: Tensor, num_positions: Tensor, width: int) -> Tensor:
    """Each position's weights normalised over the tokens, then a median over ``width`` positions.

    What lies behind ``num_tokens`` counts for nothing; the sound is mirrored at both its ends.
    """
    most, size = weights_nMS.shape[1:]
    at_S = torch.arange(size, device=weights_nMS.device)
    counts_M1 = (torch.arange(most, device=weights_nMS.device) < num_tokens)[:, None]
    mean_n1S = (weights_nMS * counts_M1).sum(1, keepdim=True) / num_tokens
    centred_nMS = (weights_nMS - mean_n1S) * counts_M1
    deviation_n1S = (centred_nMS.square().sum(1, keepdim=True) / num_tokens).sqrt()
    normal_nMS = centred_nMS / deviation_n1S.clamp_min(TINY)
    last = num_positions - 1
    views = []
    for step in range(-(width // 2), width // 2 + 1):
        from_S = (at_S + step).abs()
        from_S = torch.where(from_S > last, 2 * last - from_S, from_S).clamp_min(0)
        views.append(normal_nMS.index_select(2, from_S))
    return _median(views)


def _median(views: list[Tensor]) -> Tensor:
    """The middle one of an odd number of values, element by element: a sorting network."""
    for turn in range(len(views)):
        for i in range(turn % 2, len(views) - 1, 2):
            low, high = views[i], views[i + 1]
            views[i], views[i + 1] = torch.minimum(low, high), torch.maximum(low, high)
    return views[len(views) // 2]


def first_positions(cost_BMS: Tensor, tokens_B: Tensor, positions_B: Tensor) -> Tensor:
    """The cheapest way from the first token and position to the last: where it meets each token.

    ``cost_BMS`` float64. Of equal ways it takes the one that goes on by a position, as the
    published one does. int64 ``[B, M]``, −1 behind a row's last token.
    """
    rows, most, size = cost_BMS.shape
    at_S = torch.arange(size, device=cost_BMS.device)
    above_BS = cost_BMS.new_full((rows, size), INF)
    entered, slanted = [], []
    for token in range(most):
        cost_BS = cost_BMS[:, token]
        slant_BS = F.pad(above_BS, (1, -1), value=INF if token else 0.0)
        total_BS = cost_BS.cumsum(-1)
        best_BS = torch.minimum(slant_BS, above_BS) - (total_BS - cost_BS)
        reach_BS = total_BS + best_BS.cummin(-1).values
        before_BS = F.pad(reach_BS, (1, -1), value=INF)
        is_slant_BS = (slant_BS < above_BS) & (slant_BS < before_BS)
        is_down_BS = (above_BS < slant_BS) & (above_BS < before_BS)
        entry_BS = torch.where(is_slant_BS | is_down_BS, at_S, 0)
        entered.append(entry_BS.cummax(-1).values)
        slanted.append(is_slant_BS)
        above_BS = reach_BS
    at_B1 = (positions_B - 1)[:, None]
    first_MB = torch.full((most, rows), -1, device=cost_BMS.device)
    for token in reversed(range(most)):
        is_in_B1 = (token < tokens_B)[:, None]
        entry_B1 = entered[token].gather(1, at_B1)
        first_MB[token] = torch.where(is_in_B1, entry_B1, -1)[:, 0]
        on_B1 = (entry_B1 - slanted[token].gather(1, entry_B1).long()).clamp_min(0)
        at_B1 = torch.where(is_in_B1, on_B1, at_B1)
    return first_MB.T
