"""The recorder: what it records, what it replays, what it refuses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.recorder import Recorder
from mstar_core.errors import DeviceFault
from mstar_core.fixed import FixedBuffers
from mstar_core.launch import launch


@pytest.fixture
def rig():
    return Rig()


class Rig:
    """Four input numbers, a pool and a two-layer module."""

    def __init__(self):
        self.buffers = FixedBuffers(torch.device("cpu"))
        self.x = self.buffers.claim("staging", "bucket", (4,), torch.float32)
        self.pool = self.buffers.claim("kv", "k", (8, 4), torch.float32)
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
        self.calls = 0

    def capture(self, fn):
        def forward():
            self.calls += 1
            return {"y": fn()}

        return Recorder(self.buffers, [self.module]).capture("g", forward, [self.x])

    def replayed(self, fn, values):
        graph = self.capture(fn)
        self.x.copy_(torch.tensor(values))
        graph.replay()
        return graph.outputs["y"]

    def eager(self, fn, values):
        self.x.copy_(torch.tensor(values))
        with torch.no_grad():
            return fn().clone()


GOOD = {
    "a module": lambda r: r.module(r.x),
    "views": lambda r: (r.x.view(2, 2).t() + 1).reshape(-1),
    "a changed view": lambda r: (r.x * 2).unsqueeze_(0).add_(1),
    "in place": lambda r: r.x.clone().mul_(3).masked_fill_(r.x > 2, 0),
    "several results": lambda r: torch.cat([*r.x.topk(2)]),
    "a list": lambda r: torch.cat([part * 2 for part in r.x.chunk(2)]),
    "where with a number": lambda r: torch.where(r.x > 1, r.x, -1.0),
    "an out argument": lambda r: torch.add(r.x, 1, out=torch.empty(4)),
    "allocate and fill": lambda r: torch.empty(4).fill_(2).add_(r.x),
    "attention": lambda r: F.scaled_dot_product_attention(*[r.x.view(1, 1, 2, 2)] * 3),
    "convolution": lambda r: F.conv1d(r.x.view(1, 1, 4), torch.ones(1, 1, 2)),
    "repeat with a known size": lambda r: torch.repeat_interleave(
        r.x, (r.x >= 0).long(), output_size=4
    ),
    "gather by a tensor": lambda r: r.pool[r.x.long()],
    "no rows": lambda r: torch.cat([r.x[:0], r.x + 1]),
    "ints": lambda r: r.x.long() * 2 + torch.arange(4),
    "a loop": lambda r: sum(v * n for n, v in enumerate(r.x)),
    "bfloat16": lambda r: (r.x.bfloat16() * 2).float(),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_replay_computes_what_the_forward_computes(rig, name):
    def fn():
        return GOOD[name](rig)

    values = [3.0, 0.0, 1.0, 2.0]
    torch.testing.assert_close(rig.replayed(fn, values), rig.eager(fn, values), rtol=0, atol=0)


def test_a_replay_runs_none_of_the_forwards_python(rig):
    graph = rig.capture(lambda: rig.module(rig.x))
    assert rig.calls == 2
    graph.replay()
    graph.replay()
    assert rig.calls == 2


def test_a_replay_follows_what_the_fixed_memory_holds_now(rig):
    graph = rig.capture(lambda: rig.x + rig.pool[0])
    for value in (1.0, 5.0):
        rig.x.fill_(value)
        rig.pool.fill_(value * 10)
        graph.replay()
        assert graph.outputs["y"].tolist() == [value * 11] * 4


def test_writes_to_a_fixed_buffer_are_replayed_once_each(rig):
    def fn():
        rig.pool.add_(1)
        return rig.pool.sum(0)

    graph = rig.capture(fn)
    rig.pool.zero_()
    graph.replay()
    graph.replay()
    assert rig.pool[0].tolist() == [2.0] * 4
    assert graph.outputs["y"].tolist() == [16.0] * 4


def test_outputs_are_poisoned_until_the_first_replay(rig):
    graph = rig.capture(lambda: rig.x + 1)
    assert graph.outputs["y"].isnan().all()


def test_allocated_memory_that_nobody_writes_is_poison_at_each_replay(rig):
    graph = rig.capture(lambda: torch.empty(4))
    for _ in range(2):
        graph.replay()
        assert graph.outputs["y"].isnan().all()
        graph.outputs["y"].zero_()


def test_what_an_operation_leaves_behind_its_result_is_poison_at_each_replay(rig):
    def first_of_two(x):
        two = x.new_zeros(2, *x.shape)
        two[0] = x
        return two[0]

    own = torch.library.Library("recorder_test", "DEF")
    own.define("first_of_two(Tensor x) -> Tensor")
    own.impl("first_of_two", first_of_two, "CPU")
    rig.x.copy_(torch.arange(1.0, 5.0))
    graph = rig.capture(
        lambda: torch.ops.recorder_test.first_of_two(rig.x).as_strided((2, 4), (4, 1))
    )
    for _ in range(2):
        graph.replay()
        assert graph.outputs["y"][0].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert graph.outputs["y"][1].isnan().all()
        graph.outputs["y"].zero_()


def test_an_index_that_nobody_writes_fails_the_replay_and_names_the_operation(rig):
    writes = [True, True]  # the warm-up and the recording, not the replay

    def kernel(index):
        if writes and writes.pop():
            index.zero_()

    def fn():
        index = torch.empty(4, dtype=torch.int64)
        launch(kernel, index)
        return rig.pool[index]

    graph = rig.capture(fn)
    with pytest.raises(DeviceFault, match=r"graph g, aten.index.Tensor of shapes \[\[8, 4\]"):
        graph.replay()


def test_memory_made_inside_is_counted(rig):
    assert rig.capture(lambda: (rig.x * 2).view(2, 2) + 1).num_bytes == 32


def test_a_launch_is_recorded_and_replayed_with_its_arguments(rig):
    def kernel(x, out, *, scale):
        out.numpy()[:] = x.numpy() * scale  # a foreign kernel reads memory as it likes

    def fn():
        out = torch.empty(4)
        launch(kernel, rig.x, out, scale=3)
        return out + 1

    assert rig.replayed(fn, [1.0, 2.0, 3.0, 4.0]).tolist() == [4.0, 7.0, 10.0, 13.0]


REFUSED = {
    "item": ("host-read", lambda r: r.x * r.x.sum().item()),
    "bool": ("host-read", lambda r: r.x + 1 if r.x.sum() > 0 else r.x),
    "a tensor as an index": ("host-read", lambda r: r.pool[r.x[0].long()]),
    "tolist": ("host-read", lambda r: r.x * sum(r.x.tolist())),
    "numpy": ("host-read", lambda r: r.x * r.x.numpy().sum()),
    "asarray": ("host-read", lambda r: r.x * np.asarray(r.x).sum()),
    "dlpack": ("host-read", lambda r: r.x + torch.from_dlpack(r.x)),
    "data_ptr": ("host-read", lambda r: r.x * (r.x.data_ptr() % 2)),
    "cpu": ("host-read", lambda r: r.x.cpu() + 1),
    "printing": ("host-read", lambda r: r.x + len(str(r.x))),
    "equal": ("host-read", lambda r: r.x * torch.equal(r.x, r.x)),
    "allclose": ("host-read", lambda r: r.x * torch.allclose(r.x, r.x)),
    "contains": ("host-read", lambda r: r.x * (2.0 in r.x)),
    "mask index": ("host-read", lambda r: r.x[r.x > 0]),
    "mask index write": ("host-read", lambda r: r.x.clone().index_put_((r.x > 0,), r.x[0])),
    "nonzero": ("host-read", lambda r: r.x.nonzero()),
    "where of one": ("host-read", lambda r: torch.where(r.x > 0)[0]),
    "unique": ("host-read", lambda r: r.x.unique()),
    "masked_select": ("host-read", lambda r: r.x.masked_select(r.x > 0)),
    "repeat by a tensor": ("host-read", lambda r: r.x.repeat_interleave(r.x.long())),
    "a tensor": ("host-data", lambda r: r.x + torch.tensor([1.0, 2.0, 3.0, 4.0])),
    "a number as a tensor": ("host-data", lambda r: r.x + torch.as_tensor(2.0)),
    "new_tensor": ("host-data", lambda r: r.x + r.x.new_tensor([1.0])),
    "from_numpy": ("host-data", lambda r: r.x + torch.from_numpy(np.ones(4, np.float32))),
    "rand": ("random", lambda r: r.x + torch.rand(4)),
    "dropout": ("random", lambda r: F.dropout(r.x, 0.5, training=True)),
    "multinomial": ("random", lambda r: torch.multinomial(r.x + 1, 1)),
    "resize": ("resize", lambda r: r.pool.resize_(16, 4) + 0),
    "set": ("resize", lambda r: r.pool.set_(torch.zeros(8, 4)) + 0),
    "an out argument that grows": ("resize", lambda r: torch.add(r.x, 1, out=torch.empty(0))),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_cuda_graph_could_not_do_is_refused(rig, name):
    code, fn = REFUSED[name]
    with pytest.raises(CaptureRefused) as caught:
        rig.capture(lambda: fn(rig))
    assert caught.value.code == code
    assert caught.value.where.startswith("graph g, ")


def test_a_parameter_of_another_module_is_a_stale_input(rig):
    other = nn.Linear(4, 4)
    with pytest.raises(CaptureRefused) as caught:
        rig.capture(lambda: other(rig.x))
    assert caught.value.code == "stale-input"
    assert "[4, 4]" in str(caught.value.got)


def test_an_error_of_the_forward_itself_is_not_a_refusal(rig):
    with pytest.raises(ZeroDivisionError):
        rig.capture(lambda: 1 / 0)


def test_nothing_is_watched_after_a_refusal(rig):
    with pytest.raises(CaptureRefused):
        rig.capture(lambda: rig.x[rig.x > 0])
    assert rig.x.tolist() == [0.0] * 4
    assert rig.capture(lambda: rig.x + 1).outputs["y"].shape == (4,)
