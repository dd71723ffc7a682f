"""The contract of a kernel backend as tests: one class per operation, to subclass.

::

    from mstar_core.testing import SamplingContract

    class TestFastSampling(SamplingContract):
        backend = BACKEND

Each is the operation's parity cases (:mod:`mstar_core.testing.ops`) and the manners of an offer:
how it answers when it is asked, whether it applies or not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.gated_delta import GatedDelta
from mstar_core.ops.linear import Linear
from mstar_core.ops.paged_attention import PagedAttention
from mstar_core.ops.ragged_attention import RaggedAttention
from mstar_core.ops.sampling import Sampling
from mstar_core.step import Bucket
from mstar_core.testing.ops import (
    GatedDeltaConformance,
    LinearConformance,
    OpConformance,
    PagedAttentionConformance,
    RaggedAttentionConformance,
    SamplingConformance,
)

DEVICES = ("cpu", "cuda", "a-device-that-nobody-has")
ODD: Mapping[str, Any] = {"head_dim": 7, "num_heads": 3, "num_kv_heads": 1, "vocab_size": 1}


class OfferManners(OpConformance):
    """What every backend holds, whatever it computes."""

    operation: ClassVar[str]
    record: ClassVar[type]
    """The class of what ``bind`` gives."""
    geometry: ClassVar[Mapping[str, Any]]
    """Sizes that any backend of the operation should take."""

    def test_it_says_what_it_is(self) -> None:
        assert self.backend.operation == self.operation
        assert isinstance(self.backend.name, str)
        assert self.backend.name
        assert set(self.backend.hardware) <= {"cpu", "cuda"}

    @pytest.mark.parametrize("device", DEVICES)
    def test_available_answers_and_never_raises(self, device: str) -> None:
        assert_answer(self.backend.available(device))

    def test_asking_imports_no_library(self) -> None:
        """What is asked of every installed backend at every start must cost nothing."""
        before = set(sys.modules)
        for device in DEVICES:
            self.backend.available(device)
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        own = type(self.backend).__module__.partition(".")[0]
        foreign = new - {own} - sys.stdlib_module_names
        assert not foreign, f"available() imported {sorted(foreign)}"

    @pytest.mark.parametrize("geometry", [{}, ODD], ids=["bare", "odd"])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
    def test_supports_answers_and_never_raises(
        self, geometry: Mapping[str, Any], dtype: torch.dtype
    ) -> None:
        assert_answer(self.backend.supports(self.request(dtype, {**self.geometry, **geometry})))

    def test_a_capture_refusal_is_an_answer_of_the_bucket_alone(self) -> None:
        for kind, rows, tokens in (("decode", 4, 4), ("prefill", 2, 32)):
            bucket = Bucket(walk="walk", rows=rows, tokens=tokens, kind=kind)
            first, again = (self.backend.capture_refusal(bucket) for _ in range(2))
            assert_answer(first)
            assert first == again

    def test_bind_gives_the_record_of_the_contract(self) -> None:
        assert isinstance(self.bound(self.dtypes[0], self.geometry), self.record)

    def request(self, dtype: torch.dtype, geometry: Mapping[str, Any]) -> BindRequest:
        """A request for this operation on the device under test."""
        return BindRequest(
            operation=self.operation, device=self.device, dtype=dtype, geometry=geometry
        )


class PagedAttentionContract(OfferManners, PagedAttentionConformance):
    """A backend of ``paged_attention``."""

    operation = "paged_attention"
    record = PagedAttention
    geometry: ClassVar = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_tokens": 64}


class RaggedAttentionContract(OfferManners, RaggedAttentionConformance):
    """A backend of ``ragged_attention``."""

    operation = "ragged_attention"
    record = RaggedAttention
    geometry: ClassVar = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64}


class GatedDeltaContract(OfferManners, GatedDeltaConformance):
    """A backend of ``gated_delta``."""

    operation = "gated_delta"
    record = GatedDelta
    geometry: ClassVar = {
        "num_k_heads": 2,
        "num_v_heads": 4,
        "k_dim": 64,
        "v_dim": 64,
        "conv_taps": 4,
        "activation": "silu",
    }


class LinearContract(OfferManners, LinearConformance):
    """A backend of ``linear``."""

    operation = "linear"
    record = Linear
    geometry: ClassVar[Mapping[str, Any]] = {}


class SamplingContract(OfferManners, SamplingConformance):
    """A backend of ``sampling``."""

    operation = "sampling"
    record = Sampling
    geometry: ClassVar = {"vocab_size": 64}


def assert_answer(answer: object) -> None:
    """``answer`` is None or a Refusal that says where, what, what would do and what to do."""
    if answer is None:
        return
    assert isinstance(answer, Refusal), f"{answer!r} is neither None nor a Refusal"
    facts = (answer.code, answer.where, answer.got, answer.want, answer.fix)
    assert all(facts), f"a refusal that leaves something out: {answer}"
