"""``mstar-core doctor``: this machine, each backend, each plugin's findings."""

import json

BACKENDS = """
@hookimpl
def provide_backends(registry):
    registry.add("sampling", "tin", "mstar_tin.sampling:BACKEND", priority=5)
    registry.add("sampling", "tin_gpu", "mstar_tin.sampling:BACKEND", hardware=("cuda>=99.0",))

@hookimpl
def doctor_checks(context):
    from mstar_core.errors import Refusal
    assert context.devices[0] == "cpu"
    return [Refusal(code="old", where="driver", got="v1", want="v2", fix="update the driver")]
"""
MANIFEST = """
api = 1
title = "Tin"
[offers]
backends = ["sampling.tin", "sampling.tin_gpu"]
"""
SAMPLING = """
from mstar_core.errors import Refusal

class Tin:
    def available(self, device):
        return Refusal(code="no", where="tin", got="no tin", want="tin", fix="buy tin")

BACKEND = Tin()
"""


def report(site, *names, code):
    done = site.cli("doctor", "--json", *names)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def backend(document, operation, name):
    (row,) = (b for b in document["backends"] if (b["operation"], b["name"]) == (operation, name))
    return row


def test_a_backend_that_does_not_apply_says_why_and_the_others_are_listed(site):
    module = site.install("tin", BACKENDS, manifest=MANIFEST)
    (module.parent / "sampling.py").write_text(SAMPLING)
    document = report(site, "tin", code=1)
    assert backend(document, "sampling", "tin")["why"]["got"] == "no tin"
    assert backend(document, "sampling", "tin_gpu")["why"]["want"] == "cuda>=99.0"
    assert backend(document, "sampling", "torch")["owner"] == "mstar-core 0.1.0"
    (row,) = document["plugins"]
    assert [finding["fix"] for finding in row["findings"]] == ["update the driver"]


def test_the_core_names_its_versions_and_devices_even_where_torch_cannot_be_imported(site):
    document = report(site, code=0)
    assert document["devices"][0] == "cpu"
    assert document["packages"]["attrs"]
    assert "torch" in backend(document, "sampling", "torch")["why"]["got"]


def test_a_broken_plugin_makes_the_doctor_exit_1_and_keeps_its_row(site):
    site.install("tin", "import os\nos.abort()")
    document = report(site, "tin", code=1)
    assert document["plugins"][0]["why"]["got"] == "died of SIGABRT while it was loaded"


def test_a_plugin_whose_own_check_fails_is_a_finding(site):
    site.install("tin", "@hookimpl\ndef doctor_checks(context):\n    return 1 / 0\n")
    document = report(site, "tin", code=1)
    assert document["plugins"][0]["findings"][0]["got"] == "ZeroDivisionError: division by zero"


def test_a_name_that_nobody_has_is_a_wrong_command_line(site):
    site.install("tin")
    done = site.cli("doctor", "tinn")
    assert (done.returncode, "fix   write 'tin'" in done.stderr) == (2, True)


def test_the_text_shows_each_plugin_with_what_is_wrong_and_how_to_mend_it(site):
    site.install("tin", "import not_there_at_all")
    done = site.cli("doctor", "tin")
    assert "plugin tin (mstar-tin 0.1.0): broken" in done.stdout
    assert "fix: pip install -U mstar-tin, or pip uninstall mstar-tin" in done.stdout
