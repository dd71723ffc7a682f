"""Warmup, the life of a step, the device and its graphs."""
