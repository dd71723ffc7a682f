"""Operations of mstar-core by the kernels of FlashInfer."""
