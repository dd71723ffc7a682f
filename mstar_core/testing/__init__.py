"""The conformance kit: a pytest plugin, and test classes that a plugin's own suite subclasses.

======================================  ==================================================
:class:`ModelContract`                  greedy answers are the same however steps are made
:class:`PluginContract`                 the manifest is true, loading needs no torch
:class:`ResidentContract`               a resident plan is the host's plan
:class:`ResourceContract`               the six verbs of a resource keep their rules
``PagedAttentionContract`` and others   a backend of that operation, against slow oracles
======================================  ==================================================

Names are imported when they are first used, so a pytest run that does not need torch gets none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CONTRACTS = "mstar_core.testing.contracts"
_MODULES = {
    "GatedDeltaContract": f"{_CONTRACTS}.backend",
    "LinearContract": f"{_CONTRACTS}.backend",
    "ModelContract": f"{_CONTRACTS}.model",
    "PagedAttentionContract": f"{_CONTRACTS}.backend",
    "PluginContract": f"{_CONTRACTS}.plugin",
    "RaggedAttentionContract": f"{_CONTRACTS}.backend",
    "ResidentContract": "mstar_core.testing.resident",
    "ResourceContract": "mstar_core.testing.resources",
    "SamplingContract": f"{_CONTRACTS}.backend",
    "World": "mstar_core.testing.world",
}
__all__ = [*_MODULES]  # noqa: PLE0604  every name is text


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
