"""The CPU device: immediate, or with lag."""

import pytest
import torch

from mstar_core.engine.device import CpuDevice, Device, Lag, open_device


def entry(device: Device, host: torch.Tensor, dev: torch.Tensor, out: torch.Tensor):
    """Copy in, double on the device, copy out."""
    device.copy_in(host, dev)
    device.run(lambda: dev.mul_(2))
    device.copy_out(dev, out)
    return device.record()


def tensors():
    return torch.tensor([1.0, 2.0]), torch.zeros(2), torch.zeros(2)


def test_without_lag_calls_take_effect_at_once():
    host, dev, out = tensors()
    event = entry(CpuDevice(), host, dev, out)
    assert event.done()
    assert out.tolist() == [2.0, 4.0]


def test_with_full_lag_nothing_runs_before_it_is_waited_for():
    host, dev, out = tensors()
    device = CpuDevice(Lag())
    event = entry(device, host, dev, out)
    assert not event.done()
    assert (dev.tolist(), out.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    event.wait(1.0)
    assert event.done()
    assert out.tolist() == [2.0, 4.0]


def test_a_wait_runs_what_came_before_its_event_and_no_more():
    device, log = CpuDevice(Lag()), []
    events = []
    for n in range(3):
        device.run(lambda n=n: log.append(n))
        events.append(device.record())
    events[1].wait(1.0)
    assert log == [0, 1]
    assert not events[2].done()
    device.synchronize()
    assert log == [0, 1, 2]
    assert device.num_waiting == 0


def test_a_host_buffer_rewritten_before_its_entry_ran_gives_wrong_data():
    """KV-13: the copy reads the host buffer when it runs, not when it is issued."""
    host, dev, out = tensors()
    event = entry(CpuDevice(Lag()), host, dev, out)
    host.fill_(7)
    event.wait(1.0)
    assert out.tolist() == [14.0, 14.0]


def moments(seed: int) -> list[int]:
    device, log = CpuDevice(Lag(seed)), []
    waiting = []
    for n in range(40):
        device.run(lambda n=n: log.append(n))
        waiting.append(device.num_waiting)
    device.synchronize()
    assert log == list(range(40))
    return waiting


def test_the_moments_of_a_lagging_device_follow_from_the_seed():
    assert moments(3) == moments(3)
    assert len({tuple(moments(seed)) for seed in range(5)}) == 5


def test_a_lagging_device_runs_some_calls_early_and_some_late():
    assert 0 in moments(1)
    assert max(moments(1)) > 1


def test_polling_a_seeded_device_makes_it_pass_in_the_end():
    device = CpuDevice(Lag(0))
    event = device.record()
    assert any(event.done() for _ in range(100))


def test_a_raise_belongs_to_the_event_of_its_entry_and_later_entries_still_run():
    device, log = CpuDevice(Lag()), []
    device.run(lambda: log.append("a"))
    first = device.record()
    device.run(lambda: 1 / 0)
    device.run(lambda: log.append("after the raise"))
    second = device.record()
    device.run(lambda: log.append("c"))
    third = device.record()
    third.wait(1.0)
    first.wait(1.0)
    with pytest.raises(ZeroDivisionError):
        second.wait(1.0)
    assert log == ["a", "c"]


def test_without_lag_a_raise_is_raised_at_the_call():
    with pytest.raises(ZeroDivisionError):
        CpuDevice().run(lambda: 1 / 0)


def test_what_a_deferred_call_issues_runs_in_its_place():
    device, log, out = CpuDevice(Lag()), [], torch.zeros(1)

    def forward():
        made = torch.ones(1)
        device.copy_out(made, out)
        log.append(out.item())

    device.run(forward)
    device.run(lambda: log.append("next"))
    device.record().wait(1.0)
    assert log == [1.0, "next"]


def test_calls_run_without_autograd():
    weight, made = torch.ones(1, requires_grad=True), []
    CpuDevice().run(lambda: made.append(weight * 2))
    assert not made[0].requires_grad


def test_the_cpu_is_opened_by_name_with_its_lag():
    device = open_device("cpu", Lag(5))
    assert device.torch_device == torch.device("cpu")
    assert device.lag == Lag(5)
