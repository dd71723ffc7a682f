"""Attention by the kernels of TensorRT-LLM that FlashInfer carries, on Blackwell GPUs."""
