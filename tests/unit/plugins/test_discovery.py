"""What is installed and in which state, found without importing anything."""

import json
import sys
import time

import pytest

from mstar_core.cli import main
from mstar_core.errors import ConfigError
from mstar_core.plugins import Hardware, NameLists, discover, shipped_configs


def by_distribution(*lists, hardware=None):
    return {r.distribution: r for r in discover(*lists, hardware=hardware)}


def test_a_plugin_is_listed_with_its_distribution_version_and_offers(site):
    site.install(
        "tin",
        version="0.1.7",
        manifest="""
        api = 1
        title = "Tin"
        [offers]
        models = ["tin"]
        backends = ["sampling.tin"]
        """,
    )
    row = by_distribution()["mstar-tin"]
    assert (row.name, row.release, row.state) == ("tin", "mstar-tin 0.1.7", "ready")
    assert row.offers.names() == {"model tin", "backend sampling.tin"}
    assert row.origin == "path"


def test_a_row_says_on_which_hardware_nobody_has_run_the_plugin(site):
    site.install(
        "tin",
        manifest="""
        api = 1
        title = "Tin"
        hardware = ["cpu", "rocm"]
        not_run_on = ["rocm"]
        """,
    )
    assert site.rows()["mstar-tin"]["not_run_on"] == ["rocm"]
    assert "not run on device: rocm" in site.cli("list-plugins").stdout


def test_discovery_imports_no_plugin(site):
    site.install("tin", "raise SystemExit('imported')")
    assert by_distribution()["mstar-tin"].state == "ready"
    assert "mstar_tin" not in sys.modules


@pytest.mark.parametrize(
    ("direct_url", "installer", "origin"),
    [
        ({"url": "file:///x", "dir_info": {"editable": True}}, "pip", "editable"),
        ({"url": "file:///x.whl", "archive_info": {}}, "pip", "wheel"),
        (None, "pip", "wheel"),
        (None, None, "path"),
    ],
)
def test_a_row_says_how_the_plugin_came_here(site, direct_url, installer, origin):
    site.install("tin")
    info = site.folder / "mstar_tin-0.1.0.dist-info"
    if direct_url:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    if installer:
        (info / "INSTALLER").write_text(installer)
    site.refresh()
    assert by_distribution()["mstar-tin"].origin == origin


def test_an_unknown_manifest_key_breaks_the_row_and_names_the_nearest(site):
    site.install("tin", manifest='api = 1\ntitle = "t"\nhardwear = ["cpu"]\n')
    row = by_distribution()["mstar-tin"]
    assert row.state == "broken"
    assert "unknown key hardwear" in row.refusal.got
    assert row.refusal.fix == "write 'hardware'"


@pytest.mark.parametrize(
    ("manifest", "got"),
    [
        ("api = 1\n", "no title"),
        ('title = "t"\n', "no api"),
        ('api = "1"\ntitle = "t"\n', "api: '1'"),
        ('api = true\ntitle = "t"\n', "api: True"),
        ('api = 1\ntitle = "t"\n[offers]\nmodel = ["x"]\n', "unknown key offers.model"),
        ('api = 1\ntitle = "t"\n[offers]\nbackends = ["fast"]\n', "'fast'"),
        ('api = 1\ntitle = "t"\n[offers]\nmodels = ["x", "x"]\n', "['x', 'x']"),
        ('api = 1\ntitle = "t"\nhardware = ["cudda"]\n', "'cudda'"),
        ("api = = 1\n", "at line 1"),
    ],
)
def test_a_wrong_manifest_is_one_row_with_what_is_wrong(site, manifest, got):
    site.install("tin", manifest=manifest)
    row = by_distribution()["mstar-tin"]
    assert row.state == "broken"
    assert got in row.refusal.got


def test_a_deleted_editable_folder_is_a_broken_row_with_the_pip_command(site):
    module = site.install("tin")
    for file in module.parent.iterdir():
        file.unlink()
    module.parent.rmdir()
    site.refresh()
    row = by_distribution()["mstar-tin"]
    assert row.state == "broken"
    assert row.refusal.got == "there is no package mstar_tin"
    assert row.refusal.fix == "pip install --force-reinstall mstar-tin"


def test_unreadable_metadata_is_a_row_and_hides_nobody(site):
    site.install("tin")
    site.install("zinc")
    info = site.folder / "mstar_tin-0.1.0.dist-info"
    (info / "entry_points.txt").write_text("[mstar_core.plugins]\nno equals sign here\n")
    site.refresh()
    rows = by_distribution()
    assert rows["mstar_tin-0.1.0"].state == "broken"
    assert rows["mstar-zinc"].state == "ready"


