"""The gated delta rule of mstar-core by the kernels of AITER."""
