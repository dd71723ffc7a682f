"""Floors of steps: what a forward reads, what a row costs, and the time of both."""

import json
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mstar_core.bench.ops import Limits
from mstar_core.bench.roofline import StepCost, prompt_costs
from mstar_core.bench.step_times import LONGEST_WAIT_S, decode_time
from mstar_core.bench.weight_reads import WeightReads
from mstar_core.cli import main
from mstar_core.engine import Engine
from mstar_core.engine.opening import resolve_config
from mstar_core.resources.cost import RowCost


def reads_of(module, forward):
    module.to("meta")
    reads = WeightReads([*module.parameters(), *module.buffers()])
    with torch.no_grad(), reads:
        forward(module)
    return reads


def test_a_weight_that_two_products_read_counts_once_and_its_products_twice():
    def forward(layer):
        layer(layer(torch.zeros(3, 8, device="meta")))

    reads = reads_of(nn.Linear(8, 8), forward)
    assert reads.num_bytes == (8 * 8 + 8) * 4
    assert reads.num_flops == 2 * (2 * 3 * 8 * 8)


def test_of_a_table_only_what_is_gathered_counts_unless_it_is_a_head_too():
    ids = torch.zeros(5, dtype=torch.long, device="meta")
    for gather in (
        lambda w: w[ids],
        lambda w: F.embedding(ids, w),
        lambda w: w.index_select(0, ids),
    ):
        reads = reads_of(nn.Embedding(100, 16), lambda table, g=gather: g(table.weight))
        assert (reads.num_bytes, reads.num_flops) == (5 * 16 * 4, 0)
    tied = reads_of(nn.Embedding(100, 16), lambda table: table.weight[ids] @ table.weight.t())
    assert tied.num_bytes == (100 * 16 + 5 * 16) * 4


def test_parts_of_a_weight_count_as_what_they_are_and_never_as_more_than_the_whole():
    x = torch.zeros(2, 8, device="meta")
    part = reads_of(nn.Linear(8, 12, bias=False), lambda layer: F.linear(x, layer.weight[:4]))
    assert part.num_bytes == 4 * 8 * 4

    def overlapping(layer):
        F.linear(x, layer.weight[:8])
        F.linear(x, layer.weight[2:])

    assert reads_of(nn.Linear(8, 12, bias=False), overlapping).num_bytes == 12 * 8 * 4


def test_a_floor_is_the_larger_of_moving_and_computing():
    row = RowCost(num_bytes=100, num_flops=10)
    about = {"node": "n", "walk": "w", "span": 1, "weight_bytes": 1000, "weight_flops": 50}
    step = StepCost(rows=4, row=row, **about)
    assert (step.num_bytes, step.num_flops) == (1400, 90)
    slow_memory = Limits(bytes_per_us=10, flops_per_us=1000)
    slow_products = Limits(bytes_per_us=1e6, flops_per_us=1)
    assert (step.floor_us(slow_memory), step.bound(slow_memory)) == (140, "bytes")
    assert (step.floor_us(slow_products), step.bound(slow_products)) == (90, "products")
    assert row + row == row * 2


def test_the_command_prints_floors_alone_or_beside_steps_that_were_timed(capsys):
    sizes = ["--rows", "1,2", "--context", "40", "--prompts", "1", "--prompt-tokens", "16"]
    command = ["bench", "roofline", "echo", *sizes, "--steps", "8"]
    rates = ["--tb-per-s", "2", "--tflop-per-s", "100"]
    assert main([*command, *rates, "--no-run"]) == 0
    assert "2 TB/s, 100 TFLOP/s" in capsys.readouterr().out
    assert main([*command, *rates, "--json", "--set", "engine.graphs=recorder"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["limits"] == {"bytes_per_us": 2e6, "flops_per_us": 1e8}
    decodes = [step for step in told["steps"] if step["span"] == 1]
    assert [step["rows"] for step in decodes] == [1, 2]
    for step in decodes:
        assert step["time"]["replays"] > 0
        assert step["time"]["step_us"] >= step["time"]["graph_us"] > 0


def test_both_rates_are_measured_where_none_is_given(capsys):
    command = ["bench", "roofline", "echo", "--rows", "1", "--context", "8", "--prompts", "1"]
    assert main([*command, "--prompt-tokens", "8", "--no-run", "--json"]) == 0
    assert min(json.loads(capsys.readouterr().out)["limits"].values()) > 0


@pytest.mark.parametrize("prompts", [1, 3])
def test_a_prompt_step_is_of_whole_prompts(prompts):
    resolved = resolve_config("echo", ("engine.max_context=128",))
    costs = prompt_costs(resolved, [prompts], 20)
    assert {(cost.rows, cost.span) for cost in costs} == {(prompts, 20)}


def test_a_round_that_is_broken_off_while_its_requests_come_in_frees_the_engine_at_once():
    """Else its thread would wait for the rest of them, and so would whoever closes it."""
    with Engine.open("echo") as engine:

        def interrupted(request, listener):
            raise KeyboardInterrupt

        engine.submit = interrupted
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            decode_time(engine, 2, 8, 4, 256)
    assert time.monotonic() - begun < LONGEST_WAIT_S / 3


def test_a_context_beyond_the_model_s_is_said_and_not_measured(capsys):
    sizes = ["--rows", "1", "--context", "9999999", "--prompts", "1", "--prompt-tokens", "8"]
    rates = ["--tb-per-s", "2", "--tflop-per-s", "100", "--steps", "2", "--json"]
    assert main(["bench", "roofline", "echo", *sizes, *rates]) == 0
    out, err = capsys.readouterr()
    decode = next(step for step in json.loads(out)["steps"] if step["span"] == 1)
    assert decode["time"]["step_us"] is None
    assert err.startswith("finding   engine.max_context")
