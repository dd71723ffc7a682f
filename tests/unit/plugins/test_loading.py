"""Loading the selected plugins, one by one, each behind a guard."""

import sys

import pytest

from mstar_core.errors import PluginError
from mstar_core.plugins import discover, load_plugins, select_for

MODEL = """
@hookimpl
def provide_models(registry):
    registry.add("{0}", "mstar_{0}.model:Model")
"""


def offering(name):
    return {
        "code": MODEL.format(name),
        "manifest": f'api = 1\ntitle = "{name}"\n[offers]\nmodels = ["{name}"]\n',
    }


def loaded(*names, config=None):
    wiring = load_plugins(names, config)
    return wiring, {record.name: record for record in wiring.records}


def test_only_what_is_selected_is_imported(site):
    site.install("tin", **offering("tin"))
    site.install("zinc", "raise SystemExit('imported')")
    wiring, rows = loaded("tin")
    assert set(wiring.active) == {"tin"}
    assert rows["tin"].hooks == ("provide_models",)
    assert rows["zinc"].state == "ready"
    assert "mstar_zinc" not in sys.modules


def test_what_a_plugin_provides_is_resolved_only_when_asked_for(site):
    module = site.install("tin", **offering("tin"))
    wiring, _ = loaded("tin")
    assert "mstar_tin.model" not in sys.modules
    (module.parent / "model.py").write_text("class Model:\n    size = 7\n")
    assert wiring.models.resolve("tin").size == 7


def test_an_offer_that_cannot_be_imported_names_its_owner(site):
    site.install("tin", **offering("tin"))
    wiring, _ = loaded("tin")
    with pytest.raises(PluginError) as raised:
        wiring.models.resolve("tin")
    assert raised.value.where == "mstar-tin 0.1.0: mstar_tin.model:Model"
    assert "No module named" in str(raised.value.got)


@pytest.mark.parametrize(
    ("code", "got"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def broken(:\n    pass", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise BaseException('anything')", "BaseException: anything"),
        ("@hookimpl\ndef configure(config):\n    raise RuntimeError('no')", "RuntimeError: no"),
    ],
)
@pytest.mark.parametrize("bad", ["aa", "mm", "zz"])
def test_one_that_raises_is_a_broken_row_and_the_others_load(site, code, got, bad):
    """PL-01: the bad one first, in the middle, last."""
    site.install(bad, code)
    for name in ("bb", "yy"):
        site.install(name, **offering(name))
    wiring, rows = loaded(bad, "bb", "yy")
    assert rows[bad].state == "broken"
    assert got in rows[bad].refusal.got
    assert set(wiring.active) == {"bb", "yy"}
    assert set(wiring.models.entries) == {"bb", "yy"}


