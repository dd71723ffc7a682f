"""Every way in which an installed plugin can be bad: one row, one sentence, and the rest works."""

import pytest

from mstar_core.plugins import discover, probe

GOOD = "@hookimpl\ndef stopping(reason):\n    pass\n"
BAD = {
    "missing-import": ("import not_there_at_all", "No module named 'not_there_at_all'"),
    "syntax-error": ("def broken(:\n    pass", "SyntaxError"),
    "segfault": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
    "abort": ("import os\nos.abort()", "died of SIGABRT"),
    "exit": ("import sys\nsys.exit(5)", "SystemExit: 5"),
    "hard-exit": ("import os\nos._exit(5)", "ended the process with code 5"),
    "misspelt-hook": ("@hookimpl\ndef stoping(reason):\n    pass", "no hook 'stoping'"),
    "wrong-argument": ("@hookimpl\ndef stopping(why):\n    pass", "no argument 'why'"),
}


def row_of(name):
    (record,) = (r for r in discover() if r.name == name)
    return record


@pytest.mark.parametrize("kind", BAD)
def test_a_probe_turns_a_bad_plugin_into_a_row(site, kind):
    code, got = BAD[kind]
    site.install("tin", code)
    row = probe(row_of("tin"))
    assert row.state == "broken"
    assert got in row.refusal.got


def test_a_probe_gives_up_on_a_plugin_that_hangs(site):
    site.install("tin", "import time\ntime.sleep(60)")
    row = probe(row_of("tin"), timeout_s=0.7)
    assert (row.state, row.refusal.got) == ("broken", "no answer in 0.7 s")


def test_a_plugin_that_prints_at_import_is_ready_with_a_note(site):
    site.install("tin", f"print('hello')\n{GOOD}")
    row = probe(row_of("tin"))
    assert (row.state, row.hooks) == ("ready", ("stopping",))
    assert row.notes == ("printed 6 bytes while it was loaded",)


@pytest.mark.parametrize("place", ["aa", "mm", "zz"])
def test_all_bad_plugins_at_once_are_rows_of_one_list(site, place):
    """Missing import, crash, hang, exit, print, duplicate, newer API: first, middle, last."""
    site.install("bb", GOOD)
    site.install("yy", GOOD)
    for kind in ("missing-import", "segfault", "exit", "misspelt-hook"):
        site.install(f"{place}_{kind}".replace("-", "_"), BAD[kind][0], distribution=kind)
    site.install(f"{place}_hang", "import time\ntime.sleep(60)", distribution="hang")
    site.install(f"{place}_print", f"print('{{')\n{GOOD}", distribution="print")
    site.install(f"{place}_twin", distribution="twin-a")
    site.install(f"{place}_twin", distribution="twin-b")
    site.install(f"{place}_new", distribution="new", manifest='api = 9\ntitle = "n"\n')
    rows = site.rows("--probe", "--probe-timeout", "3")
    states = {name: row["state"] for name, row in rows.items() if name != "mstar-core"}
    expected = dict.fromkeys(("missing-import", "segfault", "exit", "misspelt-hook"), "broken")
    expected |= {"hang": "broken", "twin-a": "shadowed", "twin-b": "shadowed"}
    expected |= {"new": "incompatible", "print": "ready"}
    expected |= {"mstar-bb": "ready", "mstar-yy": "ready"}
    assert {name: states[name] for name in expected} == expected
    assert all(rows[name]["why"]["fix"] for name in expected if expected[name] != "ready")


def test_strict_exits_1_when_anything_is_broken(site):
    site.install("tin", manifest="api = 1\n")
    assert site.cli("list-plugins").returncode == 0
    assert site.cli("list-plugins", "--strict").returncode == 1
    assert site.cli("list-plugins", "--strict", "--disable", "tin").returncode == 0


def test_help_and_list_work_while_a_plugin_is_broken(site):
    """PL-01: the commands that explain plugins do not need them."""
    site.install("tin", "import not_there_at_all")
    assert site.cli("--help").returncode == 0
    done = site.cli("list-plugins", "--probe")
    assert done.returncode == 0
    assert "No module named 'not_there_at_all'" in done.stdout
    assert "pip uninstall mstar-tin" in done.stdout


def test_list_plugins_refuses_a_flag_that_names_nobody(site):
    site.install("tin")
    done = site.cli("list-plugins", "--disable", "tinn")
    assert done.returncode == 1
    assert "fix   write 'tin'" in done.stderr
