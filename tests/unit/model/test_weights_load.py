"""Weight maps: matched as a whole, filled block by block, each parameter in its own dtype."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mstar_core.errors import CheckpointError
from mstar_core.model import load as load_module
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.load import load_weights, random_weights
from mstar_core.model.weights import Rule, Source, WeightMap, plan_weights


class Mixer(nn.Module):
    """Packed q/k/v, a conv weight without its middle axis, and a decay that stays fp32."""

    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(8, 4, dtype=dtype))
        self.conv = nn.Parameter(torch.empty(4, 3, dtype=dtype))
        self.A_log = nn.Parameter(torch.empty(4, dtype=torch.float32))
        self.register_buffer("count", torch.empty((), dtype=torch.int64))
        self.register_buffer("table", torch.empty(2), persistent=False)
        self.sum = None

    def finalize_weights(self):
        self.sum = self.qkv.float().sum()
        self.table = torch.arange(2.0)


STORED = {
    "q": torch.randn(4, 4),
    "k": torch.randn(2, 4),
    "v": torch.randn(2, 4),
    "conv.weight": torch.randn(4, 1, 3),
    "A_log": torch.full((4,), 0.1234567),
    "count": torch.tensor(7),
}
RULES = (Rule.of("qkv", "q", "k", "v"), Rule.of("conv", "conv.weight"))


def meta(build):
    with torch.device("meta"):
        return build()


def load(tmp_path, module, weight_map, stored, **settings):
    save_file(stored, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    return load_weights({"text": module}, {"text": weight_map}, checkpoint, "cpu", **settings)


def problems(module, weight_map, shapes, dtypes=None):
    with pytest.raises(CheckpointError) as caught:
        plan_weights({"n": module}, {"n": weight_map}, shapes, dtypes=dtypes)
    return [" ".join(line.split()) for line in str(caught.value.got).splitlines()[1:]]


def shapes_of(stored):
    return {name: tuple(tensor.shape) for name, tensor in stored.items()}


@pytest.mark.parametrize("build", [Mixer, lambda: meta(Mixer)])
def test_parameters_are_filled_from_rows_of_several_tensors(tmp_path, build):
    module = build()
    report = load(tmp_path, module, WeightMap(rules=RULES), STORED)
    packed = torch.cat([STORED["q"], STORED["k"], STORED["v"]])
    assert torch.equal(module.qkv, packed.bfloat16())
    assert torch.equal(module.conv, STORED["conv.weight"][:, 0].bfloat16())
    assert module.count.item() == 7
    assert report.num_tensors == 4
    assert report.num_bytes == 8 * 4 * 2 + 4 * 3 * 2 + 4 * 4 + 8


def test_what_is_built_in_fp32_stays_bit_equal_to_the_file(tmp_path):
    """W-06: A_log in a bf16 model."""
    module = meta(Mixer)
    load(tmp_path, module, WeightMap(rules=RULES), STORED)
    assert module.A_log.dtype == torch.float32
    assert torch.equal(module.A_log, STORED["A_log"])
    assert not torch.equal(module.A_log.bfloat16().float(), STORED["A_log"])


def test_a_row_range_splits_one_tensor_over_two_parameters(tmp_path):
    module = nn.ModuleDict({"a": nn.Linear(3, 2, bias=False), "b": nn.Linear(3, 4, bias=False)})
    whole = torch.randn(6, 3)
    rules = (
        Rule("a.weight", (Source("w", (4, 6)),)),
        Rule("b.weight", (Source("w", (0, 1)), Source("w", (1, 4)))),
    )
    load(tmp_path, module, WeightMap(rules=rules), {"w": whole})
    assert torch.equal(module["a"].weight, whole[4:])
    assert torch.equal(module["b"].weight, whole[:4])


def test_finalising_follows_loading_and_inner_modules_come_first(tmp_path):
    order = []

    class Part(nn.Module):
        def __init__(self, name, *parts):
            super().__init__()
            self.name, self.parts = name, nn.ModuleList(parts)
            self.w = nn.Parameter(torch.zeros(1))

        def finalize_weights(self):
            order.append((self.name, self.w.item()))

    stored = {"w": torch.tensor([1.0]), "parts.0.w": torch.tensor([2.0])}
    load(tmp_path, Part("outer", Part("inner")), WeightMap(), stored)
    assert order == [("inner", 2.0), ("outer", 1.0)]


def test_a_tensor_that_nothing_fills_is_named(tmp_path):
    class Forgetful(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.empty(2), persistent=False)
            self.w = nn.Parameter(torch.empty(1))

    with pytest.raises(CheckpointError, match=r"nothing fills: text\.table"):
        load(tmp_path, meta(Forgetful), WeightMap(), {"w": torch.ones(1)})


def test_progress_counts_every_byte_of_the_file_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(load_module, "BLOCK_BYTES", 32)
    module, seen = meta(Mixer), []
    load(tmp_path, module, WeightMap(rules=RULES), STORED, progress=lambda *at: seen.append(at))
    total = sum(tensor.nbytes for tensor in STORED.values())
    assert seen[-1] == (total, total)
    assert len(seen) == 2 + 1 + 1 + 2 + 1 + 1
    assert torch.equal(module.qkv[:4], STORED["q"].bfloat16())


class Allocations(TorchDispatchMode):
    """Bytes of every storage that is new to it."""

    def __init__(self):
        super().__init__()
        self.new = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.device.type == "cpu" and "empty" in str(func):
            self.new[out.untyped_storage().data_ptr()] = out.nbytes
        return out


def test_loading_allocates_the_parameters_once_and_never_in_fp32_first(tmp_path, monkeypatch):
    """W-06: peak at most 1.1 times the final size."""
    monkeypatch.setattr(load_module, "BLOCK_BYTES", 1 << 12)
    module = meta(lambda: nn.Linear(512, 512, bias=False, dtype=torch.bfloat16))
    with Allocations() as allocations:
        report = load(tmp_path, module, WeightMap(), {"weight": torch.randn(512, 512)})
    assert sum(allocations.new.values()) + (1 << 12) <= 1.1 * report.num_bytes


# --- what is wrong is told as a whole


def test_everything_that_does_not_fit_is_named_in_one_error():
    shapes = shapes_of(STORED) | {"extra": (3,), "conv.weight": (4, 1, 5), "mtp.fc": (9, 9)}
    del shapes["k"]
    weight_map = WeightMap(rules=RULES, set_aside=("mtp.*",))
    assert problems(meta(Mixer), weight_map, shapes) == [
        "missing k rows of qkv",
        "wrong shape conv.weight [4, 1, 5]; want conv [4, 3]",
        "unused extra [3]",
    ]


def test_rows_that_do_not_add_up_are_a_wrong_shape():
    shapes = shapes_of(STORED) | {"v": (3, 4)}
    (problem,) = problems(meta(Mixer), WeightMap(rules=RULES), shapes)
    assert problem == "wrong shape q [4, 4], k [2, 4], v [3, 4]; want qkv [8, 4]"


def test_rows_that_nobody_takes_and_rows_that_do_not_exist_are_named():
    module = nn.Linear(3, 2, bias=False)
    weight_map = WeightMap(rules=(Rule("weight", (Source("w", (1, 3)),)),))
    assert problems(module, weight_map, {"w": (6, 3)}) == [
        "unused w rows 0 to 1",
        "unused w rows 3 to 6",
    ]
    assert "wrong shape w [2, 3] rows 1 to 3; want weight [2, 3]" in problems(
        module, weight_map, {"w": (2, 3)}
    )


def test_a_map_that_names_no_parameter_or_one_twice_is_told():
    weight_map = WeightMap(rules=(*RULES, Rule.of("nope", "q"), Rule.of("conv", "q")))
    told = problems(meta(Mixer), weight_map, shapes_of(STORED))
    assert told == ["no parameter nope, which the weight map fills", "filled twice conv"]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "I64"])
def test_a_stored_dtype_that_needs_a_scale_is_refused(dtype):
    dtypes = dict.fromkeys(STORED, "F32") | {"q": dtype, "count": "I64"}
    (problem,) = problems(meta(Mixer), WeightMap(rules=RULES), shapes_of(STORED), dtypes)
    assert problem == f"wrong dtype q is {dtype}; want a dtype that becomes bfloat16"


def test_nothing_is_changed_when_something_does_not_fit(tmp_path):
    """W-01: all fail before any parameter is changed."""
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    with pytest.raises(CheckpointError, match="missing"):
        load(tmp_path, module, WeightMap(), {"weight": torch.ones(2, 3)})
    assert torch.equal(module.weight, before)
    empty = meta(lambda: nn.Linear(3, 2))
    with pytest.raises(CheckpointError):
        load(tmp_path, empty, WeightMap(), {"weight": torch.ones(2, 3)})
    assert empty.weight.is_meta


def test_known_tensors_are_set_aside_and_listed(tmp_path):
    stored = {"weight": torch.ones(2, 3), "mtp.a": torch.ones(1), "visual.b.c": torch.ones(1)}
    module = nn.Linear(3, 2, bias=False)
    report = load(tmp_path, module, WeightMap(set_aside=("mtp.*", "visual.*")), stored)
    assert report.set_aside == ("mtp.a", "visual.b.c")


# --- other spellings, tied tensors, several nodes


@pytest.mark.parametrize("prefix", ["model.language_model.", "model.", ""])
def test_another_prefix_is_accepted(tmp_path, prefix):
    module = nn.Linear(3, 2, bias=False)
    weight_map = WeightMap(
        rules=(Rule.of("weight", "model.language_model.norm.weight"),),
        aliases={"model.language_model.": ("model.", "")},
    )
    stored = {f"{prefix}norm.weight": torch.randn(2, 3)}
    load(tmp_path, module, weight_map, stored)
    assert torch.equal(module.weight, stored[f"{prefix}norm.weight"])


def test_a_tensor_under_two_spellings_is_given_twice():
    module = nn.Linear(3, 2, bias=False)
    weight_map = WeightMap(rules=(Rule.of("weight", "a.w"),), aliases={"a.": ("",)})
    told = problems(module, weight_map, {"a.w": (2, 3), "w": (2, 3)})
    assert "given twice a.w and w" in told


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.lm_head = nn.Linear(3, 5, bias=False)
        self.lm_head.weight = self.embed.weight


TIED = WeightMap(tied=(("embed.weight", "lm_head.weight"),))


@pytest.mark.parametrize("name", ["embed.weight", "lm_head.weight"])
@pytest.mark.parametrize("build", [Tied, lambda: meta(Tied)])
def test_either_name_of_a_tied_tensor_fills_both(tmp_path, name, build):
    """W-04: only one alias is stored."""
    module, weight = build(), torch.randn(5, 3)
    report = load(tmp_path, module, TIED, {name: weight})
    assert module.embed.weight is module.lm_head.weight
    assert torch.equal(module.lm_head.weight, weight)
    assert (report.num_tensors, report.num_bytes) == (1, weight.nbytes)


def test_a_tied_tensor_that_is_stored_twice_counts_by_its_first_name(tmp_path):
    first, second = torch.randn(5, 3), torch.randn(5, 3)
    module = Tied()
    load(tmp_path, module, TIED, {"embed.weight": first, "lm_head.weight": second})
    assert torch.equal(module.embed.weight, first)
    told = problems(Tied(), TIED, {"embed.weight": (5, 3), "lm_head.weight": (4, 3)})
    assert told == ["wrong shape lm_head.weight [4, 3]; want [5, 3] as embed.weight"]


def test_a_tied_tensor_that_is_not_stored_at_all_is_missing():
    """W-04: strict accounting."""
    assert problems(Tied(), TIED, {}) == ["missing embed.weight [5, 3]"]


def test_the_nodes_of_a_model_share_one_checkpoint(tmp_path):
    modules = {"encoder": nn.Linear(3, 2, bias=False), "decoder": nn.Linear(2, 2, bias=False)}
    maps = {name: WeightMap(rules=(Rule.of("weight", f"{name}.w"),)) for name in modules}
    stored = {"encoder.w": torch.randn(2, 3), "decoder.w": torch.randn(2, 2)}
    save_file(stored, tmp_path / "model.safetensors")
    load_weights(modules, maps, open_checkpoint(tmp_path), "cpu")
    assert torch.equal(modules["decoder"].weight, stored["decoder.w"])
    with pytest.raises(CheckpointError, match=r"unused +decoder\.w"):
        plan_weights(
            {"encoder": modules["encoder"]}, maps | {}, {"encoder.w": (2, 3), "decoder.w": (2, 2)}
        )


# --- random weights


def test_random_weights_are_the_same_for_one_seed_and_differ_for_another():
    def made(seed):
        module = meta(lambda: nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32)))
        report = random_weights({"text": module}, seed, "cpu")
        assert report.num_tensors == 4
        return module.state_dict()

    one, again, other = made(1), made(1), made(2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])
    assert 0.5 < one["0.weight"].std() * 8 < 2
    assert torch.equal(one["1.weight"], torch.ones(32))
    assert torch.equal(one["0.bias"], torch.zeros(32))


def test_a_module_may_choose_its_own_random_weights():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4))

        def init_random(self, generator):
            self.weight.normal_(5.0, 0.1, generator=generator)

    module = meta(Norm)
    random_weights({"text": module}, 0, "cpu")
    assert (module.weight > 4).all()


# --- published sizes


def expanded(listing):
    """Names and shapes of a listing whose layers are folded as ``{0..23}``."""
    shapes = {}
    for entry in listing["keys"]:
        names = [entry["name"]]
        while match := re.search(r"\{(\d+)\.\.(\d+)\}", names[0]):
            layers = range(int(match[1]), int(match[2]) + 1)
            names = [n.replace(match[0], str(i), 1) for n in names for i in layers]
        shapes |= dict.fromkeys(names, tuple(entry["shape"]))
    return shapes


LISTING = Path(__file__).parents[4] / "shared" / "models" / "weights" / "whisper-tiny.en.json"


@pytest.mark.shared
@pytest.mark.skipif(not LISTING.exists(), reason="the shared reference folder is not beside it")
def test_a_published_listing_is_matched_without_any_file():
    shapes = expanded(json.loads(LISTING.read_text()))
    module = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        at = module
        for part in path:
            if part not in at._modules:
                at.add_module(part, nn.Module())
            at = at._modules[part]
        at.register_parameter(last, nn.Parameter(torch.empty(shape, device="meta")))
    plan = plan_weights({"all": module}, {"all": WeightMap()}, shapes)
    assert len(plan.fills) == len(shapes) == 167
