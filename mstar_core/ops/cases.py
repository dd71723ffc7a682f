"""What the cases of several operations share: how rows are packed, and values by name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True, eq=False)
class Packing:
    """Rows laid out as a step lays them out, padding included. Index tensors are int32."""

    q_starts_B: Tensor
    q_lens_B: Tensor
    row_T: Tensor
    col_T: Tensor
    max_q: int
    decode: int
    num_lead_1: Tensor | None
    lead_rows: int

    @classmethod
    def of(
        cls,
        spans: Sequence[int],
        pad_rows: int = 0,
        pad_tokens: int = 0,
        decode: int = 0,
        lead: int = 0,
    ) -> Packing:
        """Real rows first; the first padding row owns the unused tokens, the others none.

        With ``decode`` every row, padding too, is one token. With ``lead`` the step is split: up to
        that many leading one-token rows are the lead.
        """
        lens = [*spans, *_padding(pad_rows, pad_tokens, decode)]
        rows = [row for row, n in enumerate(lens) for _ in range(n)]
        cols = [col for n in lens for col in range(n)]
        starts = [sum(lens[:row]) for row in range(len(lens))]
        padded = pad_rows > 0 or pad_tokens > 0
        return cls(
            q_starts_B=ints(starts),
            q_lens_B=ints(lens),
            row_T=ints(rows),
            col_T=ints(cols),
            max_q=1 if decode else (len(rows) if padded else max(lens)),
            decode=decode,
            num_lead_1=ints([min(lead, _leading(spans))]) if lead else None,
            lead_rows=lead,
        )


def _leading(spans: Sequence[int]) -> int:
    return next((row for row, n in enumerate(spans) if n != 1), len(spans))


def _padding(pad_rows: int, pad_tokens: int, decode: int) -> list[int]:
    if decode:
        return [1] * pad_rows
    return [pad_tokens, *[0] * (pad_rows - 1)] if pad_rows else []


def ints(values: Sequence[int], dtype: torch.dtype = torch.int32) -> Tensor:
    """An index tensor."""
    return torch.tensor(values, dtype=dtype)


def seeded(*names: object) -> torch.Generator:
    """A generator that depends on ``names`` alone."""
    return torch.Generator().manual_seed(zlib.crc32(repr(names).encode()))


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """fp32 values of a normal distribution."""
    return torch.randn(*shape, generator=generator)
