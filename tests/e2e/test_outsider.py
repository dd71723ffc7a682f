"""Plugins that were never in this repository: written here, built, installed, held to the kit."""

import json

import pytest

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "mstar-{name}"
version = "0.1.0"
dependencies = ["mstar-core>=0.1,<0.2"]
[project.entry-points."mstar_core.plugins"]
{name} = "mstar_{name}.plugin"
"""
MODEL_PLUGIN = '''
"""An outsider's model."""
from mstar_core import hookimpl

@hookimpl
def provide_models(registry):
    registry.add("abacus", "mstar_abacus.model:Abacus")
'''
MODEL = '''
"""Adds up: the next token is the sum of all tokens before it, stirred."""
import numpy as np
import torch
from mstar_core.model.base import Model, NodeSubmodule
from mstar_core.model.front import Front, Request
from mstar_core.model.walks import Input, Loop, Node, Once, Output, Sequence, Walk
from mstar_core.model.weights import WeightMap
from mstar_core.resources.base import ResourceSpec

VOCAB = 64
HEADS = {"num_heads": 1, "num_kv_heads": 1, "head_dim": 4}

def following(total):
    return (total * 31 + 7) % VOCAB

class AbacusFront(Front):
    def decode(self, ids):
        return "".join(chr(32 + i) for i in ids)

    def text_request(self, prompt, **options):
        return Request(arrays={"ids": np.array([(ord(c) - 32) % VOCAB for c in prompt])}, **options)

class Adding(NodeSubmodule):
    def __init__(self, env):
        super().__init__()
        self.sums, self.sampler = env.resource("sums"), env.resource("sampler")
        self.register_buffer("ids_V", torch.arange(VOCAB, device=env.device), persistent=False)

    def forward(self, walk, inputs, plans):
        plan, pool_S = plans["sums"], self.sums.layer(0)["sum"][:, 0]
        total_B = torch.where(plan.fresh_B, 0, pool_S[plan.slots_B])
        total_B = total_B.index_add(0, plans["rows"].row_T.long(), inputs["ids"])
        pool_S.index_copy_(0, plan.slots_B, total_B)
        logits_BV = (self.ids_V == following(total_B)[:, None]).float()
        sampled = self.sampler.sample(logits_BV, plans["sampler"])
        return {"ids": sampled.ids_B, "finite": sampled.finite_B}

class Abacus(Model):
    max_context = 128

    @classmethod
    def open(cls, folder, options):
        return cls()

    def nodes(self):
        shared = {
            "node": "adder",
            "samples": True,
            "inputs": (Input(name="ids", below=VOCAB, loops=True),),
            "outputs": (
                Output(name="ids", read=True, loops_to="ids"), Output(name="finite", read=True)
            ),
        }
        walks = (
            Walk(name="prefill", feed="prompt", chunkable=True, **shared),
            Walk(name="decode", feed="loop", **shared),
        )
        sums = {"num_layers": 1, "blocks": {"sum": ((1,), torch.int64)}}
        resources = (
            ResourceSpec(key="sums", kind="state", options=sums),
            ResourceSpec(key="rows", kind="attention", options=HEADS),
            ResourceSpec(
                key="sampler", kind="sampler", options={"vocab_size": VOCAB},
                depends_on={"carry": "carry"},
            ),
        )
        return (Node(name="adder", walks=walks, resources=resources),)

    def graph(self):
        return Sequence((Once("prefill"), Loop("decode")))

    def default_dtype(self):
        return torch.float32

    def build_submodule(self, node, env):
        return Adding(env)

    def weight_map(self, node):
        return WeightMap()

    def front(self):
        return AbacusFront()
'''
MODEL_TESTS = """
from mstar_abacus.model import following
from mstar_core.testing import ModelContract, PluginContract

class TestAbacus(ModelContract):
    config = "abacus"

    def requests(self, front):
        texts = ["one", "2", "three and four and five", "six"]
        return [front.text_request(t, max_new_tokens=4 + 3 * i) for i, t in enumerate(texts)]

    def oracle(self, request):
        tokens = request.arrays["ids"].tolist()
        for _ in range(request.max_new_tokens):
            tokens.append(following(sum(tokens)))
        return tokens[-request.max_new_tokens:]

class TestPlugin(PluginContract):
    name = "abacus"
    config = "abacus"
"""
BACKEND_PLUGIN = '''
"""A backend from outside."""
from mstar_core import hookimpl

