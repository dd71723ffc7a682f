"""What a gated delta layer is made of."""

from __future__ import annotations

from attrs import field, frozen

from mstar_core.config.checks import whole, words


@frozen(kw_only=True)
class GatedDeltaOptions:
    """The geometry of the mixer, as a model declares it."""

    num_k_heads: int = field(validator=whole(1))
    num_v_heads: int = field(validator=whole(1))
    k_dim: int = field(validator=whole(1))
    v_dim: int = field(validator=whole(1))
    conv_taps: int = field(validator=whole(2))
    activation: str = field(default="silu", validator=words)
    """Of the short convolution and of the output gate."""


@frozen(kw_only=True)
class GatedDeltaConfig:
    """A deployment sets nothing of a gated delta mixer."""
