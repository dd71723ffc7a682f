"""Attention over pages, planned on the host or not at all."""
