"""Operations beside their floors, on a CPU and at sizes that take no time."""

import sys
from types import ModuleType

import attrs
import pytest
import torch

from mstar_core.bench import ops
from mstar_core.bench.op_subjects import Sizes, subjects
from mstar_core.cli import main
from mstar_core.errors import Refusal
from mstar_core.ops.backend import Backend
from mstar_core.plugins.builtin import OPERATIONS, core_registries

SMALL = Sizes(
    heads=(4, 2, 16), encoder=(2, 2, 8), delta=(2, 4, 8), projections=((24, 16),),
    gated=(24, 16), outputs=((16, 24),), vocab=(64, 16), context=40, prompt=9, clip=7,
    page_tokens=8, prompts=(2,),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(ops, "ROUND_S", 1e-6)
    monkeypatch.setattr(ops, "MOST_COPIES", 2)


def test_every_operation_is_timed_by_the_core_itself():
    _, _, backends = core_registries()
    found = list(ops.measure(backends, "cpu", torch.float32, [1, 3], sizes=SMALL))
    assert {one.operation for one in found} == OPERATIONS
    assert [one for one in found if one.refused] == []
    assert all(one.us > 0 and one.ratio == one.us / one.floor_us for one in found)


def test_only_some_operations_are_timed():
    _, _, backends = core_registries()
    found = list(ops.measure(backends, "cpu", torch.float32, [2], ("linear",), SMALL))
    assert [one.shape for one in found] == [
        "norm_linear 2 x 16 -> 24",
        "norm_linear 2 x 16 -> 64",
        "norm_gated 2 x 16 -> 24",
        "linear_residual 2 x 24 -> 16",
    ]


class Refuses(Backend):
    operation, name = "linear", "never"

    def available(self, device):
        return Refusal(code="never", where="here", got="this", want="that", fix="nothing")

    def bind(self, request):
        raise NotImplementedError


class Breaks(Backend):
    operation, name = "linear", "broken"

    def bind(self, request):
        raise RuntimeError("no such kernel")


def test_a_backend_that_refuses_or_breaks_is_a_line_without_a_time(monkeypatch):
    _, _, backends = core_registries()
    here = ModuleType("offered_here")
    here.NEVER, here.BROKEN = Refuses(), Breaks()
    monkeypatch.setitem(sys.modules, "offered_here", here)
    for name in ("NEVER", "BROKEN"):
        backends.add("linear", name.lower(), f"offered_here:{name}")
    found = {
        one.backend: one
        for one in ops.measure(backends, "cpu", torch.float32, [2], ("linear",), SMALL)
    }
    assert "want that" in found["never"].refused
    assert "no such kernel" in found["broken"].refused
    assert found["torch"].us > 0


class Plans(Breaks):
    """Plans prompts on the host, so no graph can hold them; and asks for what it was not given."""

    operation, name = "paged_attention", "plans"

    def supports(self, request):
        return request.geometry["window"] if request.geometry["head_dim"] > 64 else None

    def capture_refusal(self, bucket):
        if bucket.kind == "decode":
            return None
        return Refusal(code="plans", where="here", got=str(bucket), want="decode", fix="nothing")


def test_what_no_graph_can_hold_is_refused_and_not_timed(monkeypatch):
    """A kernel that was not planned would read what another step has left, in any time."""
    _, _, backends = core_registries()
    here = ModuleType("offered_here")
    here.PLANS = Plans()
    monkeypatch.setitem(sys.modules, "offered_here", here)
    backends.add("paged_attention", "plans", "offered_here:PLANS")

    def refused(sizes):
        found = ops.measure(backends, "cpu", torch.float32, [3], ("paged_attention",), sizes)
        return [one.refused for one in found if one.backend == "plans"]

    decode, prompt = refused(SMALL)
    assert "no such kernel" in decode
    assert "paged_attention 2x18" in prompt
    wide = attrs.evolve(SMALL, heads=(1, 1, 128))
    assert refused(wide) == ["KeyError('window')"] * 2


def test_a_floor_is_what_bytes_or_products_take():
    here = ops.Limits(bytes_per_us=100.0, flops_per_us=1000.0)
    by_name = {(s.operation, s.shape): s for s in subjects(Sizes(), [16], 2)}
    decode = by_name["gated_delta", "16 x 1"]
    assert here.floor_us(decode) == decode.num_bytes / 100
    assert decode.num_bytes > 2 * 16 * 16 * 128 * 128 * 4
    prompt = by_name["paged_attention", "8 x 512"]
    assert here.floor_us(prompt) == prompt.num_flops / 1000


OPS = ("bench", "ops", "--rows", "1", "--dtype", "fp32", "--only", "sampling")


def test_the_verb_prints_a_line_for_each(capsys):
    assert main([*OPS, "--device", "cpu"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()[-3:]
    assert "floor us" in heading
    assert [line.split()[:3] for line in lines] == [
        ["sampling", "torch", "greedy"],
        ["sampling", "torch", "drawn"],
    ]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("cpux", "cpu, cuda or cuda:INDEX"),
        ("cuda:", "cpu, cuda or cuda:INDEX"),
        ("cuda:first", "cpu, cuda or cuda:INDEX"),
        ("meta", "cpu, cuda or cuda:INDEX"),
        ("cuda:99", ""),
    ],
)
def test_a_device_that_is_none_or_not_there_is_refused_by_its_name(name, want, capsys):
    assert main([*OPS, "--device", name]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Error: device\n  got   {name!r}\n  want  {want}")


def test_an_operation_that_there_is_not_is_refused_with_those_that_there_are(capsys):
    assert main(["bench", "ops", "--device", "cpu", "--only", "samplin"]) == 2
    err = capsys.readouterr().err
    assert all(repr(operation) in err for operation in OPERATIONS)
