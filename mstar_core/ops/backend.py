"""How a kernel backend offers an operation: available, supports, bind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field, frozen

from mstar_core.errors import Refusal

if TYPE_CHECKING:
    import torch


@frozen(kw_only=True)
class BindRequest:
    """What a resource or layer asks of an operation."""

    operation: str
    device: str
    """``cpu`` or ``cuda``."""
    dtype: torch.dtype
    geometry: Mapping[str, Any] = field(factory=dict)
    """Sizes by the contract's names (``num_heads``, ``head_dim`` …)."""


class Backend(ABC):
    """One backend's implementation of one operation."""

    operation: ClassVar[str]
    name: ClassVar[str]
    hardware: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    """What it runs on, for listing."""
    owner: ClassVar[str] = ""
    """The distribution it comes in, as its refusals name it."""

    def available(self, device: str) -> Refusal | None:
        """Whether it can run on ``device`` here. Never raises, imports nothing heavy."""
        return None

    def supports(self, request: BindRequest) -> Refusal | None:
        """Whether it takes this dtype, these sizes, this layout."""
        return None

    @abstractmethod
    def bind(self, request: BindRequest) -> Any:
        """A frozen record of callables, of the class that the operation's contract names."""

    def refusal(self, code: str, got: str, want: str, fix: str) -> Refusal:
        """A refusal of this backend, for the methods above and below."""
        where = f"operation {self.operation}, backend {self.name}"
        return Refusal(code=code, where=where, got=got, want=want, fix=fix, owner=self.owner)

    def capture_refusal(self, bucket: Any) -> Refusal | None:
        """Whether a ``Bucket`` cannot be captured with it; from the bucket and config only."""
        return None
