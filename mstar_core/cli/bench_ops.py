"""``mstar-core bench ops``: each operation by each backend, beside its floor."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from mstar_core.cli.arguments import counts
from mstar_core.cli.tables import print_json
from mstar_core.plugins.builtin import OPERATIONS

if TYPE_CHECKING:
    from mstar_core.bench.ops import OpTime

DTYPES = ("bf16", "fp16", "fp32")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--device", default="cuda", metavar="NAME", help="default cuda")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES, help="default bf16")
    parser.add_argument(
        "--rows", type=counts, default="1,16,64,128", metavar="N,N", help="rows of a decode step"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        choices=sorted(OPERATIONS),
        metavar="OPERATION",
        help=f"of {', '.join(sorted(OPERATIONS))}; default all",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Random inputs at published sizes, in captured graphs. Medians of five rounds.

    The floor is what bytes and products must take, by a copy and a product of the same run.

    Example:  mstar-core bench ops --rows 1,64 --only gated_delta linear
    """
    import torch
    from attrs import asdict

    from mstar_core.bench.machine import described
    from mstar_core.bench.ops import measure
    from mstar_core.dtypes import torch_dtype_named
    from mstar_core.plugins import discover, load_plugins

    records = discover()
    wiring = load_plugins([r.name for r in records if r.state == "ready"], records=records)
    for refusal in wiring.left_out:
        print(f"finding   {refusal}", file=sys.stderr)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    dtype = torch_dtype_named(args.dtype, torch.float32)
    times = measure(wiring.backends, args.device, dtype, args.rows, args.only)
    if args.json:
        print_json({**machine, "results": [asdict(one) for one in times]})
        return 0
    print("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    print(_line("operation", "backend", "shape", "us", "floor us", "ratio", "spread"))
    for one in times:
        print(_row(one), flush=True)
    return 0


def _row(one: OpTime) -> str:
    floor = f"{one.floor_us:.2f}"
    if one.refused:
        return _line(one.operation, one.backend, one.shape, "-", floor, "-", one.refused)
    figures = (f"{one.us:.2f}", floor, f"{one.ratio:.2f}", f"{one.spread:.0%}")
    return _line(one.operation, one.backend, one.shape, *figures)


def _line(*cells: str) -> str:
    """Columns of fixed width: a line is printed when it is known."""
    operation, backend, shape, *figures = cells
    numbers = " ".join(f"{cell:>9}" for cell in figures)
    return f"{operation:<17} {backend:<11} {shape:<34} {numbers}"
