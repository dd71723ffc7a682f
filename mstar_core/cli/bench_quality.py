"""``mstar-core bench quality CONFIG``: how many held-out questions are answered right."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import at_least_0, count, positive, shares
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import progress_bar
from mstar_core.errors import UsageError, Words
from mstar_core.names import suggest

if TYPE_CHECKING:
    from mstar_core.bench.quality import Said
    from mstar_core.bench.quality_report import Outcome
    from mstar_core.bench.quality_tasks import Tasks
    from mstar_core.config import Resolved


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_config_arguments(parser)
    parser.add_argument("--tasks", type=Path, metavar="FILE", help="default: the model's own")
    parser.add_argument("--limit", type=count, metavar="N", help="the first N of each task")
    parser.add_argument("--at-once", type=count, default=8, metavar="N", help="open; default 8")
    parser.add_argument(
        "--require",
        type=shares,
        default={},
        metavar="TASK=SHARE,...",
        help="fail where a smaller share is right; TASK@EDGE is a bucket of distances",
    )
    parser.add_argument("--against", type=Path, metavar="REPORT", help="compare with that run")
    ties = parser.add_mutually_exclusive_group()
    ties.add_argument(
        "--tie",
        type=at_least_0,
        metavar="NATS",
        help="answers may part where their tokens are so close to the likeliest; default 0",
    )
    ties.add_argument(
        "--account",
        type=positive,
        metavar="TIMES",
        help="or where they are in fp32, up to so many times this run's error, which is measured",
    )
    parser.add_argument("--out", metavar="REPORT", help="write JSON with all answers there")


def run(args: argparse.Namespace) -> int:
    """Ask a model its held-out questions, greedily, and count the answers that are right.

    Right is the answer to the letter, ended by the model itself. docs/bench.md has the format of
    the questions. Exit code 1 where a smaller share is right than --require asks for, where an
    answer differs from that of --against and is no tie, and where every request failed.

    Example:  mstar-core bench quality model.yaml --require add=0.95 --out report.json
    """
    from mstar_core.bench.machine import described
    from mstar_core.bench.quality_reference import read_reference
    from mstar_core.cli.bench_quality_tables import differences_text, scores_table
    from mstar_core.cli.bench_tables import (
        all_failed,
        figures_table,
        machine_lines,
        write_report,
    )

    _check(args)
    resolved, _ = resolve_arguments(args)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    tasks = _tasks(args, resolved)
    reference = None if args.against is None else read_reference(args.against, tasks)
    outcome, seen = _outcome(args, resolved, tasks, reference)
    settings = {"config": args.config, "sets": args.sets, "at_once": args.at_once}
    told = {**machine, **settings, **outcome.as_dict(), **seen}
    written = json.dumps(told, indent=1, ensure_ascii=False)
    if args.json:
        print(written)
    else:
        print(f"{machine_lines(machine)}\n{scores_table(outcome, args.require)}")
        print(figures_table(outcome.figures))
        if reference is not None:
            print(differences_text(outcome))
    if args.out is not None:
        write_report("--out", args.out, written)
    failed = all_failed([outcome.figures])
    return int(bool(failed or outcome.below(args.require) or outcome.apart))


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that do not go together, MstarError for an --out of no use."""
    from mstar_core.cli.bench_tables import check_report

    for flag, given in (("--tie", args.tie), ("--account", args.account)):
        if given is not None and args.against is None:
            raise UsageError(
                where=flag,
                got=Words("no --against"),
                want="a run whose answers these may differ from",
                fix="add --against REPORT, which --out writes",
            )
    if args.out == "-":
        fix = "leave --out out: --json prints the report"
        raise UsageError(where="--out", got=args.out, want="the name of a file", fix=fix)
    if args.out is not None:
        check_report("--out", args.out)


def _outcome(
    args: argparse.Namespace,
    resolved: Resolved,
    tasks: Tasks,
    reference: Mapping[int, Said] | None,
) -> tuple[Outcome, dict[str, Any]]:
    """The run, judged if there is a reference; and what its engine reports."""
    from mstar_core.bench.quality_account import account, likeliest, plain_sets
    from mstar_core.bench.quality_report import measure
    from mstar_core.engine import Engine

    progress, total = progress_bar(), len(tasks.questions)
    with Engine.open(resolved, offline=args.offline, progress=progress) as engine:
        outcome = measure(
            engine, tasks, args.at_once, reference, lambda done: progress("answers", done, total)
        )
        seen = {"report": engine.report.as_dict(), "stats": engine.stats()}
        if args.account is None:
            return outcome.judged(engine, args.tie or 0.0), seen
        ours, sets = likeliest(engine, tasks), plain_sets(engine.report)
    plain, _ = resolve_arguments(argparse.Namespace(config=args.config, sets=[*args.sets, *sets]))
    with Engine.open(plain, offline=args.offline) as judge:
        told = account(args.account, ours, likeliest(judge, tasks))
        return outcome.judged(judge, told.bound, told), seen


def _tasks(args: argparse.Namespace, resolved: Resolved) -> Tasks:
    """The questions to ask, before anything is loaded.

    Raises RequestError for none, UsageError for a name of ``--require`` that none of them has.
    """
    from mstar_core.bench.quality_tasks import read_tasks, shipped_tasks
    from mstar_core.engine.opening import load_wiring
    from mstar_core.engine.wire import open_model

    file = args.tasks
    if file is None:
        _, folder = open_model(resolved, load_wiring(resolved), args.offline)
        file = shipped_tasks(folder)
    tasks = read_tasks(file)
    if args.limit is not None:
        tasks = tasks.first(args.limit)
    known = tasks.names()
    for name in args.require:
        if name not in known:
            raise UsageError(
                where="--require",
                got=name,
                want=f"one of: {', '.join(known)}",
                fix=suggest(name, known),
            )
    return tasks
