"""The memory of a paged KV pool: two tensors, cut into pages. Page 0 is a sink."""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.errors import ConfigError, Words
from mstar_core.resources.base import BuildEnv, ResourceSpec
from mstar_core.resources.kv.config import KVConfig, KVOptions
from mstar_core.resources.settings import read_settings


@frozen(kw_only=True)
class Geometry:
    """The sizes of a pool, worked out from options, settings and the engine's limits."""

    options: KVOptions
    page_tokens: int
    max_tokens: int
    wanted_pages: int
    """Pages that the admitted requests can use at most, or that the deployment asks for."""
    dtype: torch.dtype
    is_fixed: bool
    """The deployment gave the number of pages."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one page: keys and values of all layers."""
        o = self.options
        per_token = 2 * o.num_layers * o.num_kv_heads * o.head_dim
        return per_token * self.page_tokens * self.dtype.itemsize

    @property
    def pages_per_request(self) -> int:
        """Pages of the longest stream."""
        return -(-self.max_tokens // self.page_tokens)

    @property
    def pool_bytes(self) -> int:
        """Bytes at most, the sink page included."""
        return (self.wanted_pages + 1) * self.page_bytes


def geometry(spec: ResourceSpec, env: BuildEnv) -> Geometry:
    """The sizes that ``spec`` asks for. Raises ConfigError."""
    options = read_settings(KVOptions, spec.options, f"resource {spec.key}.options")
    config = read_settings(KVConfig, env.config, f"resources.{spec.key}")
    max_tokens = options.max_tokens or env.max_context
    per_request = -(-max_tokens // config.page_tokens)
    return Geometry(
        options=options,
        page_tokens=config.page_tokens,
        max_tokens=max_tokens,
        wanted_pages=config.num_pages or env.max_rows * per_request,
        dtype=env.dtype,
        is_fixed=config.num_pages is not None,
    )


@frozen(kw_only=True, eq=False)
class PagePool:
    """Keys and values of every layer, page by page."""

    k_LPpGD: Tensor
    v_LPpGD: Tensor

    @classmethod
    def claim(cls, key: str, sizes: Geometry, env: BuildEnv) -> PagePool:
        """As many pages as are wanted and ``env.memory_bytes`` holds, and the sink page."""
        num_pages = sizes.wanted_pages + 1
        if env.memory_bytes is not None and not sizes.is_fixed:
            num_pages = min(num_pages, env.memory_bytes // sizes.page_bytes)
        if num_pages < 2:
            raise ConfigError(
                where=f"resources.{key}",
                got=Words(f"{env.memory_bytes} bytes for pages of {sizes.page_bytes} bytes"),
                want="memory for at least two pages",
                fix="raise engine.kv_memory, or lower page_tokens",
            )
        o = sizes.options
        shape = (o.num_layers, num_pages, sizes.page_tokens, o.num_kv_heads, o.head_dim)
        return cls(
            k_LPpGD=env.claim(key, "k", shape, sizes.dtype),
            v_LPpGD=env.claim(key, "v", shape, sizes.dtype),
        )

    @property
    def both(self) -> tuple[Tensor, Tensor]:
        """Keys, then values."""
        return self.k_LPpGD, self.v_LPpGD

    @property
    def num_pages(self) -> int:
        """Pages, the sink included."""
        return int(self.k_LPpGD.shape[1])
