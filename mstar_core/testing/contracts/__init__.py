"""Contracts as test classes: what a model, a backend and a plugin must hold, whatever they are."""
