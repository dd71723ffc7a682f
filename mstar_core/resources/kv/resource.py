"""Paged keys and values: memory in pages, a block table per request.

::

    pages of a request   [7] [3] [9]            block table row   7 3 9 0 0 ...
    tokens               0-63 64-127 128-191    length 150: the next goes to page 9, place 22
    page 0               the sink: padding writes there, and nobody reads it

``open`` takes the pages of the first steps, or promises those of the request's longest stream
without taking them; ``take`` takes a page when a stream crosses into it; ``close`` gives all back
behind the fence. Where pages are not promised, a request is let in only if one more page is left
for each that grows already: so it is not the next to yield.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from attrs import define
from torch import Tensor

from mstar_core.errors import Refusal, RequestError, Words
from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.cost import RowCost
from mstar_core.resources.kv.config import KVConfig, KVOptions
from mstar_core.resources.kv.placing import placing_for
from mstar_core.resources.kv.plan import KVPlan
from mstar_core.resources.kv.pool import PagePool, geometry
from mstar_core.resources.kv.table import PageTable
from mstar_core.resources.packing import leading_rows, positions
from mstar_core.resources.resident import Column, ResidentRows
from mstar_core.resources.shared import Prefix
from mstar_core.step import Lease, Plan, ResourceStep, Shortage

Writer = Callable[[Tensor, Tensor, KVPlan], None]


@define(kw_only=True, eq=False)
class KVResource(Resource):
    """One paged pool of one node. A row's span is the tokens that it appends; 0 reads only.

    ``opening.settings["prefix"]["salt"]``: a text; requests share pages with those of equal salt.
    """

    kind: ClassVar[str] = "kv"
    request_settings: ClassVar[tuple[str, ...]] = ("prefix",)
    Options: ClassVar[type] = KVOptions
    Config: ClassVar[type] = KVConfig
    sized_by: ClassVar[tuple[str, ...]] = (
        "engine.kv_memory",
        "engine.max_rows",
        "engine.max_context",
    )
    resident_adds: ClassVar[tuple[int, ...]] = (0, 1)

    key: str
    options: KVOptions
    max_tokens: int
    pool: PagePool
    table: PageTable
    write: Callable[..., None]
    """``write(k_TGD, v_TGD, k_PpGD, v_PpGD, write_T)`` of the bound backend."""

    @classmethod
    def build(cls, spec: ResourceSpec, env: BuildEnv) -> KVResource:
        sizes = geometry(spec, env)
        pool = PagePool.claim(spec.key, sizes, env)
        width = min(sizes.pages_per_request, pool.num_pages - 1)
        table = PageTable(env.table, env.fences, pool.num_pages, sizes.page_tokens, width)
        heads = sizes.options.num_kv_heads
        request = {
            "num_heads": heads,
            "num_kv_heads": heads,
            "head_dim": sizes.options.head_dim,
            "page_tokens": sizes.page_tokens,
        }
        return cls(
            key=spec.key,
            options=sizes.options,
            max_tokens=sizes.max_tokens,
            pool=pool,
            table=table,
            write=env.bind("paged_attention", request).write,
        )

    @classmethod
    def pool_bytes(cls, spec: ResourceSpec, env: BuildEnv) -> int:
        return geometry(spec, env).pool_bytes

    @property
    def page_tokens(self) -> int:
        """Tokens per page."""
        return self.table.page_tokens

    @property
    def table_tokens(self) -> int:
        """Tokens that the widest block table holds in a row: that of a captured step."""
        return self.table.width * self.table.page_tokens

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, ``[P, page_tokens, G, D]`` each."""
        return self.pool.k_LPpGD[index], self.pool.v_LPpGD[index]

    def writer(self, index: int) -> Writer:
        """Writes one layer's ``k_TGD, v_TGD`` where the plan says, without attending."""
        k_PpGD, v_PpGD = self.layer(index)

        def write(k_TGD: Tensor, v_TGD: Tensor, plan: KVPlan) -> None:
            self.write(k_TGD, v_TGD, k_PpGD, v_PpGD, plan.write_T)

        return write

    def check(self, opening: Opening) -> None:
        given = opening.settings.get("prefix", {"salt": ""})
        if (
            not isinstance(given, Mapping)
            or not isinstance(given.get("salt"), str)
            or len(given) > 1
        ):
            raise RequestError(
                where="settings.prefix",
                got=given,
                want="a mapping with nothing but a salt, a text",
                fix="write for example {'salt': 'tenant 7'}, or leave it out",
            )
        tokens = opening.tokens.get(self.key, 0)
        limit = min(self.max_tokens, self.table.pool.num_ids * self.page_tokens)
        if tokens > limit:
            raise RequestError(
                where=f"resource {self.key}",
                got=Words(f"a request of up to {tokens} tokens"),
                want=f"at most {limit} tokens",
                fix="send a shorter prompt, or ask for fewer new tokens",
            )

    def can_open(self, opening: Opening) -> Shortage | None:
        life, first = self._asked(opening)
        if first is None:
            return self._shortage(life, self.table.pool.num_free - self.table.num_owed, 0)
        return self._shortage(first, self._free_to_grow(), 0)

    def open(self, handle: int, opening: Opening) -> None:
        self.table.admit(handle, *self._asked(opening))

    def room(self, step: ResourceStep) -> Shortage | None:
        missing_B = self.table.missing(step.handles_B, step.spans_B)
        free = self.table.pool.num_free
        return self._shortage(int(missing_B.sum()), free, leading_rows(missing_B, free))

    def quiet_tokens(self, handles_B: np.ndarray) -> np.ndarray:
        room_B = self.table.num_held[handles_B] * self.page_tokens
        left_B: np.ndarray = room_B - self.table.length[handles_B]
        return left_B

    def take(self, step: ResourceStep) -> None:
        missing_B = self.table.missing(step.handles_B, step.spans_B)
        self.table.grow(step.handles_B, missing_B)

    def plan(self, step: ResourceStep, lease: Lease | None, upstream: Mapping[str, Plan]) -> KVPlan:
        n, before_B = step.num_rows, self.table.length[step.handles_B]
        rows, tokens, width = n, step.num_tokens, self._width(step.handles_B)
        if lease is not None:
            rows, tokens, width = lease.bucket.rows, lease.bucket.tokens, self.table.width
        pages_BW = np.zeros((rows, width), dtype=np.int32)
        pages_BW[:n] = self.table.pages[step.handles_B, :width]
        lens_2B = np.zeros((2, rows), dtype=np.int32)
        lens_2B[0, :n] = before_B
        lens_2B[1, :n] = before_B + step.spans_B
        write_T = np.zeros(tokens, dtype=np.int64)
        at_T = positions(before_B, step.spans_B)
        nth_T = at_T // self.page_tokens
        page_T = self.table.pages[np.repeat(step.handles_B, step.spans_B), nth_T]
        write_T[: len(at_T)] = at_T + (page_T - nth_T) * self.page_tokens
        return KVPlan(
            pages_BW=pages_BW, before_B=lens_2B[0], kv_lens_B=lens_2B[1], write_T=write_T, W=width
        )

    def resident_refusal(self, walk: str) -> Refusal | None:
        return None

    def resident_columns(self) -> tuple[Column, ...]:
        return (
            Column(name="length", host=self.table.length, advances=True),
            Column(name="pages", host=self.table.pages, held=self.table.num_held),
        )

    def resident_plan(
        self, cells: Mapping[str, Tensor], rows: ResidentRows, upstream: Mapping[str, Plan]
    ) -> KVPlan:
        before_B, pages_BW = cells["length"], cells["pages"]
        if rows.span:
            place = placing_for(before_B.device)
            placed = place(before_B, pages_BW, rows.real_B, self.page_tokens)
            table_BW, held_B, after_B, write_T = placed
        else:  # a pool that is full has no next place
            table_BW, held_B = pages_BW.int(), before_B.int()
            after_B, write_T = held_B, torch.zeros_like(before_B)
        return KVPlan(
            pages_BW=table_BW,
            before_B=held_B,
            kv_lens_B=after_B,
            write_T=write_T,
            W=self.table.width,
        )

    def commit(self, step: ResourceStep) -> None:
        self.table.length[step.handles_B] += step.spans_B

    def close(self, handle: int, fence: int) -> None:
        self.table.release(handle, fence)
        self.table.num_published[handle] = 0

    def pieces(self, handle: int) -> Sequence[Tensor]:
        """Keys and values of every page, ``[L, page_tokens, G, D]`` each."""
        held = self.table.pages[handle, : self.table.pages_for(int(self.table.length[handle]))]
        return [pool[:, page] for page in held.tolist() for pool in self.pool.both]

    def offload(self, handle: int, fence: int) -> None:
        self.table.leave(handle, fence)

    def can_reload(self, handle: int) -> Shortage | None:
        promised = int(self.table.num_away[handle])
        if promised:
            return self._shortage(promised, self.table.pool.num_free - self.table.num_owed, 0)
        return self._shortage(self.table.back(handle), self._free_to_grow(), 0)

    def reload(self, handle: int) -> None:
        self.table.come_back(handle)

    def fork(self, parent: int, child: int) -> list[tuple[int, int]]:
        """See :meth:`PageTable.fork`."""
        return self.table.fork(parent, child)

    @property
    def grain(self) -> int:
        """A full page."""
        return self.page_tokens

    @property
    def cuts(self) -> bool:
        """Pages of any chunk can be shared."""
        return False

    def reuse_refusal(self) -> Refusal | None:
        return None

    def begin_sharing(self) -> None:
        """Nothing: what is kept lies in the line of free pages."""

    def match(self, prefix: Prefix, most: int) -> Sequence[int]:
        """Every full page of the longest beginning that is kept."""
        page, found = self.page_tokens, 0
        while found + page <= most and self.table.kept.find(prefix.key(found + page)) is not None:
            found += page
        return range(page, found + 1, page)

    def adopt(self, handle: int, prefix: Prefix, boundary: int) -> None:
        ends = range(self.page_tokens, boundary + 1, self.page_tokens)
        pages = [self.table.kept.find(prefix.key(end)) for end in ends]
        self.table.adopt(handle, np.array(pages, dtype=np.int64))

    def publish(self, handle: int, prefix: Prefix, length: int) -> None:
        self.table.publish(handle, prefix, length)

    def sharing(self) -> Mapping[str, int]:
        kept = self.table.kept
        return {"cached pages": len(kept), "evicted pages": kept.num_evicted}

    def rebuilds(self, opening: Opening) -> bool:
        return True

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token, all layers."""
        return sum(pool[:, 0, 0].numel() * pool.itemsize for pool in self.pool.both)

    def row_cost(self, spans: Mapping[str, int], before: int) -> RowCost:
        """The tokens that are written."""
        return RowCost(num_bytes=spans[self.key] * self.token_bytes)

    def held(self) -> Mapping[str, tuple[int, int]]:
        pool = self.table.pool
        return {"pages": (pool.num_free + pool.num_cooling, pool.num_ids)}

    def _asked(self, opening: Opening) -> tuple[int, int | None]:
        """Pages over the request's life, and to take at once (None: to promise all)."""
        life = self.table.pages_for(opening.tokens.get(self.key, 0))
        if opening.first is None:
            return life, None
        return life, self.table.pages_for(opening.first.get(self.key, 0))

    def _free_to_grow(self) -> int:
        return self.table.pool.num_free - self.table.num_owed - self.table.num_growing

    def _width(self, handles_B: np.ndarray) -> int:
        return max(int(self.table.num_held[handles_B].max(initial=0)), 1)

    def _shortage(self, need: int, free: int, rows_that_fit: int) -> Shortage | None:
        if need <= free:
            return None
        return Shortage(
            key=self.key,
            need=need,
            free=max(free, 0),
            cooling=self.table.pool.num_cooling,
            rows_that_fit=rows_that_fit,
        )
