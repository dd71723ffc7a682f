"""``mstar-core bench roofline CONFIG``: what a step must take, and what it takes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import count, positive, row_counts
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import progress_bar
from mstar_core.cli.tables import columns, print_json

if TYPE_CHECKING:
    from mstar_core.bench.ops import Limits
    from mstar_core.bench.roofline import StepCost
    from mstar_core.bench.step_times import StepTime
    from mstar_core.config.resolve import Resolved

HEADING = ("step", "weights GB", "rows GB", "GFLOP", "bound by", "floor ms", "limit tokens/s",
           "step ms", "graph ms", "of floor")  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_config_arguments(parser)
    parser.add_argument(
        "--rows",
        type=row_counts,
        default="1,16,64,128",
        metavar="N,N",
        help="of decode steps; default 1,16,64,128",
    )
    parser.add_argument(
        "--context", type=count, default=640, metavar="N", help="tokens before; default 640"
    )
    parser.add_argument(
        "--prompts",
        type=row_counts,
        default="1,8",
        metavar="N,N",
        help="prompts of a prompt step; default 1,8",
    )
    parser.add_argument("--prompt-tokens", type=count, default=512, metavar="N", help="default 512")
    parser.add_argument(
        "--steps", type=count, default=64, metavar="N", help="decode steps to time; default 64"
    )
    parser.add_argument(
        "--tb-per-s", type=positive, metavar="X", help="memory bandwidth; default: measured here"
    )
    parser.add_argument(
        "--tflop-per-s", type=positive, metavar="X", help="rate of products; default: measured"
    )
    parser.add_argument("--no-run", action="store_true", help="floors alone: start no engine")


def run(args: argparse.Namespace) -> int:
    """Bytes and operations of steps, the floor they set on this machine, and measured steps.

    Bytes are those of the weights that the model's forward reads and of what its resources keep
    per row; the rates are those of a copy and of a large product here, or as given.
    docs/bench.md says what is counted.

    Example:  mstar-core bench roofline tiny.yaml --set model.load=random --rows 1,64
    """
    from attrs import asdict

    from mstar_core.bench.machine import described
    from mstar_core.bench.roofline import decode_costs, prompt_costs

    resolved = _resolved(args)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    here = _limits(args, resolved)
    costs = [
        *decode_costs(resolved, args.rows, args.context, offline=args.offline),
        *prompt_costs(resolved, args.prompts, args.prompt_tokens, offline=args.offline),
    ]
    times = [None] * len(costs) if args.no_run else _times(args, resolved, costs)
    if args.json:
        steps = [
            {**asdict(cost), "floor_us": cost.floor_us(here), "time": time and asdict(time)}
            for cost, time in zip(costs, times, strict=True)
        ]
        print_json({**machine, "limits": asdict(here), "steps": steps})
        return 0
    print("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    print(
        f"{'limits':<11}{here.bytes_per_us / 1e6:.3g} TB/s, {here.flops_per_us / 1e6:.3g} TFLOP/s"
    )
    print(columns([HEADING, *(_row(*pair, here) for pair in zip(costs, times, strict=True))]))
    return 0


def _resolved(args: argparse.Namespace) -> Resolved:
    """The configuration with room for the steps that are asked for, in the dtype it would run in.

    What ``--set`` gives comes last.
    """
    rows, prompts = max(args.rows), max(args.prompts)
    tokens = sorted({n * args.prompt_tokens for n in args.prompts})
    sets = [
        f"engine.max_rows={max(rows, prompts)}",
        f"engine.token_budget={tokens[-1]}",
        "engine.min_chunk=1",
        f"engine.max_context={max(args.context, args.prompt_tokens) + args.steps + 1}",
        f"engine.capture.rows={sorted({*args.rows, *args.prompts})}",
        f"engine.capture.tokens={tokens}",
        "engine.prefix_cache=off",
        *args.sets,
    ]
    resolved, _ = resolve_arguments(argparse.Namespace(**{**vars(args), "sets": sets}))
    return resolved


def _limits(args: argparse.Namespace, resolved: Resolved) -> Limits:
    from mstar_core.bench.ops import Limits, Stopwatch, limits
    from mstar_core.bench.roofline import dtype_of
    from mstar_core.engine.device import open_device
    from mstar_core.engine.device_memory import pick_device

    bandwidth, rate = args.tb_per_s, args.tflop_per_s
    if bandwidth is None or rate is None:
        watch = Stopwatch(device=open_device(pick_device(resolved.config.device)))
        found = limits(watch, dtype_of(resolved, offline=args.offline))
        watch.device.trim()
        bandwidth = bandwidth or found.bytes_per_us / 1e6
        rate = rate or found.flops_per_us / 1e6
    return Limits(bytes_per_us=bandwidth * 1e6, flops_per_us=rate * 1e6)


def _times(
    args: argparse.Namespace, resolved: Resolved, costs: Sequence[StepCost]
) -> list[StepTime | None]:
    """Each step, timed in an engine of its own configuration."""
    from mstar_core.bench.step_times import decode_time, prompt_time
    from mstar_core.engine import Engine

    with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
        for finding in engine.report.findings:  # a context beyond the model's is not measured
            print(f"finding   {finding}", file=sys.stderr)
        vocab = engine.prompt_ids
        if vocab is None:  # prompts that are no ids cannot be made up
            return [None] * len(costs)
        decodes = {walk.name for walk in engine.driver.core.walks.values() if walk.is_decode}
        return [
            decode_time(engine, cost.rows, args.context, args.steps, vocab)
            if cost.walk in decodes
            else prompt_time(engine, cost.rows, args.prompt_tokens, vocab)
            for cost in costs
        ]


def _row(cost: StepCost, time: StepTime | None, here: Limits) -> tuple[str, ...]:
    floor_us = cost.floor_us(here)
    name = f"{cost.walk} {cost.rows} x {cost.span}"
    best_us = None if time is None else time.graph_us or time.step_us
    figures: tuple[Any, ...] = (
        cost.weight_bytes / 1e9,
        cost.rows * cost.row.num_bytes / 1e9,
        cost.num_flops / 1e9,
        cost.bound(here),
        floor_us / 1e3,
        f"{cost.rows * cost.span / floor_us * 1e6:,.0f}" if floor_us else None,
        None if time is None or time.step_us is None else time.step_us / 1e3,
        None if time is None or time.graph_us is None else time.graph_us / 1e3,
        f"{best_us / floor_us:.2f}" if best_us and floor_us else None,
    )
    return name, *(_cell(value) for value in figures)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
