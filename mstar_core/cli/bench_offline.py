"""``mstar-core bench offline CONFIG``: the engine in process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mstar_core.cli.arguments import count, count_or_0, promises
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import progress_bar
from mstar_core.cli.tables import print_json
from mstar_core.errors import RequestError, Words

if TYPE_CHECKING:
    from mstar_core.bench.phases import Phases
    from mstar_core.bench.stats import Figures
    from mstar_core.engine import Engine


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_config_arguments(parser)
    parser.add_argument("--requests", type=count, default=64, metavar="N", help="default 64")
    parser.add_argument("--concurrency", type=count, default=8, metavar="C", help="default 8")
    parser.add_argument("--prompt-tokens", type=count, default=128, metavar="N", help="default 128")
    parser.add_argument("--output-tokens", type=count, default=64, metavar="N", help="default 64")
    parser.add_argument(
        "--vocab", type=count, metavar="V", help="prompts are random ids below V; default all"
    )
    parser.add_argument("--rounds", type=count, default=1, metavar="N", help="default 1")
    parser.add_argument(
        "--warmup", type=count_or_0, default=8, metavar="N", help="requests before; default 8"
    )
    parser.add_argument("--goodput", type=promises, metavar="ttft:MS,tpot:MS", help="as for serve")
    parser.add_argument(
        "--phases", action="store_true", help="one round more, timed by parts: host and graphs"
    )
    parser.add_argument("--seed", type=count_or_0, default=0, metavar="N", help="of the prompts")


def run(args: argparse.Namespace) -> int:
    """The engine in process, in a closed loop over random prompts, greedily, to the last token.

    docs/bench.md has every definition; several rounds print each figure's median and spread.
    Exit code 1 if every request of a round failed.

    Example:  mstar-core bench offline tiny.yaml --requests 64 --concurrency 8 --rounds 3
    """
    from attrs import asdict, evolve

    from mstar_core.bench.machine import described
    from mstar_core.bench.offline import Shape, measure
    from mstar_core.bench.phases import phases
    from mstar_core.cli.bench_tables import all_failed
    from mstar_core.engine import Engine

    resolved, _ = resolve_arguments(args)
    machine = described("mstar-core " + " ".join(sys.argv[1:]))
    with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
        shape = Shape(
            requests=args.requests,
            concurrency=args.concurrency,
            prompt_tokens=args.prompt_tokens,
            output_tokens=args.output_tokens,
            vocab=args.vocab or _vocab(engine),
            seed=args.seed,
        )
        if args.warmup > 0:
            measure(engine, evolve(shape, requests=args.warmup, seed=args.seed + args.rounds))
        found = [
            measure(engine, evolve(shape, seed=args.seed + each), args.goodput)
            for each in range(args.rounds)
        ]
        behind = evolve(shape, seed=args.seed + args.rounds + 1)
        parts = phases(engine, behind) if args.phases else None
        report, stats = engine.report.as_dict(), engine.stats()
    if args.json:
        told = {"shape": asdict(shape), "rounds": [asdict(one) for one in found]}
        more = {"report": report, "stats": stats, "phases": parts and asdict(parts)}
        print_json({**machine, **told, **more})
    else:
        _print(machine, found, parts)
    return int(all_failed(found))


def _print(machine: Mapping[str, str], found: Sequence[Figures], parts: Phases | None) -> None:
    from mstar_core.bench.serve import spreads
    from mstar_core.cli.bench_tables import figures_table, machine_lines, phases_table, rounds_table

    one_round = len(found) == 1
    print(machine_lines(machine))
    print(figures_table(found[0]) if one_round else rounds_table(spreads(found)))
    if parts is not None:
        print(phases_table(parts))


def _vocab(engine: Engine) -> int:
    if engine.prompt_ids is None:
        raise RequestError(
            where=engine.report.model,
            got=Words("a model whose prompts are no token ids"),
            want="a model that continues text",
            fix="measure this one with mstar-core bench serve",
        )
    return engine.prompt_ids
