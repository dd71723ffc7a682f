"""A plugin over the ledger model, installed for one test and held to the contract of plugins."""

import sys

import pytest

from mstar_core.plugins import discover
from mstar_core.testing import PluginContract
from mstar_core.testing.cores import LEDGER

CODE = """
from mstar_core import hookimpl
{head}
@hookimpl
def provide_models(registry):
    registry.add("{name}", "{ref}")
{tail}
"""
MANIFEST = """
api = 1
title = "scripted"
configs = "configs"
[offers]
models = ["{name}"]
{claims}
"""
FILES = {
    "{name}/__init__.py": "",
    "{name}/plugin.py": CODE,
    "{name}/mstar_plugin.toml": MANIFEST,
    "{name}/tiny/config.json": "{{}}",
    "{name}/configs/{name}.yaml": (
        "model: {{name: {name}, path: 'package:{name}/tiny', load: random}}\n{config}"
    ),
    "mstar_{name}-0.1.0.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: mstar-{name}\nVersion: 0.1.0\n"
        "Requires-Dist: mstar-core>=0.1,<0.2\n"
    ),
    "mstar_{name}-0.1.0.dist-info/entry_points.txt": (
        "[mstar_core.plugins]\n{name} = {name}.plugin\n"
    ),
}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """``plugin(name, **parts)`` installs one, and gives its contract and its row.

    Parts: ``head`` and ``tail`` of its module, ``ref`` of its model, ``claims``, ``config`` lines.
    """
    packages = []

    def install(name, **parts):
        packages.append(name)
        words = {"name": name, "head": "", "tail": "", "ref": LEDGER, "claims": "", "config": ""}
        for path, text in FILES.items():
            file = tmp_path / path.format(name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(**words | parts))
        monkeypatch.syspath_prepend(tmp_path)
        contract = type("Kit", (PluginContract,), {"name": name, "config": name})()
        return contract, next(record for record in discover() if record.name == name)

    yield install
    for module in [m for m in sys.modules if m.partition(".")[0] in packages]:
        del sys.modules[module]
