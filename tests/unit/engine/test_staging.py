"""One block in, one row out, through rings."""

import numpy as np
import pytest
import torch

from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.staging import BlockLayout, ReadBack, Staging, StaticBlock, pack_reads
from mstar_core.errors import SealedError
from mstar_core.fixed import FixedBuffers

CPU = torch.device("cpu")


def arrays_of(value: int) -> dict[tuple[str, str], np.ndarray]:
    return {
        ("inputs", "ids"): np.full(3, value, np.int64),
        ("kv", "pages_BW"): np.full((2, 3), value, np.int32),
        ("kv", "none"): np.zeros((0, 4), np.int64),
        ("state", "fresh_B"): np.array([True, False, True]),
        ("sampler", "temperature_B"): np.full(2, value / 2, np.float32),
    }


def test_arrays_lie_end_to_end_on_sixteen_byte_boundaries():
    layout = BlockLayout.of(arrays_of(1))
    assert [p.offset for p in layout.places.values()] == [0, 32, 64, 64, 80]
    assert layout.num_bytes == 96


@pytest.mark.parametrize("captured", [False, True])
def test_arrays_arrive_with_their_shapes_dtypes_and_values(captured):
    buffers = FixedBuffers(CPU)
    target = StaticBlock.claim(buffers, "decode", arrays_of(0)) if captured else None
    staging = Staging(CpuDevice(), buffers, depth=2, max_bytes=256)
    sent = arrays_of(5)
    got = staging.stage(sent, target)
    assert list(got) == list(sent)
    for key, array in sent.items():
        assert got[key].dtype == torch.from_numpy(array).dtype
        np.testing.assert_array_equal(got[key].numpy(), array)


def test_a_static_block_keeps_its_addresses():
    buffers = FixedBuffers(CPU)
    target = StaticBlock.claim(buffers, "decode", arrays_of(0))
    staging = Staging(CpuDevice(), buffers, depth=2, max_bytes=256)
    before = {k: v.data_ptr() for k, v in target.views.items()}
    assert {k: v.data_ptr() for k, v in staging.stage(arrays_of(1), target).items()} == before
    assert target.block.untyped_storage().data_ptr() in buffers.storages()


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (lambda a: a.update({("kv", "pages_BW"): np.zeros((2, 4), np.int32)}), "int32[2, 3]"),
        (lambda a: a.update({("kv", "pages_BW"): np.zeros((2, 3), np.int64)}), "int32[2, 3]"),
        (lambda a: a.pop(("kv", "pages_BW")), "present"),
        (lambda a: a.update({("kv", "more"): np.zeros(1)}), "absent"),
    ],
)
def test_arrays_unlike_those_at_capture_are_an_error_that_names_them(change, want):
    buffers = FixedBuffers(CPU)
    target = StaticBlock.claim(buffers, "decode", arrays_of(0))
    arrays = arrays_of(1)
    change(arrays)
    with pytest.raises(SealedError) as caught:
        Staging(CpuDevice(), buffers, depth=1, max_bytes=256).stage(arrays, target)
    assert "kv." in caught.value.where
    assert want in caught.value.want


def test_a_step_larger_than_the_ring_is_an_error_with_both_sizes():
    staging = Staging(CpuDevice(), FixedBuffers(CPU), depth=1, max_bytes=16)
    with pytest.raises(SealedError, match=r"96 bytes[\s\S]*16 bytes"):
        staging.stage(arrays_of(1))


def run_steps(depth: int, in_flight: int, lag: Lag, num_steps: int = 12) -> list[int]:
    """What the device saw in each step, with ``in_flight`` entries between launch and retire."""
    device, buffers = CpuDevice(lag), FixedBuffers(CPU)
    staging = Staging(device, buffers, depth, max_bytes=64)
    target = StaticBlock.claim(buffers, "decode", {("i", "x"): np.zeros(1, np.int64)})
    seen, events = [], []
    for n in range(num_steps):
        views = staging.stage({("i", "x"): np.array([n])}, target)
        device.run(lambda views=views: seen.append(int(views["i", "x"])))
        events.append(device.record())
        if n >= in_flight:
            events[n - in_flight].wait(1.0)
    device.synchronize()
    return seen


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
@pytest.mark.parametrize("lag", [Lag(), Lag(0), Lag(1), Lag(2)])
def test_with_one_block_more_than_steps_in_flight_every_step_reads_its_own(in_flight, lag):
    """KV-13."""
    assert run_steps(in_flight + 1, in_flight, lag) == list(range(12))


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_with_a_block_too_few_a_lagging_device_reads_a_later_step(in_flight):
    """KV-13: a host block rewritten while the copy still reads it is seen."""
    assert run_steps(in_flight, in_flight, Lag()) != list(range(12))


def read_steps(depth: int, in_flight: int, lag: Lag, num_steps: int = 8) -> list[float]:
    device = CpuDevice(lag)
    back = ReadBack(device, depth, max_bytes=64)
    waiting, got = [], []

    def retire():
        landing, event = waiting.pop(0)
        event.wait(1.0)
        got.append(float(landing.arrays()["x"][0]))

    for n in range(num_steps):
        landing = back.lend()
        device.run(
            lambda n=n, to=landing: to.copy_out(*pack_reads({"x": torch.full((2,), float(n))}))
        )
        waiting.append((landing, device.record()))
        if n >= in_flight:
            retire()
    while waiting:
        retire()
    return got


@pytest.mark.parametrize("lag", [None, Lag(), Lag(4)])
def test_each_entry_reads_back_its_own_outputs(lag):
    assert read_steps(depth=3, in_flight=2, lag=lag) == [float(n) for n in range(8)]


def test_a_landing_block_used_again_too_early_is_seen():
    assert read_steps(depth=1, in_flight=2, lag=None) != [float(n) for n in range(8)]


def test_a_landing_holds_several_outputs_and_nothing_before_its_event():
    device = CpuDevice(Lag())
    landing = ReadBack(device, depth=1, max_bytes=64).lend()
    outputs = {"ids": torch.tensor([4, 5]), "finite": torch.tensor([True, False])}
    device.run(lambda: landing.copy_out(*pack_reads(outputs)))
    assert landing.arrays() == {}
    device.record().wait(1.0)
    assert {k: v.tolist() for k, v in landing.arrays().items()} == {
        "ids": [4, 5],
        "finite": [True, False],
    }


def test_outputs_wider_than_the_landing_are_an_error_that_names_the_output():
    landing = ReadBack(CpuDevice(), depth=1, max_bytes=8).lend()
    with pytest.raises(SealedError, match="read-back of ids"):
        landing.copy_out(*pack_reads({"ids": torch.zeros(2, dtype=torch.int64)}))


def test_outputs_that_lie_end_to_end_are_read_where_they_lie():
    """A sampler's kernel writes them so; a gap, another order or another memory is packed."""
    block = torch.arange(40, dtype=torch.uint8)
    ids, logprobs = block[8:24].view(torch.int64), block[24:32].view(torch.float32)
    packed, places = pack_reads({"logprob": logprobs, "ids": ids})
    assert packed.data_ptr() == ids.data_ptr()
    assert packed.tolist() == list(range(8, 32))
    assert [places[name][2:] for name in ("ids", "logprob")] == [(0, 16), (16, 8)]
    for other in (block[28:36].view(torch.float32), logprobs.clone()):
        packed, _ = pack_reads({"logprob": other, "ids": ids})
        assert packed.tolist() == [*range(8, 24), *other.view(torch.uint8).tolist()]
        assert packed.data_ptr() != ids.data_ptr()
