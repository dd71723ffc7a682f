"""A folder on sys.path into which a test installs scripted plugins: real modules, real metadata."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from attrs import define, field


@define
class Site:
    """Stands for a site-packages folder."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    packages: list[str] = field(factory=list)

    def install(
        self,
        name: str,
        code: str = "",
        *,
        distribution: str = "",
        version: str = "0.1.0",
        package: str = "",
        manifest: str = "",
        requires: str = "mstar-core>=0.1,<0.2",
    ) -> Path:
        """One plugin ``name``: its package, its manifest, its dist-info. Returns plugin.py."""
        distribution = distribution or f"mstar-{name}"
        package = package or distribution.replace("-", "_")
        self.packages.append(package)
        module = self.folder / package / "plugin.py"
        module.parent.mkdir(exist_ok=True)
        (module.parent / "__init__.py").touch()
        module.write_text("from mstar_core import hookimpl\n" + textwrap.dedent(code))
        manifest = manifest or f'api = 1\ntitle = "{name}"\n'
        (module.parent / "mstar_plugin.toml").write_text(textwrap.dedent(manifest))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        lines = [f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}"]
        lines += [f"Requires-Dist: {requires}"] if requires else []
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        points = info / "entry_points.txt"
        head = points.read_text() if points.exists() else "[mstar_core.plugins]\n"
        points.write_text(f"{head}{name} = {package}.plugin\n")
        self.refresh()
        return module

    def refresh(self) -> None:
        """Let the import system see what was written."""
        self.monkeypatch.syspath_prepend(self.folder)

    def forget(self) -> None:
        """Take this site's modules out of the process."""
        for module in [m for m in sys.modules if m.partition(".")[0] in self.packages]:
            del sys.modules[module]

    def cli(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """``mstar-core`` in a process of its own, in which torch cannot be imported."""
        code = (
            "import sys; sys.modules['torch'] = None; "
            "from mstar_core.cli import main; sys.exit(main())"
        )
        command = [sys.executable, "-c", code, *arguments]
        path = f"{self.folder}:{Path(__file__).parents[3]}"
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout,
            env={"PYTHONPATH": path},
        )

    def rows(self, *arguments: str) -> dict[str, dict]:
        """The rows of ``list-plugins --json``, by distribution."""
        done = self.cli("list-plugins", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return {row["distribution"]: row for row in json.loads(done.stdout)["plugins"]}


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path / "site", monkeypatch)
    made.folder.mkdir()
    yield made
    made.forget()
