"""Discovery, loading and wiring of plugins. Nothing here imports torch.

``discover`` says what is installed, ``load_plugins`` loads what was selected, and the ``Wiring``
it returns holds the registries and asks the hooks.
"""

from mstar_core.plugins.ask import Answer, Asked, Voice
from mstar_core.plugins.compatible import API, MIN_API
from mstar_core.plugins.discover import NameLists, discover
from mstar_core.plugins.hardware import Hardware, this_machine
from mstar_core.plugins.load import load_plugins, select_for
from mstar_core.plugins.manifest import Manifest, Offers, read_manifest
from mstar_core.plugins.probe import probe, probe_all
from mstar_core.plugins.questions import (
    collect_capture_refusals,
    collect_combined_splits,
    collect_resident_walks,
)
from mstar_core.plugins.record import PluginRecord, shipped_configs
from mstar_core.plugins.registry import BackendRegistry, ModelRegistry, ResourceRegistry
from mstar_core.plugins.wiring import ActivePlugin, Wiring

__all__ = [
    "API",
    "MIN_API",
    "ActivePlugin",
    "Answer",
    "Asked",
    "BackendRegistry",
    "Hardware",
    "Manifest",
    "ModelRegistry",
    "NameLists",
    "Offers",
    "PluginRecord",
    "ResourceRegistry",
    "Voice",
    "Wiring",
    "collect_capture_refusals",
    "collect_combined_splits",
    "collect_resident_walks",
    "discover",
    "load_plugins",
    "probe",
    "probe_all",
    "read_manifest",
    "select_for",
    "shipped_configs",
    "this_machine",
]