@hookimpl
def provide_backends(registry):
    registry.add("sampling", "{name}", "mstar_{name}.sampling:BACKEND", priority={priority})
'''
BACKEND = '''
"""The core's sampling, by another name."""
from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend
from mstar_core.ops.sampling.torch_backend import BACKEND as DEFINITION

class {Class}(Backend):
    operation, name = "sampling", "{name}"

    def available(self, device):
        if device in {devices}:
            return None
        return Refusal(
            code="no-abacus", where="sampling.{name}", got="no abacus on the desk",
            want="an abacus with ten rows", fix="buy an abacus", owner="mstar-{name}",
        )

    def supports(self, request):
        return DEFINITION.supports(request)

    def bind(self, request):
        return DEFINITION.bind(request)

BACKEND = {Class}()
'''
BACKEND_TESTS = """
from mstar_core.testing import PluginContract, SamplingContract
from mstar_beads.sampling import BACKEND

class TestBeads(SamplingContract):
    backend = BACKEND

class TestPlugin(PluginContract):
    name = "beads"
"""


def backend(name, priority, devices):
    """The files of a plugin that brings ``sampling.NAME``."""
    words = {"name": name, "Class": name.title(), "priority": priority, "devices": devices}
    offers = f'[offers]\nbackends = ["sampling.{name}"]\n'
    return {
        f"{name}/pyproject.toml": PROJECT.format(name=name),
        f"{name}/mstar_{name}/__init__.py": "",
        f"{name}/mstar_{name}/plugin.py": BACKEND_PLUGIN.format(**words),
        f"{name}/mstar_{name}/sampling.py": BACKEND.format(**words),
        f"{name}/mstar_{name}/mstar_plugin.toml": f'api = 1\ntitle = "{name}"\n{offers}',
    }


OUTSIDERS = {
    "abacus/pyproject.toml": PROJECT.format(name="abacus"),
    "abacus/mstar_abacus/__init__.py": "",
    "abacus/mstar_abacus/plugin.py": MODEL_PLUGIN,
    "abacus/mstar_abacus/model.py": MODEL,
    "abacus/mstar_abacus/tiny/config.json": "{}",
    "abacus/mstar_abacus/configs/abacus.yaml": (
        "model: {name: abacus, path: 'package:mstar_abacus/tiny', load: random}\n"
    ),
    "abacus/mstar_abacus/mstar_plugin.toml": (
        'api = 1\ntitle = "Adds up"\nneeds_ops = ["sampling"]\nconfigs = "configs"\n'
        '[offers]\nmodels = ["abacus"]\n[capabilities]\ncapture = ["prefill", "decode"]\n'
    ),
    "abacus/tests/test_abacus.py": MODEL_TESTS,
    **backend("beads", 10, ("cpu",)),
    "beads/tests/test_beads.py": BACKEND_TESTS,
    **backend("never", 90, ()),
}
"""File → text of three distributions: a model, a backend, and one that applies nowhere."""
ANSWER = """
import json, sys
from mstar_core.engine import Engine
with Engine.open("abacus", ("device=cpu", *sys.argv[1:])) as engine:
    (result,) = engine.run([engine.front.text_request("one two", max_new_tokens=5)])
    (node,) = engine.report.nodes
(choice,) = [choice for choice in node.choices if choice.operation == "sampling"]
print(json.dumps([result.ids, choice.name, [str(r) for r in choice.passed_over]]))
"""
GOOD = "@hookimpl\ndef stopping(reason):\n    pass\n"
BAD = {
    "absent": "import not_there_at_all",
    "crash": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "hang": "import time\ntime.sleep(60)",
    "leaves": "import sys\nsys.exit(5)",
    "prints": f"print('hello')\n{GOOD}",
    "spells": "@hookimpl\ndef stoping(reason):\n    pass\n",
    "twin": GOOD,
    "newer": GOOD,
}
"""Plugin → its module. ``twin`` is installed twice, ``newer`` wants a hook API of the future."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outsiders")
    for name, text in OUTSIDERS.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture(scope="module")
def site(sources, site_of):
    return site_of([sources / name for name in ("abacus", "beads", "never")])


def answer(site, *sets):
    """Ids, the backend that sampled, and why others did not."""
    return json.loads(site.python(ANSWER, *sets))


def expected():
    tokens = [ord(c) - 32 for c in "one two"]
    tokens = [t % 64 for t in tokens]
    for _ in range(5):
        tokens.append((sum(tokens) * 31 + 7) % 64)
    return tokens[-5:]


def test_they_are_listed_from_their_wheels_beside_ours(site):
    rows = site.rows("--probe")
    assert rows["abacus"]["offers"]["models"] == ["abacus"]
    assert rows["beads"]["offers"]["backends"] == ["sampling.beads"]
    for name in ("abacus", "beads", "never", "qwen35", "whisper"):
        assert (rows[name]["state"], rows[name]["origin"]) == ("ready", "wheel")


@pytest.mark.parametrize("name", ["abacus", "beads"])
def test_their_suites_of_the_kit_pass_from_the_wheels(site, sources, name):
    last = site.suite(sources / name / "tests")
    assert "passed" in last
    assert int(last.split()[0]) > 30


def test_a_request_is_answered_by_the_outsiders_model_and_backend(site):
    ids, chosen, passed_over = answer(site, "nodes.adder.backends.sampling=beads")
    assert (ids, chosen, passed_over) == (expected(), "beads", [])


def test_auto_passes_over_a_backend_that_does_not_apply_and_says_why(site):
    ids, chosen, passed_over = answer(site)
    assert (ids, chosen) == (expected(), "beads")
    (why,) = passed_over
    assert "no abacus on the desk" in why
    doctor = json.loads(site.cli("doctor", "--json", "never"))
    (row,) = [b for b in doctor["backends"] if b["name"] == "never"]
    assert (row["applies"], row["why"]["got"]) == (False, "no abacus on the desk")


def test_a_backend_that_does_not_apply_and_is_asked_for_is_an_error_that_names_it(site):
    code = """
import sys
from mstar_core.engine import Engine
from mstar_core.errors import ConfigError
try:
    Engine.open("abacus", ("device=cpu", "nodes.adder.backends.sampling=never"))
except ConfigError as error:
    print(error, error.__cause__)
"""
    told = site.python(code)
    assert "nodes.adder.backends.sampling" in told
    assert "'never'" in told
    assert "buy an abacus" in told
    assert "no abacus on the desk" in told


def install_bad(folder, name, distribution=""):
    """Put one bad plugin into a site, as pip would leave it."""
    distribution = distribution or f"bad-{name}"
    package = distribution.replace("-", "_")
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "plugin.py").write_text(f"from mstar_core import hookimpl\n{BAD[name]}")
    api = 9 if name == "newer" else 1
    offers = f'[offers]\nmodels = ["{package}"]\n' if name in ("crash", "hang") else ""
    manifest = f'api = {api}\ntitle = "{name}"\n{offers}'
    (folder / package / "mstar_plugin.toml").write_text(manifest)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mstar_core.plugins]\n{name} = {package}.plugin\n")


def test_bad_plugins_beside_them_are_rows_and_the_rest_works(sources, site_of):
    """Those that crash or hang offer a model of their own, so only a probe imports them."""
    site = site_of([sources / name for name in ("abacus", "beads")])
    for name in BAD:
        install_bad(site.folder, name)
    install_bad(site.folder, "twin", "bad-twin-too")
    document = json.loads(site.cli("list-plugins", "--json", "--probe", "--probe-timeout", "5"))
    states = {row["distribution"]: row["state"] for row in document["plugins"]}
    assert {name: states[f"bad-{name}"] for name in BAD} == {
        "absent": "broken",
        "crash": "broken",
        "hang": "broken",
        "leaves": "broken",
        "prints": "ready",
        "spells": "broken",
        "twin": "shadowed",
        "newer": "incompatible",
    }
    rows = [row for row in document["plugins"] if row["distribution"].startswith("bad-")]
    wrong = [row for row in rows if row["state"] != "ready"]
    assert len(wrong) == 8
    assert all(row["why"]["got"] and row["why"]["fix"] for row in wrong)
    assert answer(site)[:2] == [expected(), "beads"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("tiny_one", ()), ("fast", ("--kind", "backend", "--operation", "linear"))],
)
def test_a_new_plugin_installs_and_passes_its_own_tests(
    tmp_path, installed, site_of, name, options
):
    folder = tmp_path / "made"
    written = installed.cli("new-plugin", name, *options, "--folder", str(folder))
    assert f"{folder}/mstar_{name}/plugin.py" in written.splitlines()
    site = site_of([folder])
    assert site.rows("--probe")[name]["state"] == "ready"
    assert "passed" in site.suite(folder / "tests")
    if not options:
        said = site.cli("generate", "tiny_one_tiny", "--prompt", "Hello", "--set", "device=cpu")
        assert said.strip()