@pytest.mark.parametrize(
    ("requires", "code", "fix"),
    [
        ("mstar-core>=0.2", "core-too-old", "pip install -U 'mstar-core>=0.2'"),
        ("mstar-core<0.1", "core-too-new", "pip install -U mstar-tin"),
    ],
)
def test_a_plugin_outside_its_core_range_says_which_pip_command_mends_it(site, requires, code, fix):
    site.install("tin", requires=requires)
    row = by_distribution()["mstar-tin"]
    assert (row.state, row.refusal.code, row.refusal.fix) == ("incompatible", code, fix)


@pytest.mark.parametrize(
    ("api", "code", "fix"),
    [
        (99, "api-too-new", "pip install -U mstar-core"),
        (0, "api-too-old", "pip install -U mstar-tin"),
    ],
)
def test_a_plugin_for_another_hook_api_is_incompatible(site, api, code, fix):
    site.install("tin", manifest=f'api = {api}\ntitle = "t"\n')
    row = by_distribution()["mstar-tin"]
    assert (row.state, row.refusal.code, row.refusal.fix) == ("incompatible", code, fix)


def test_the_core_range_is_judged_before_the_api(site):
    site.install("tin", manifest='api = 99\ntitle = "t"\n', requires="mstar-core>=0.2")
    assert by_distribution()["mstar-tin"].refusal.code == "core-too-old"


def test_a_needed_operation_that_nobody_implements_is_incompatible(site):
    site.install("tin", manifest='api = 1\ntitle = "t"\nneeds_ops = ["samplign"]\n')
    row = by_distribution()["mstar-tin"]
    assert (row.state, row.refusal.code) == ("incompatible", "unknown-operation")
    assert "'sampling'" in row.refusal.fix


def test_an_operation_that_another_plugin_implements_is_known(site):
    site.install("tin", manifest='api = 1\ntitle = "t"\nneeds_ops = ["codec"]\n')
    site.install("zinc", manifest='api = 1\ntitle = "z"\n[offers]\nbackends = ["codec.zinc"]\n')
    assert by_distribution()["mstar-tin"].state == "ready"


@pytest.mark.parametrize(
    ("wanted", "here", "state"),
    [
        ('["cuda"]', Hardware(), "no hardware"),
        ('["cuda>=9.0"]', Hardware(cuda=((8, 9),)), "no hardware"),
        ('["cuda>=9.0"]', Hardware(cuda=((8, 9), (9, 0))), "ready"),
        ('["cuda", "rocm"]', Hardware(rocm=True), "ready"),
        ('["cuda", "cpu"]', Hardware(), "ready"),
    ],
)
def test_hardware_is_judged_by_the_manifest(site, wanted, here, state):
    site.install("tin", manifest=f'api = 1\ntitle = "t"\nhardware = {wanted}\n')
    assert by_distribution(hardware=here)["mstar-tin"].state == state


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_two_distributions_with_one_name_are_both_shadowed_in_every_order(site, order):
    """PL-05: nobody wins silently, and each row names the others with their versions."""
    for number, letter in enumerate(order):
        name = "tin" if letter != "c" else "copper"
        site.install(name, distribution=f"dist-{letter}", version=f"0.{number}.0")
    rows = by_distribution()
    a, b = rows["dist-a"], rows["dist-b"]
    assert (a.state, b.state, rows["dist-c"].state) == ("shadowed", "shadowed", "ready")
    assert b.release in a.refusal.got
    assert a.release in b.refusal.got


def test_disabling_one_of_two_by_its_distribution_frees_the_other(site):
    site.install("tin", distribution="dist-a")
    site.install("tin", distribution="dist-b")
    rows = by_distribution(NameLists(disable=("dist-a",), where="--disable"))
    assert (rows["dist-a"].state, rows["dist-b"].state) == ("disabled", "ready")


def test_two_plugins_that_offer_one_model_are_both_shadowed(site):
    manifest = 'api = 1\ntitle = "t"\n[offers]\nmodels = ["metal"]\n'
    site.install("tin", manifest=manifest)
    site.install("zinc", manifest=manifest)
    rows = by_distribution()
    assert rows["mstar-tin"].refusal.got == "model metal is also claimed by mstar-zinc 0.1.0"
    assert rows["mstar-zinc"].state == "shadowed"


def test_a_plugin_cannot_claim_an_offer_of_the_core(site):
    site.install("tin", manifest='api = 1\ntitle = "t"\n[offers]\nresources = ["kv"]\n')
    row = by_distribution()["mstar-tin"]
    assert (row.state, "the core's own" in row.refusal.got) == ("shadowed", True)


