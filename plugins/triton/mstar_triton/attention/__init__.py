"""Attention over pages and over packed rows."""
