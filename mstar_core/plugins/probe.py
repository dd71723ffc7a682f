"""Loading a plugin in a process of its own, so that a crash or a hang is an answer too."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import evolve

from mstar_core.errors import Refusal
from mstar_core.plugins.discover import discover
from mstar_core.plugins.index import broken
from mstar_core.plugins.load import guarded, load_one
from mstar_core.plugins.record import PluginRecord
from mstar_core.plugins.wiring import Wiring

AT_ONCE = 2
"""Probes that run side by side."""
_CHILD = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from mstar_core.plugins.probe import child; child(*sys.argv[2:])"
)


def probe_all(records: Sequence[PluginRecord], timeout_s: float = 10.0) -> tuple[PluginRecord, ...]:
    """Each ready record as its probe left it: with its hooks, or broken; others as they were."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(lambda record: probe(record, timeout_s), records))


def probe(record: PluginRecord, timeout_s: float = 10.0) -> PluginRecord:
    """Load one ready plugin in a subprocess and report how that went."""
    if record.state != "ready":
        return record
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
        command += [record.name, record.distribution, str(report)]
        try:
            ended = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            got = f"no answer in {timeout_s:g} s"
            return _broken(record, "hangs", got)
        if not report.exists():
            return _broken(record, "dies", _how_it_ended(ended.returncode))
        facts = json.loads(report.read_text(encoding="utf-8"))
    if facts["why"]:
        return evolve(record, state="broken", refusal=Refusal(**facts["why"]))
    printed = len(ended.stdout) + len(ended.stderr)
    notes = (f"printed {printed} bytes while it was loaded",) if printed else ()
    return evolve(record, hooks=tuple(facts["hooks"]), notes=notes)


def child(name: str, distribution: str, report: str) -> None:
    """In the subprocess: load the plugin and write its row to the file ``report``."""
    (found,) = (r for r in discover() if (r.name, r.distribution) == (name, distribution))
    loaded = guarded(found, lambda record: load_one(record, Wiring.of_core(), None))
    Path(report).write_text(json.dumps(loaded.as_dict()), encoding="utf-8")


def _broken(record: PluginRecord, code: str, got: str) -> PluginRecord:
    want = f"a module {record.module} that can be imported and asked"
    return broken(record, code, got=got, want=want, fix=f"pip uninstall {record.distribution}")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended the process with code {code} while it was loaded"
    return f"died of {signal.Signals(-code).name} while it was loaded"
