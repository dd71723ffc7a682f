"""Names of dtypes, as declarations and configurations write them."""

from __future__ import annotations

import torch

_SHORT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def torch_dtype_named(name: str, model: torch.dtype) -> torch.dtype:
    """``int64``, ``bf16`` … as a torch dtype; the names ``model`` and ``auto`` give ``model``."""
    if name in ("model", "auto"):
        return model
    if name in _SHORT:
        return _SHORT[name]
    dtype: torch.dtype = getattr(torch, name)
    return dtype
