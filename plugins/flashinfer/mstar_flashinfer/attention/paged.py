"""``paged_attention``: XQA for decode in graphs, planned kernels for eager steps.

::

    captured   decode    XQA reads block table and lengths on the device: nothing is planned
               others    refused: their kernels are planned on the host
    eager      decode    FA2, planned
               others    FA2 or FA3, planned; a lead apart
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import torch
from attrs import define, field
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.launch import launch
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.paged_attention import PagedAttention, PagedPlan, reference
from mstar_core.ops.paged_attention.contract import OPERATION
from mstar_core.ops.schedule import Schedules
from mstar_flashinfer.attention.lengths import HostLengths
from mstar_flashinfer.attention.planned import WORKSPACE, Heads, Library, Planned
from mstar_flashinfer.backend import FlashInferBackend

HEAD_DIMS = (64, 128, 256)
PAGES = (16, 32, 64, 128)
GROUPS = (1, 2, 4, 8)
"""Query heads a key head that XQA is built for."""


@define(eq=False, kw_only=True)
class Attention:
    """One attention: its kernels, their workspaces, and the lengths of planned steps."""

    heads: Heads
    library: Library
    planned: Planned
    workspace: Tensor
    """Of XQA: it begins with semaphores, which are zero before their first use."""
    steps: Schedules[HostLengths] = field(factory=Schedules)

    def schedule(self, plan: Any) -> int:
        """See :class:`~mstar_core.ops.schedule.Schedule`."""
        return self.steps.keep(HostLengths.of(plan))

    def attend(
        self,
        q_TND: Tensor,
        k_PpGD: Tensor,
        v_PpGD: Tensor,
        plan: PagedPlan,
        *,
        scale: float,
        causal: bool,
    ) -> Tensor:
        """See :class:`~mstar_core.ops.paged_attention.contract.Attend`."""
        pools, host = (k_PpGD, v_PpGD), self.steps.of(plan.schedule)
        if host is None:
            o_TND = self._decoded(q_TND, pools, plan, scale)
            readable_T = plan.kv_lens_B > 0
        else:
            around = {"scale": scale, "causal": causal}
            o_TND = self.planned.attend(q_TND, pools, plan, host, around)
            lens_B = plan.kv_lens_B
            readable_T = (lens_B if plan.decode else lens_B[plan.row_T.long()]) > 0
        return torch.where(readable_T[:, None, None], o_TND, 0)

    def _decoded(
        self, q_BND: Tensor, pools: tuple[Tensor, Tensor], plan: PagedPlan, scale: float
    ) -> Tensor:
        out_BND = torch.empty_like(q_BND, memory_format=torch.contiguous_format)
        lens_B = plan.kv_lens_B.clamp_min(1)  # an empty row reads the sink page and is dropped
        width = plan.pages_BW.shape[1] * self.heads.page_tokens
        around = {"scale": scale, "max_seq_len": width}
        launch(self._xqa, q_BND.contiguous(), pools, plan.pages_BW, lens_B, out_BND, around)
        return out_BND

    def _xqa(
        self,
        q_BND: Tensor,
        pools: tuple[Tensor, Tensor],
        pages_BW: Tensor,
        lens_B: Tensor,
        out_BND: Tensor,
        around: dict[str, Any],
    ) -> None:
        self.library.xqa(
            q_BND,
            tuple(pools),
            self.workspace,
            pages_BW.contiguous(),
            lens_B.view(torch.uint32),
            around["max_seq_len"],
            bmm1_scale=around["scale"],
            bmm2_scale=1.0,
            out=out_BND,
            kv_layout="NHD",
        )


class FlashInferPagedAttention(FlashInferBackend):
    """Keeps two workspaces of 128 MiB for each attention that is bound."""

    operation = OPERATION
    name = "flashinfer"
    prefill_by: ClassVar[str] = "fa2"
    """The kernel of prompts."""

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses sizes for which decode has no kernel that plans nothing."""
        sizes, fix = request.geometry, "change it, or choose another backend"
        heads, group = sizes["num_heads"], sizes["num_heads"] / sizes["num_kv_heads"]
        for code, got, allowed in (
            ("head-dim", sizes["head_dim"], HEAD_DIMS),
            ("page-tokens", sizes.get("page_tokens", PAGES[0]), PAGES),
            ("heads", group, GROUPS),
        ):
            if got not in allowed:
                what = f"{heads} heads over {sizes['num_kv_heads']}" if code == "heads" else got
                want = f"{code} of {', '.join(map(str, allowed))}"
                return self.refusal(code, f"{code} {what}", want, fix)
        return super().supports(request)

    def capture_refusal(self, bucket: Any) -> Refusal | None:
        """Refuses what is no decode bucket: its kernels are planned on the host, step by step."""
        if bucket.kind == "decode":
            return None
        return self.refusal(
            "planned-on-the-host",
            f"bucket {bucket}, whose kernels take a plan that the host makes of each step",
            "a decode bucket, which XQA computes without a plan",
            "nothing to do: its steps run eagerly; or choose a backend that plans nothing",
        )

    def bind(self, request: BindRequest) -> PagedAttention:
        """The kernels, with their workspaces claimed."""
        names = ("num_heads", "num_kv_heads", "head_dim", "page_tokens")
        sizes = {name: request.geometry[name] for name in names}
        heads = Heads(**sizes, dtype=request.dtype, device=request.device)
        library = self.library()
        workspaces = [
            torch.zeros(WORKSPACE, dtype=torch.uint8, device=request.device) for _ in range(2)
        ]
        planned = Planned(
            library=library, heads=heads, prefill_by=self.prefill_by, workspace=workspaces[0]
        )
        one = Attention(heads=heads, library=library, planned=planned, workspace=workspaces[1])
        return PagedAttention(
            step=partial(reference.step, attend=one.attend),
            attend=one.attend,
            write=reference.write,
            splits=True,
            schedule=one.schedule,
        )

    def library(self) -> Library:
        """FlashInfer's own; imported here and not before."""
        decode, prefill = (import_module(f"flashinfer.{m}") for m in ("decode", "prefill"))
        return Library(
            decode=decode.BatchDecodeWithPagedKVCacheWrapper,
            prefill=prefill.BatchPrefillWithPagedKVCacheWrapper,
            xqa=decode.xqa_batch_decode_with_kv_cache,
        )


class Fa3PagedAttention(FlashInferPagedAttention):
    """The same with FA3 for prompts. A lead is FA2's here too: FA3 is slow for single queries."""

    name = "flashinfer_fa3"
    prefill_by = "fa3"


FA2 = FlashInferPagedAttention()
FA3 = Fa3PagedAttention()