def test_the_same_distribution_on_two_path_entries_counts_once(site, tmp_path):
    """PL-05: installed twice (site and checkout) is loaded once."""
    site.install("tin")
    other = type(site)(tmp_path / "other", site.monkeypatch)
    other.folder.mkdir()
    other.install("tin")
    assert [r.state for r in discover() if r.name == "tin"] == ["ready"]


def test_one_module_under_two_names_is_one_plugin_and_one_broken_row(site):
    """PL-05: one distribution exposing the same module twice."""
    site.install("tin")
    site.install("tinny", distribution="mstar-tin", package="mstar_tin")
    rows = {r.name: r for r in discover()}
    assert rows["tin"].state == "ready"
    assert rows["tinny"].refusal.got == "mstar_tin.plugin is already the plugin 'tin'"


def test_lists_disable_and_allow_by_any_spelling(site):
    site.install("tin_can")
    site.install("zinc")
    rows = by_distribution(NameLists(disable=("Tin-Can",), where="--disable"))
    assert rows["mstar-tin_can"].refusal.got == "on the disable list of --disable"
    rows = by_distribution(NameLists(allow=("zinc",), where="plugins"))
    assert (rows["mstar-tin_can"].state, rows["mstar-zinc"].state) == ("not allowed", "ready")


def test_a_list_that_names_nobody_is_an_error_with_the_nearest(site):
    site.install("tin")
    with pytest.raises(ConfigError) as raised:
        discover(NameLists(disable=("tinn",), where="plugins"))
    assert raised.value.where == "plugins: disable"
    assert raised.value.fix == "write 'tin'"


def test_a_renamed_plugin_gives_way_to_its_heir(site):
    site.install("tin_old")
    site.install("tin", manifest='api = 1\ntitle = "t"\n[renamed]\ntin_old = "tin"\n')
    row = by_distribution()["mstar-tin_old"]
    assert row.state == "renamed"
    assert row.refusal.fix == "pip uninstall mstar-tin_old"


def test_ten_plugins_are_listed_in_half_a_second_without_torch(site):
    for number in range(10):
        site.install(f"metal{number}", "raise SystemExit('imported')")
    """The promise is 0.5 s; a busy machine is given five times that."""
    started = time.perf_counter()
    rows = site.rows()
    seconds = time.perf_counter() - started
    assert [rows[f"mstar-metal{n}"]["state"] for n in range(10)] == ["ready"] * 10
    assert seconds < 5 * 0.5 or min(_again(site) for _ in range(3)) < 5 * 0.5


def _again(site):
    started = time.perf_counter()
    site.rows()
    return time.perf_counter() - started


def test_a_config_that_a_ready_plugin_ships_is_known_by_its_name(site):
    manifest = 'api = 1\ntitle = "t"\nconfigs = "configs"\n'
    module = site.install("tin", manifest=manifest)
    folder = module.parent / "configs"
    folder.mkdir()
    (folder / "tin.yaml").write_text("model: {name: tin}\n")
    assert folder / "tin.yaml" in shipped_configs(discover())
    tin = next(record for record in discover() if record.name == "tin")
    assert tin.as_dict()["configs"] == ["tin"]
    off = NameLists(disable=("tin",), where="--disable")
    assert folder / "tin.yaml" not in shipped_configs(discover(off))


def test_a_config_of_a_shadowed_plugin_is_found_so_that_whoever_wants_it_is_told_why(site, capsys):
    manifest = 'api = 1\ntitle = "t"\nconfigs = "configs"\n[offers]\nmodels = ["tin"]\n'
    folder = site.install("tin", manifest=manifest).parent / "configs"
    folder.mkdir()
    (folder / "own.yaml").write_text("model: {name: tin}\n")
    (folder / "echo.yaml").write_text("model: {name: tin}\n")
    site.install("tin", distribution="mstar-other")
    found = shipped_configs(discover())
    assert folder / "own.yaml" in found
    assert folder / "echo.yaml" not in found  # a ready plugin has one of that name
    assert main(["check", "own"]) == 1
    err = capsys.readouterr().err
    assert "Error: plugin tin (mstar-tin 0.1.0)" in err
    assert "shadowed: plugin tin is also claimed by mstar-other 0.1.0" in err


def test_a_requirement_for_another_python_or_extra_does_not_count(site):
    site.install("tin", requires='mstar-core>=9; python_version < "3"')
    site.install("zinc", requires='mstar-core>=9; extra == "next"')
    rows = by_distribution()
    assert (rows["mstar-tin"].state, rows["mstar-zinc"].state) == ("ready", "ready")
