"""Capture bugs, planted one by one: each fails on a CPU, by a check that has a name.

The forward under test adds each row's token to its slot of a running sum and returns the sum.
"""

import numpy as np
import pytest
import torch
from torch import nn

from mstar_core.engine.device import Lag
from mstar_core.engine.graphs import CaptureRefused
from mstar_core.engine.staging import StaticBlock
from mstar_core.errors import SealedError
from mstar_core.fixed import FixedBuffers
from mstar_core.launch import launch
from mstar_core.testing.capture import CaptureCase, ReplayDiffers, check_capture

ROWS, SLOTS = 4, 8
TOKEN, SLOT = ("inputs", "token_B"), ("state", "slot_B")


class Sums(nn.Module):
    """The forward, as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale_S", torch.arange(SLOTS, dtype=torch.float32))
        self.buffers_of_engine = FixedBuffers(torch.device("cpu"))
        self.sums_S = self.buffers_of_engine.claim("state", "sums_S", (SLOTS,), torch.float32)

    def forward(self, tensors):
        slot_B, token_B = tensors[SLOT], tensors[TOKEN]
        sum_B = self.sums_S[slot_B] + token_B * self.scale_S[slot_B]
        self.sums_S[slot_B] = sum_B
        return {"sum": sum_B}

    def before_step(self, number):
        """What the host does between steps."""


def pad(arrays):
    """Padding rows write slot 0."""
    rest = ROWS - len(arrays[SLOT])
    return {key: np.concatenate([a, np.zeros(rest, a.dtype)]) for key, a in arrays.items()}


def step(tokens, slots):
    return {TOKEN: np.asarray(tokens, np.float32), SLOT: np.asarray(slots, np.int64)}


STEPS = [
    step([1, 2], [3, 5]),
    step([4, 1, 2], [5, 3, 1]),
    step([1], [5]),
    step([7, 2, 1], [1, 5, 3]),
]


def check(model, lag=None):
    case = CaptureCase(
        buffers=model.buffers_of_engine,
        pools={"sums_S": model.sums_S},
        module=model,
        forward=model,
        pad=pad,
        empty_step=step([], []),
        before_step=model.before_step,
    )
    check_capture(case, STEPS, lag)


def refused(model):
    with pytest.raises(CaptureRefused) as caught:
        check(model)
    return caught.value


def differs(model):
    with pytest.raises(ReplayDiffers) as caught:
        check(model)
    return caught.value.check


@pytest.mark.parametrize("lag", [None, Lag(), Lag(1)])
def test_a_right_forward_is_the_same_replayed(lag):
    check(Sums(), lag)


def test_a_baked_scalar_is_seen():
    class Baked(Sums):
        def before_step(self, number):
            self.number = number

        def forward(self, tensors):
            return {"sum": super().forward(tensors)["sum"] + self.number}

    assert differs(Baked()) == "output"


def test_a_buffer_that_grew_in_place_is_seen():
    class Grown(Sums):
        def before_step(self, number):
            if number == 2:
                self.sums_S.resize_(1 << 20)

    with pytest.raises(SealedError, match="moved since the capture"):
        check(Grown())


def test_a_buffer_that_was_replaced_by_a_larger_one_is_seen():
    class Replaced(Sums):
        def before_step(self, number):
            if number == 2:
                self.scale_S = torch.cat([self.scale_S + 1, self.scale_S])

    assert differs(Replaced()) == "output"


def test_a_parameter_whose_memory_was_replaced_is_seen():
    class Swapped(Sums):
        def before_step(self, number):
            if number == 2:
                self.scale_S.data = self.scale_S + 1

    with pytest.raises(SealedError, match="moved since the capture"):
        check(Swapped())


def test_a_buffer_that_the_forward_grows_is_refused():
    class Grows(Sums):
        def forward(self, tensors):
            self.sums_S.resize_(SLOTS * 2)
            return super().forward(tensors)

    assert refused(Grows()).code == "resize"


def test_a_stale_input_is_refused_with_its_operation_shape_and_line():
    class Stale(Sums):
        def __init__(self):
            super().__init__()
            self.hidden = [torch.ones(ROWS)]

        def forward(self, tensors):
            out = super().forward(tensors)
            return {"sum": out["sum"] * self.hidden[0][: len(out["sum"])]}

    error = refused(Stale())
    assert error.code == "stale-input"
    assert "aten.slice" in error.where
    assert "test_capture_bugs.py" in error.where
    assert "[4]" in str(error.got)
    assert error.refusal.code == "stale-input"


def test_a_host_read_is_refused():
    class Reads(Sums):
        def forward(self, tensors):
            bonus = 1.0 if tensors[TOKEN].sum().item() > 3 else 0.0
            return {"sum": super().forward(tensors)["sum"] + bonus}

    assert refused(Reads()).code == "host-read"


def test_a_shape_from_data_is_refused():
    """CG-05: a boolean index in a forward; the refusal names the graph, the operation, the line."""

    class Masked(Sums):
        def forward(self, tensors):
            real = tensors[SLOT] > 0
            return super().forward({key: t[real] for key, t in tensors.items()})

    error = refused(Masked())
    assert error.code == "host-read"
    assert "bucket" in error.where
    assert "aten.index" in error.where


def test_a_shape_from_a_host_count_is_seen():
    class Counted(Sums):
        def before_step(self, number):
            self.num_rows = max(1, len(STEPS[number - 1][SLOT])) if number else 1

        def forward(self, tensors):
            return super().forward({key: t[: self.num_rows] for key, t in tensors.items()})

    assert differs(Counted()) == "shape"


def test_a_tensor_kept_from_one_call_to_the_next_is_refused():
    class Keeps(Sums):
        last = None

        def forward(self, tensors):
            out = super().forward(tensors)["sum"]
            last, self.last = self.last, out * 2
            return {"sum": out if last is None else out + last[: len(out)]}

    assert refused(Keeps()).code == "stale-input"


def test_an_output_that_is_not_written_is_seen():
    class Unwritten(Sums):
        def forward(self, tensors):
            out = super().forward(tensors)["sum"]
            result = torch.empty_like(out)
            if len(out) != ROWS:  # only the eager shape writes it
                result.copy_(out)
            return {"sum": result}

    assert differs(Unwritten()) == "unwritten"


def test_the_buffers_of_another_bucket_are_refused():
    class WrongLease(Sums):
        def __init__(self):
            super().__init__()
            arrays = pad(step([], []))
            self.other = StaticBlock.claim(self.buffers_of_engine, "another", arrays)

        def forward(self, tensors):
            slot_B = self.other.views[SLOT][: len(tensors[SLOT])]
            return super().forward({**tensors, SLOT: slot_B})

    assert refused(WrongLease()).code == "stale-input"


def test_a_padding_row_that_writes_a_live_slot_is_seen():
    """GDN-03: a padding index that is clamped onto a slot somebody holds."""

    class Clamped(Sums):
        def forward(self, tensors):
            slot_B, token_B = tensors[SLOT].clamp(min=1), tensors[TOKEN] + 1
            return super().forward({SLOT: slot_B, TOKEN: token_B})

    assert differs(Clamped()) == "pool"


def test_an_output_that_is_an_input_is_refused():
    class Aliased(Sums):
        def forward(self, tensors):
            return {**super().forward(tensors), "token": tensors[TOKEN].view(-1, 1)}

    error = refused(Aliased())
    assert error.code == "output"
    assert "output token" in error.where


def test_an_output_that_is_a_pool_is_refused():
    class Pool(Sums):
        def forward(self, tensors):
            return {**super().forward(tensors), "pool": self.sums_S[1:]}

    assert refused(Pool()).code == "output"


def test_random_numbers_with_a_state_are_refused():
    """CG-03: a generator's offset is frozen inside a graph."""

    class Random(Sums):
        def forward(self, tensors):
            out = super().forward(tensors)["sum"]
            return {"sum": out + torch.rand_like(out)}

    assert refused(Random()).code == "random"


def test_a_constant_made_in_the_forward_is_refused():
    class Constant(Sums):
        def forward(self, tensors):
            return {"sum": super().forward(tensors)["sum"] * torch.tensor(2.0)}

    assert refused(Constant()).code == "host-data"


def test_a_kernel_that_returns_its_result_is_refused():
    class Launches(Sums):
        def forward(self, tensors):
            out = super().forward(tensors)["sum"]
            return {"sum": launch(torch.neg, out)}

    assert refused(Launches()).code == "launch-result"


def test_a_kernel_that_reads_a_tensor_from_outside_is_refused():
    class Launches(Sums):
        def __init__(self):
            super().__init__()
            self.hidden = [torch.ones(ROWS)]

        def forward(self, tensors):
            out = super().forward(tensors)["sum"]
            launch(torch.Tensor.add_, out, self.hidden[0])
            return {"sum": out}

    assert "launch of add_" in refused(Launches()).where
