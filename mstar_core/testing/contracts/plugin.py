"""The contract of a plugin as tests: what its manifest says is so, and loading it is cheap.

::

    class TestTheTinyPlugin(PluginContract):
        name = "tiny"
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mstar_core.config.resolve import Resolved, resolve
from mstar_core.engine.device import CpuDevice
from mstar_core.engine.opening import open_core
from mstar_core.model.base import Model
from mstar_core.ops.backend import Backend
from mstar_core.plugins import Manifest, PluginRecord, Wiring, discover
from mstar_core.plugins.implementations import implementations
from mstar_core.plugins.load import load_one
from mstar_core.resources.base import Resource

LINES = 40
"""A plugin's module names what it brings; whatever is longer belongs elsewhere."""
_LOAD = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
sys.modules["torch"] = None
from importlib import import_module
from mstar_core.plugins import Wiring, discover
from mstar_core.plugins.load import load_one
(record,) = [r for r in discover() if r.name == sys.argv[2]]
import_module(record.module)
load_one(record, Wiring.of_core(), None)
"""


class PluginContract:
    """Subclass it with the plugin's ``name``.

    Each capability of the manifest is a claim. The kit examines two, on ``config``; for another,
    ``x``, write ``claim_x(value)``.
    """

    name: ClassVar[str]
    """The name of the entry point."""
    config: ClassVar[str | Path]
    """What is opened to examine a claim about steps: a file, or a config that the plugin ships."""
    sets: ClassVar[tuple[str, ...]] = ("device=cpu", "engine.max_rows=2", "engine.token_budget=16")
    """``--set`` texts for it."""

    @pytest.fixture
    def record(self) -> PluginRecord:
        """The plugin's row, as ``list-plugins`` shows it."""
        rows = discover()
        found = [r for r in rows if r.name == self.name]
        names = [r.name for r in rows]
        assert len(found) == 1, f"one plugin {self.name!r} should be installed; there are {names}"
        return found[0]

    @pytest.fixture
    def manifest(self, record: PluginRecord) -> Manifest:
        """The plugin's manifest."""
        assert record.manifest is not None, str(record.refusal)
        return record.manifest

    @pytest.fixture
    def wiring(self, record: PluginRecord) -> Wiring:
        """The core's own offers, and the plugin's."""
        wiring = Wiring.of_core()
        load_one(record, wiring, None)
        return wiring

    def test_it_fits_this_core(self, record: PluginRecord) -> None:
        if record.state == "no hardware":
            pytest.skip(str(record.refusal))
        assert record.state == "ready", str(record.refusal)
        assert record.title, "the manifest has no title"

    def test_every_hook_is_spelled_as_the_core_spells_it(self, record: PluginRecord) -> None:
        assert implementations(import_module(record.module)), f"{record.module} has no hook"

    def test_the_manifest_offers_what_is_registered(self, record: PluginRecord) -> None:
        load_one(record, Wiring.of_core(), None)

    def test_it_loads_without_torch(self, record: PluginRecord) -> None:
        command = [sys.executable, "-c", _LOAD, json.dumps(sys.path), record.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stdout, f"it prints when it is loaded: {done.stdout}"

    def test_its_module_is_short(self, record: PluginRecord) -> None:
        spec = find_spec(record.module)
        assert spec is not None
        assert spec.origin is not None
        lines = len(Path(spec.origin).read_text(encoding="utf-8").splitlines())
        assert lines <= LINES, f"{spec.origin} has {lines} lines, and {LINES} are enough"

    def test_every_offer_is_what_it_says(self, manifest: Manifest, wiring: Wiring) -> None:
        for model in manifest.offers.models:
            assert issubclass(wiring.models.resolve(model), Model), model
        for kind in manifest.offers.resources:
            resource = wiring.resources.resolve(kind)
            assert issubclass(resource, Resource), kind
            assert resource.kind == kind
        for named in manifest.offers.backends:
            backend = wiring.backends.resolve(*named.split("."))
            assert isinstance(backend, Backend), named
            assert f"{backend.operation}.{backend.name}" == named

    def test_every_operation_it_needs_is_known(self, manifest: Manifest, wiring: Wiring) -> None:
        assert set(manifest.needs_ops) <= set(wiring.backends.operations())

    def test_every_config_it_ships_resolves(self, manifest: Manifest, wiring: Wiring) -> None:
        for resolved in self.configs(manifest):
            offered = wiring.models.resolve(resolved.config.model.name)
            resolved.structure_options(offered.Options, owner=self.name)

    def test_every_claim_in_the_manifest_is_true(self, manifest: Manifest) -> None:
        for claim, value in manifest.capabilities.items():
            check: Any = getattr(self, f"claim_{claim}", None)
            assert check is not None, f"{claim} is claimed: test it in claim_{claim}(value)"
            check(value)

    def claim_capture(self, walks: Sequence[str]) -> None:
        """Every bucket of these walks, and of no other, is captured."""
        _, wired, report = open_core(
            self.config, (*self.sets, "engine.graphs=recorder"), device=CpuDevice(), offline=True
        )
        buckets = [bucket for node in report.nodes for bucket in node.buckets]
        for walk in wired.walks:
            of_walk = [b for b in buckets if b.bucket.split()[0] == walk]
            captured = bool(of_walk) and all(b.captured for b in of_walk)
            assert captured == (walk in walks), f"{walk}: {of_walk or 'it has no bucket'}"

    def claim_resident_walks(self, walks: Sequence[str]) -> None:
        """These walks, and no other, may read device tables, as their submodules say."""
        _, wired, _ = open_core(self.config, self.sets, device=CpuDevice(), offline=True)
        asked = [node.submodule.resident_walks() for node in wired.nodes.values()]
        assert set().union(*asked) == set(walks)

    def configs(self, manifest: Manifest) -> Iterator[Resolved]:
        """Every configuration in its package, resolved."""
        assert manifest.configs is None or manifest.config_files(), f"no file in {manifest.configs}"
        for file in manifest.config_files():
            yield resolve(file)
