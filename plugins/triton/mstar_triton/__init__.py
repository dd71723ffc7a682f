"""Operations of mstar-core as kernels in Triton."""
