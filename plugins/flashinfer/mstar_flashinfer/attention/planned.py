"""Attention by kernels that are planned on the host: FA2 and FA3, for eager steps.

::

    schedule      lengths of the step, on the host          no page, nothing starts
    first layer   page list on the device, wrapper.plan     once a step
    every layer   wrapper.run

The lead of a mixed step is planned apart from its prompts, by FA2 through the prefill wrapper,
where a row without queries takes no program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from mstar_core.ops.paged_attention import PagedPlan
from mstar_flashinfer.attention.lengths import HostLengths, page_list

WORKSPACE = 128 << 20
"""Bytes that the library recommends for its partial results."""
SETS = 5
"""Wrappers of each kind, one more than the steps that are ever in flight: a wrapper's page-locked
plan is written again only when its step is over."""
WIDE_GROUP = 4
"""Query heads a key head from which the tensor-core kernel decodes faster."""


@frozen(kw_only=True)
class Heads:
    """Sizes that every plan is told."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: torch.dtype
    device: str

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """In the order of the library's plans."""
        return self.num_heads, self.num_kv_heads, self.head_dim, self.page_tokens


@frozen(kw_only=True, eq=False)
class Library:
    """What is used of FlashInfer's attention."""

    decode: Any
    """``BatchDecodeWithPagedKVCacheWrapper``."""
    prefill: Any
    """``BatchPrefillWithPagedKVCacheWrapper``."""
    xqa: Any
    """``xqa_batch_decode_with_kv_cache``."""


@define(eq=False, kw_only=True)
class Planned:
    """The wrappers of one attention, each planned once a step."""

    library: Library
    heads: Heads
    prefill_by: str
    """``fa2`` or ``fa3``, for prompts."""
    workspace: Tensor
    _wrappers: dict[tuple[str, int], Any] = field(factory=dict, init=False)
    _planned: dict[str, tuple[int, Any]] = field(factory=dict, init=False)
    """What each kind is planned for."""

    def attend(
        self,
        q_TND: Tensor,
        pools: tuple[Tensor, Tensor],
        plan: PagedPlan,
        host: HostLengths,
        around: Mapping[str, Any],
    ) -> Tensor:
        """``o_TND``; ``around`` holds ``scale`` and ``causal``."""
        if host.decode:
            wrapper = self._ready("decode", plan, host, around)
            return _ran(wrapper, q_TND, pools)
        num, parts = host.num_lead, []
        if num:
            parts.append(_ran(self._ready("lead", plan, host, around), q_TND[:num], pools))
        if num < len(q_TND):
            others = self._ready(self.prefill_by, plan, host, around)
            parts.append(_ran(others, q_TND[num:], pools))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _ready(self, kind: str, plan: PagedPlan, host: HostLengths, around: Any) -> Any:
        place = plan.schedule % SETS
        wrapper = self._wrappers.get((kind, place)) or self._wrapper(kind)
        self._wrappers[kind, place] = wrapper
        wanted = (plan.schedule, dict(around))
        if self._planned.get(kind) != wanted:
            self._plan(kind, wrapper, plan, host, around)
            self._planned[kind] = wanted
        return wrapper

    def _wrapper(self, kind: str) -> Any:
        heads = self.heads
        if kind == "decode":
            wide = heads.num_heads // heads.num_kv_heads >= WIDE_GROUP
            return self.library.decode(self.workspace, "NHD", use_tensor_cores=wide, backend="fa2")
        backend = "fa2" if kind == "lead" else kind
        return self.library.prefill(self.workspace, "NHD", backend=backend)

    def _plan(
        self, kind: str, wrapper: Any, plan: PagedPlan, host: HostLengths, around: Any
    ) -> None:
        heads, dtype = self.heads, self.heads.dtype
        bounds, last_B = host.pages(heads.page_tokens)
        pages = page_list(plan.pages_BW, plan.kv_lens_B, heads.page_tokens)
        told = {"sm_scale": around["scale"], "q_data_type": dtype, "kv_data_type": dtype}
        if kind == "decode":
            wrapper.plan(bounds, pages, last_B, *heads.sizes, **told)
            return
        causal = around["causal"] and kind != "lead"  # one query sees all that is before it
        queries = host.queries(kind == "lead")
        wrapper.plan(queries, bounds, pages, last_B, *heads.sizes, causal=causal, **told)


def _ran(wrapper: Any, q_TND: Tensor, pools: tuple[Tensor, Tensor]) -> Tensor:
    """Tokens that the plan leaves out stay zero."""
    out_TND = torch.zeros_like(q_TND, memory_format=torch.contiguous_format)
    wrapper.run(q_TND.contiguous(), pools, out=out_TND)
    return out_TND
