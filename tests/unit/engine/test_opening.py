"""What a start refuses before anything is built, and what ``check`` refuses alike."""

import pytest

from mstar_core.config.resolve import resolve
from mstar_core.engine.context import fit_context
from mstar_core.engine.dry_run import dry_run
from mstar_core.engine.engine import Engine
from mstar_core.engine.opening import open_core, open_front, resolve_config
from mstar_core.errors import ConfigError, UsageError
from mstar_core.testing.cores import open_ledger


def told(error, where, got, want, fix):
    facts = error.facts()
    assert facts["where"] == where
    assert got in facts["got"]
    assert want in facts["want"]
    assert fix in facts["fix"]


@pytest.fixture
def config(tmp_path):
    """``config(sets)``: a configuration of a model that is never built."""
    file = tmp_path / "engine.yaml"
    file.write_text("model: {name: tested}\ndevice: cpu\n")
    return lambda *sets: resolve(file, sets)


def test_cuda_graphs_without_a_gpu_are_refused_by_a_start_and_by_check(tmp_path, config):
    facts = ("engine.graphs", "cuda", "auto, off or recorder on the device cpu", "auto")
    with pytest.raises(ConfigError) as caught:
        open_ledger(tmp_path, ("engine.graphs=cuda",))
    told(caught.value, *facts)
    with pytest.raises(ConfigError) as caught:
        dry_run(config("engine.graphs=cuda"))
    told(caught.value, *facts)


@pytest.mark.parametrize(
    ("written", "near"), [("paged_atention", "paged_attention"), ("sampling", "paged_attention")]
)
def test_a_backend_for_what_the_node_does_not_compute_is_refused(tmp_path, written, near):
    with pytest.raises(ConfigError) as caught:
        open_ledger(tmp_path, (f"nodes.ledger.backends.{written}=torch",))
    where = f"nodes.ledger.backends.{written}"
    told(caught.value, where, "does not use", "one of: paged_attention", near)
    open_ledger(tmp_path, ("nodes.ledger.backends.paged_attention=torch",))


def test_a_context_beyond_the_model_s_is_said_to_be_the_model_s(tmp_path):
    _, report = open_ledger(tmp_path, ("engine.max_context=99999999",))
    assert report.max_context == 256
    (finding,) = [f for f in report.findings if f.code == "max-context"]
    assert "99999999" in finding.got
    assert finding.want == "at most 256"
    assert any("99999999" in line for line in report.lines())


@pytest.mark.parametrize("asked", [None, 2, 255, 256])
def test_a_context_of_the_model_s_or_less_is_no_finding(config, asked):
    resolved = config() if asked is None else config(f"engine.max_context={asked}")
    assert fit_context(resolved, 256) == (256 if asked is None else asked, ())


def test_a_context_that_holds_no_prompt_and_answer_is_refused(config):
    with pytest.raises(ConfigError) as caught:
        config("engine.max_context=1")
    told(caught.value, "--set engine.max_context", "1", "at least 2 (tokens)", "2")


def test_sets_that_are_one_text_are_refused_as_a_whole(config):
    for call in (Engine.open, open_core, resolve_config):
        with pytest.raises(UsageError) as caught:
            call(config().file, "engine.max_rows=4")
        told(caught.value, "sets", "engine.max_rows=4", "a list", "['engine.max_rows=4']")


def test_a_set_that_is_no_text_is_refused(config):
    with pytest.raises(UsageError) as caught:
        resolve_config(config().file, (5,))
    told(caught.value, "--set", "5", "dotted.key=value", "equals sign")


@pytest.mark.parametrize("name", ["", "  "])
def test_a_configuration_without_a_name_is_refused(name):
    with pytest.raises(ConfigError) as caught:
        Engine.open(name)
    told(caught.value, "config", repr(name), "a YAML file", "name one")


def test_a_front_opens_without_weights_or_an_engine():
    front = open_front(resolve_config("echo"))
    request = front.text_request("hello")
    assert front.decode(request.arrays["ids"].tolist()) == "hello"


@pytest.fixture
def beside_echo(tmp_path, monkeypatch):
    """``beside_echo(name, code)``: echo's configuration, and a plugin of that code installed."""

    def install(name, code):
        package, info = tmp_path / f"mstar_{name}", tmp_path / f"mstar_{name}-0.1.0.dist-info"
        package.mkdir()
        info.mkdir()
        (package / "__init__.py").touch()
        (package / "plugin.py").write_text(code)
        (package / "mstar_plugin.toml").write_text(f'api = 1\ntitle = "{name}"\n')
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mstar-{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            f"[mstar_core.plugins]\n{name} = mstar_{name}.plugin\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        return resolve_config("echo")

    return install


def test_a_plugin_that_is_broken_is_a_finding_of_the_report_and_warned_of(beside_echo, caplog):
    """The engine starts without it: only this says why what it brings is not used."""
    config = beside_echo("lame", "import nothing_of_that_name\n")
    with Engine.open(config) as engine:
        (finding,) = engine.report.findings
    assert (finding.owner, finding.code) == ("mstar-lame", "cannot-load")
    assert "nothing_of_that_name" in finding.got
    assert any("nothing_of_that_name" in line for line in engine.report.lines())
    assert caplog.text.count("nothing_of_that_name") == 1
    assert dry_run(config).findings == [finding]


def test_what_stopping_raises_is_logged_and_stops_nothing(beside_echo, caplog):
    raises = "@hookimpl\ndef stopping(reason):\n    raise RuntimeError(reason)\n"
    with Engine.open(beside_echo("stuck", f"from mstar_core import hookimpl\n{raises}")) as engine:
        assert engine.report.findings == []
    assert "stuck: stopping: RuntimeError: closed" in caplog.text