def test_an_interrupt_while_a_plugin_loads_passes(site):
    site.install("tin", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        loaded("tin")


def test_what_a_plugin_registered_before_it_failed_is_rolled_back(site):
    """PL-01: partly registered and then raising leaves nothing behind."""
    code = MODEL.format("tin") + "    raise RuntimeError('half way')\n"
    site.install("tin", code, manifest=offering("tin")["manifest"])
    wiring, rows = loaded("tin")
    assert rows["tin"].refusal.got == "RuntimeError: half way"
    assert wiring.models.entries == {}


def test_a_misspelt_hook_names_the_nearest_and_its_line(site):
    """PL-06."""
    site.install("tin", "@hookimpl\ndef provide_modles(registry):\n    pass\n")
    _, rows = loaded("tin")
    refusal = rows["tin"].refusal
    assert "plugin.py:2: there is no hook 'provide_modles'" in refusal.got
    assert refusal.fix == "write 'provide_models'"


def test_a_hook_of_a_newer_core_may_be_marked_optional(site):
    """PL-06: ``optionalhook`` is accepted."""
    site.install("tin", "@hookimpl(optionalhook=True)\ndef from_the_future():\n    pass\n")
    wiring, _ = loaded("tin")
    assert set(wiring.active) == {"tin"}


@pytest.mark.parametrize(
    ("code", "got"),
    [
        ("def provide_models(registri):\n    pass", "no argument 'registri'"),
        ("def resident_walks(node, walk):\n    pass", "no argument 'walk'"),
        ("def resident_walks(node=None):\n    pass", "'node' has a default"),
        ("def resident_walks(*node):\n    pass", "takes *node"),
        ("async def resident_walks(node):\n    pass", "is a coroutine"),
        ("def resident_walks(node):\n    yield 'decode'", "generator"),
    ],
)
def test_a_hook_with_another_signature_is_a_broken_row(site, code, got):
    site.install("tin", f"@hookimpl\n{code}\n")
    _, rows = loaded("tin")
    assert rows["tin"].state == "broken"
    assert got in rows["tin"].refusal.got
    assert "plugin.py:2" in rows["tin"].refusal.got


def test_a_wrapper_is_refused(site):
    code = "@hookimpl(wrapper=True)\ndef resident_walks(node):\n    yield\n"
    site.install("tin", code)
    _, rows = loaded("tin")
    assert "resident_walks is a wrapper" in rows["tin"].refusal.got


def test_a_manifest_that_says_something_else_than_the_plugin_does_is_broken(site):
    site.install("tin", MODEL.format("tin"))
    site.install("zinc", manifest=offering("zinc")["manifest"])
    wiring, rows = loaded("tin", "zinc")
    assert "it registered model tin" in rows["tin"].refusal.got
    assert "its manifest offers model zinc" in rows["zinc"].refusal.got
    assert wiring.models.entries == {}


def test_a_name_registered_twice_by_one_plugin_is_broken(site):
    code = MODEL.format("tin") + "    registry.add('tin', 'mstar_tin.model:Other')\n"
    site.install("tin", code, manifest=offering("tin")["manifest"])
    _, rows = loaded("tin")
    assert "claimed by mstar-tin 0.1.0 and by mstar-tin 0.1.0" in rows["tin"].refusal.got


def test_a_name_of_the_core_registered_against_the_manifest_names_both(site):
    code = (
        "@hookimpl\ndef provide_resources(registry):\n    registry.add('kv', 'mstar_tin.kv:KV')\n"
    )
    site.install("tin", code)
    wiring, rows = loaded("tin")
    assert "claimed by mstar-core 0.1.0 and by mstar-tin 0.1.0" in rows["tin"].refusal.got
    assert wiring.resources.entries["kv"].ref == "mstar_core.resources.kv:KVResource"


def test_an_offer_must_be_a_lazy_reference(site):
    code = "@hookimpl\ndef provide_models(registry):\n    registry.add('tin', object)\n"
    site.install("tin", code, manifest=offering("tin")["manifest"])
    _, rows = loaded("tin")
    assert rows["tin"].refusal.want == "package.module:Name"


def test_what_is_printed_at_import_goes_to_stderr(site, capfd):
    site.install("tin", "import os\nprint('python', flush=True)\nos.write(1, b'beneath')\n")
    wiring, _ = loaded("tin")
    out, err = capfd.readouterr()
    assert set(wiring.active) == {"tin"}
    assert out == ""
    assert "beneath" in err


def test_configure_receives_the_configuration(site):
    site.install("tin", "seen = []\n@hookimpl\ndef configure(config):\n    seen.append(config)\n")
    loaded("tin", config={"rows": 4})
    assert sys.modules["mstar_tin.plugin"].seen == [{"rows": 4}]


def test_a_selected_name_that_nobody_has_is_an_error_with_the_nearest(site):
    site.install("tin")
    with pytest.raises(PluginError) as raised:
        loaded("tinn")
    assert raised.value.fix == "write 'tin'"


def test_a_needed_plugin_that_is_broken_is_an_error_that_names_it(site):
    """PL-01: serving a model that needs the broken plugin fails naming it."""
    site.install("tin", "import not_there_at_all")
    wiring, _ = loaded("tin")
    with pytest.raises(PluginError) as raised:
        wiring.require("tin")
    assert raised.value.where == "plugin tin (mstar-tin 0.1.0)"
    assert "not_there_at_all" in str(raised.value.got)


def test_a_process_without_stdout_loads_plugins_like_any_other(site, monkeypatch):
    site.install("tin", **offering("tin"))
    monkeypatch.setattr(sys, "stdout", None)
    assert load_plugins(["tin"]).require("tin").name == "tin"


def test_serving_a_model_selects_its_owner_and_all_that_bring_more_than_models(site):
    site.install("tin", **offering("tin"))
    site.install("zinc", **offering("zinc"))
    site.install("policy")
    site.install("fast", manifest='api = 1\ntitle = "f"\n[offers]\nbackends = ["sampling.fast"]\n')
    ours = [r for r in discover() if r.name in ("tin", "zinc", "policy", "fast")]
    assert select_for("tin", ours) == ("fast", "policy", "tin")


def test_an_unknown_model_names_the_nearest_or_its_new_name(site):
    manifest = offering("tin")["manifest"] + '[renamed]\nstannum = "tin"\n'
    site.install("tin", MODEL.format("tin"), manifest=manifest)
    ours = [r for r in discover() if r.name == "tin"]
    with pytest.raises(PluginError) as raised:
        select_for("tinn", ours)
    assert raised.value.fix == "write 'tin'"
    with pytest.raises(PluginError, match="renamed"):
        select_for("stannum", ours)


def test_a_model_whose_plugin_is_incompatible_says_so(site):
    site.install("tin", **offering("tin"), requires="mstar-core>=0.2")
    ours = [r for r in discover() if r.name == "tin"]
    with pytest.raises(PluginError) as raised:
        select_for("tin", ours)
    assert raised.value.fix == "pip install -U 'mstar-core>=0.2'"
