"""The CUDA device and its graphs: what only a GPU can show."""

# ruff: noqa: TID251  (the device itself is under test)

import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from mstar_core.engine.device import open_device
from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.staging import ReadBack, Staging, StaticBlock, pack_reads
from mstar_core.errors import DeviceFault
from mstar_core.fixed import FixedBuffers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
KEY = ("inputs", "x")


@pytest.fixture
def device():
    return open_device("cuda")


@pytest.fixture
def graphs(device):
    from mstar_core.engine.graphs_cuda import CudaGraphs

    return CudaGraphs(device)


@pytest.fixture
def module(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)).to(device.torch_device)


def block_of(device, name, rows=4):
    buffers = FixedBuffers(device.torch_device)
    return buffers, StaticBlock.claim(buffers, name, {KEY: np.zeros((rows, 8), np.float32)})


def test_a_graph_replays_what_was_staged_into_its_block(device, graphs, module):
    buffers, block = block_of(device, "decode")
    graph = graphs.capture("decode", lambda: {"y": module(block.views[KEY])}, [block.block])
    staging = Staging(device, buffers, depth=2, max_bytes=256)
    read_back = ReadBack(device, depth=2, max_bytes=256)
    rng, waiting = np.random.default_rng(0), []
    for _ in range(20):
        x = rng.standard_normal((4, 8)).astype(np.float32)
        landing = read_back.lend()
        staging.stage({KEY: x}, block)
        device.run(lambda to=landing: (graph.replay(), to.copy_out(*pack_reads(graph.outputs))))
        waiting.append((x, landing, device.record()))
        if len(waiting) == 2:
            sent, landed, event = waiting.pop(0)
            event.wait(10.0)
            with torch.no_grad():
                want = module(torch.from_numpy(sent).to(device.torch_device)).cpu().numpy()
            np.testing.assert_allclose(landed.arrays()["y"], want, rtol=1e-4, atol=1e-5)


def test_host_blocks_in_flight_are_not_rewritten_while_a_copy_is_late(device):
    """KV-13: 40 steps without a read, behind a stream that is held up."""
    buffers, block = block_of(device, "late")
    staging = Staging(device, buffers, depth=3, max_bytes=256)
    seen, events = [], []
    for n in range(40):
        device.run(lambda: torch.cuda._sleep(2_000_000))
        staging.stage({KEY: np.full((4, 8), n, np.float32)}, block)
        device.run(lambda: seen.append(block.views[KEY].clone()))
        events.append(device.record())
        if n >= 2:
            events[n - 2].wait(10.0)
    device.synchronize()
    assert [int(s[0, 0]) for s in seen] == list(range(40))


def test_graphs_of_several_buckets_share_a_pool_and_keep_their_outputs(device, graphs, module):
    """CG-09: the output of one graph is not written by another's replay."""
    blocks = [block_of(device, f"b{n}", rows=n)[1] for n in (8, 4, 2)]
    made = [
        graphs.capture(f"b{b.views[KEY].shape[0]}", lambda b=b: {"y": module(b.views[KEY])}, [])
        for b in blocks
    ]
    for n, b in enumerate(blocks):
        b.views[KEY].fill_(float(n + 1))
    device.synchronize()
    for graph in made:
        device.run(graph.replay)
    device.synchronize()
    for b, graph in zip(blocks, made, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(graph.outputs["y"], module(b.views[KEY]))


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x[x > 0],
        lambda x: x * x.sum().item(),
        lambda x: x + torch.tensor([1.0] * 8, device=x.device),
    ],
)
def test_what_the_recorder_refuses_breaks_a_capture_which_leaves_the_device_usable(
    device, graphs, module, bad
):
    """CG-05: the node falls back to eager; nothing is half captured."""
    _, block = block_of(device, "decode")
    with pytest.raises(CaptureRefused) as caught:
        graphs.capture("bad", lambda: {"y": bad(block.views[KEY])}, [block.block])
    assert caught.value.code == "capture-failed"
    assert torch.cuda.current_stream() != device.stream
    assert torch.rand(3, device=device.torch_device).shape == (3,)
    assert device.pinned((3,), torch.float32).is_pinned()
    graph = graphs.capture("good", lambda: {"y": module(block.views[KEY])}, [block.block])
    block.views[KEY].fill_(1.0)
    device.synchronize()
    device.run(graph.replay)
    device.record().wait(10.0)
    with torch.no_grad():
        torch.testing.assert_close(graph.outputs["y"], module(block.views[KEY]))


def test_an_error_of_the_forward_itself_is_raised_as_it_is(device, graphs):
    _, block = block_of(device, "decode")
    calls = []

    def fn():
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("a bug")
        return {"y": block.views[KEY] + 1}

    with pytest.raises(KeyError, match="a bug"):
        graphs.capture("bug", fn, [block.block])


def test_an_output_that_is_an_input_is_refused(device, graphs):
    _, block = block_of(device, "decode")
    with pytest.raises(CaptureRefused, match="memory that is an input"):
        graphs.capture("alias", lambda: {"y": block.views[KEY][:2]}, [block.block])


def test_copies_of_another_thread_do_not_break_a_capture(device, graphs, module):
    """CG-06."""
    _, block = block_of(device, "decode")
    stop = threading.Event()

    def copies():
        source = torch.zeros(1 << 16)
        while not stop.is_set():
            source.to(device.torch_device)

    thread = threading.Thread(target=copies)
    thread.start()
    try:
        for n in range(10):
            graphs.capture(f"g{n}", lambda: {"y": module(block.views[KEY])}, [block.block])
    finally:
        stop.set()
        thread.join()


def test_an_event_past_its_deadline_is_a_device_fault(device):
    device.run(lambda: torch.cuda._sleep(2_000_000_000))
    event, start = device.record(), time.monotonic()
    with pytest.raises(DeviceFault, match=r"not passed after 0.05 s"):
        event.wait(0.05)
    assert time.monotonic() - start < 0.5
    assert not event.done()
    event.wait(30.0)
    assert event.done()


def test_marks_tell_how_long_the_device_was_busy_between_them(device):
    begin = device.mark()
    device.run(lambda: torch.cuda._sleep(20_000_000))  # about 10 ms of its clock
    middle = device.mark()
    device.run(lambda: torch.cuda._sleep(20_000))
    end = device.mark()
    device.synchronize()
    assert middle.us_since(begin) > 1000
    assert 0 < end.us_since(middle) < middle.us_since(begin) / 10
    with pytest.raises(TypeError, match="another device"):
        end.us_since(open_device("cpu").mark())
