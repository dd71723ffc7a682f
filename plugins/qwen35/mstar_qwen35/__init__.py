"""Qwen3.5 dense text models on mstar-core. Importing this package imports no torch."""
