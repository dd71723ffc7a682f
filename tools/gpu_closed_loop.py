"""Closed loops over random weights on a GPU: speed beside the floors, arms in turn, long runs.

    python tools/gpu_closed_loop.py speed FOLDER [FOLDER ...] --concurrency 1,16,64,128 --rounds 3
    python tools/gpu_closed_loop.py ablation FOLDER --concurrency 16,64
    python tools/gpu_closed_loop.py kernels FOLDER --concurrency 16,64
    python tools/gpu_closed_loop.py rows FOLDER
    python tools/gpu_closed_loop.py long FOLDER --concurrency 64 --seconds 300

A FOLDER holds the `config.json` of a model that continues text; its weights are seeded noise, which
is as fast as any. Requests are greedy, over random ids, go on to their last token, and are never
found in a prefix cache. The engine runs in this process.

    speed     the engine as it would serve, and the limit that its floors set
    ablation  steps planned on the host, of torch's kernels; then Triton's kernels, device tables
              and run-ahead, each beside those before it
    kernels   Triton's kernels beside FlashInfer's, operation by operation (`--operations`)
    rows      the row check at the widest bucket, every resident step compared with the host
    long      one load for minutes: no request fails, and the memory that torch reserves stays

All arms are open at once, and take turns: ABC CBA ABC, so that a drift of the machine meets all
alike. Printed are medians over the rounds, with least and greatest; `--json FILE` keeps everything.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from attrs import asdict

from mstar_core.bench.closed_loop import ClosedLoop
from mstar_core.bench.machine import described
from mstar_core.bench.offline import Shape, measure, requests_of
from mstar_core.bench.ops import Limits, Stopwatch, limits
from mstar_core.bench.phases import phases
from mstar_core.bench.roofline import decode_costs, prompt_costs
from mstar_core.engine import Engine
from mstar_core.engine.device import open_device
from mstar_core.engine.opening import resolve_config

PROMPT, NEW = 512, 256
WIDEST = 256
SETS = (
    f"engine.max_rows={WIDEST}",
    "engine.token_budget=4096",
    "engine.max_context=1024",
    "engine.prefix_cache=off",
    "engine.in_flight=2",
    "engine.kv_memory=12GiB",
    "engine.capture.tokens=[512,1024,2048,4096]",
)
OPERATIONS = ("paged_attention", "gated_delta", "linear", "sampling")
PLAIN = tuple(f"nodes.text.backends.{operation}=torch" for operation in OPERATIONS)
ABLATION = {
    "host-planned, torch": (*PLAIN, "engine.resident=off", "engine.in_flight=0"),
    "+ Triton": ("engine.resident=off", "engine.in_flight=0"),
    "+ resident": ("engine.in_flight=0",),
    "+ run-ahead": (),
}
Figures = dict[str, float]


def say(line: str) -> None:
    """Print at once: a run that is cut off has said what it found."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def open_arm(folder: Path, sets: Sequence[str], rows: Sequence[int]) -> Engine:
    """An engine over random weights of a folder's shape; decode is captured at ``rows``."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "shape.yaml"
        path = json.dumps(str(folder.resolve()))
        file.write_text(f"model: {{name: qwen35, path: {path}, load: random, dtype: bf16}}\n")
        captured = f"engine.capture.rows={sorted({*rows})}"
        begin = time.perf_counter()
        engine = Engine.open(file, (*SETS, captured, *sets))
    say(f"opened {folder.name} {list(sets)} in {time.perf_counter() - begin:.1f} s")
    return engine


def loop(engine: Engine, concurrency: int, requests: int, seed: int, new: int = NEW) -> Figures:
    """One round, in figures."""
    if engine.prompt_ids is None:
        raise SystemExit("a model whose prompts are no token ids")
    found = measure(engine, shape(engine, concurrency, requests, seed, new))
    if found.itl_ms is None or found.ttft_ms is None:
        raise SystemExit(f"no request was served: {dict(found.errors)}")
    return {
        "tokens_per_s": found.output_tokens_per_s,
        "itl_ms": found.itl_ms.median,
        "itl_p99_ms": found.itl_ms.p99,
        "ttft_ms": found.ttft_ms.median,
        "failed": found.failed,
    }


def shape(engine: Engine, concurrency: int, requests: int, seed: int, new: int = NEW) -> Shape:
    """What every request of a round is."""
    return Shape(
        requests=requests,
        concurrency=concurrency,
        prompt_tokens=PROMPT,
        output_tokens=new,
        vocab=engine.prompt_ids or 1,
        seed=seed,
    )


def in_turn(
    arms: Mapping[str, Engine], given: argparse.Namespace
) -> dict[str, dict[int, list[Figures]]]:
    """Every arm at every concurrency, round after round."""
    found: dict[str, dict[int, list[Figures]]] = {name: {} for name in arms}
    for concurrency in given.concurrency:
        for engine in arms.values():
            loop(engine, concurrency, concurrency, seed=1000 + concurrency, new=16)
        for each in range(given.rounds):
            names = list(arms) if each % 2 == 0 else list(reversed(arms))
            for name in names:
                requests = max(3, given.requests_per_place * concurrency)
                figures = loop(arms[name], concurrency, requests, seed=97 * each + concurrency)
                found[name].setdefault(concurrency, []).append(figures)
                say(f"{name}  c={concurrency}  {figures}")
    return found


def floors(folder: Path, here: Limits, rows: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Concurrency → ms of a decode step's floor, and the closed loop's limit in tokens/s.

    The limit has every step at its floor: the decode steps, and each prompt's own.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "shape.yaml"
        path = json.dumps(str(folder.resolve()))
        file.write_text(f"model: {{name: qwen35, path: {path}, load: random, dtype: bf16}}\n")
        resolved = resolve_config(file)
        steps = decode_costs(resolved, list(rows), PROMPT + NEW // 2)
        (prompt,) = prompt_costs(resolved, [8], PROMPT)
    prompt_us = prompt.floor_us(here) / 8
    found = {}
    for step in steps:
        us = step.floor_us(here)
        whole_us = (NEW - 1) * us + step.rows * prompt_us
        found[step.rows] = us / 1e3, step.rows * NEW / whole_us * 1e6
    return found


def spread(rounds: Sequence[Figures], name: str) -> str:
    """Median, with least and greatest."""
    values = [one[name] for one in rounds]
    digits = 0 if max(values) >= 100 else 3
    ends = f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({ends})"


def table(found: Mapping[str, Mapping[int, list[Figures]]], limit: Mapping[int, Any]) -> None:
    """As the page of measurements has them."""
    say("| arm | c | tokens/s | ITL ms | TTFT ms | failed | limit tokens/s | step floor ms |")
    say("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, by_c in found.items():
        for c, rounds in by_c.items():
            cells = [spread(rounds, key) for key in ("tokens_per_s", "itl_ms", "ttft_ms")]
            failed = int(sum(one["failed"] for one in rounds))
            floor_ms, most = limit.get(c, (0.0, 0.0))
            ends = f"{failed} | {most:,.0f} | {floor_ms:.3f}"
            say(f"| {name} | {c} | {' | '.join(cells)} | {ends} |")


def compare(given: argparse.Namespace, arms: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The arms over every folder, one folder after the other."""
    watch = Stopwatch(device=open_device("cuda"))
    here, told = limits(watch, torch.bfloat16), []
    watch.device.trim()
    say(f"limits {here.bytes_per_us / 1e6:.3f} TB/s, {here.flops_per_us / 1e6:.0f} TFLOP/s")
    for folder in given.folders:
        limit = floors(folder, here, given.concurrency)
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(open_arm(folder, sets, given.concurrency))
                for name, sets in arms.items()
            }
            found = in_turn(opened, given)
            parts = parts_of(opened, given) if given.phases else {}
            choices = {name: chosen(engine) for name, engine in opened.items()}
        say(f"\n{folder.name}, {PROMPT} tokens in, {NEW} out")
        table(found, limit)
        told.append(
            {"folder": folder.name, "limits": asdict(here), "floors": limit, "found": found,
             "parts": parts, "backends": choices}
        )  # fmt: skip
    return told


def parts_of(arms: Mapping[str, Engine], given: argparse.Namespace) -> dict[str, Any]:
    """One more round each, by parts: the host's laps, and the graphs by the device's clock."""
    told: dict[str, Any] = {}
    for name, engine in arms.items():
        for c in given.concurrency:
            parts = phases(engine, shape(engine, c, max(2, c), seed=7))
            told[f"{name}, c={c}"] = {
                "host": asdict(parts)["host"],
                "graph": asdict(parts)["graphs"],
            }
            for kind, found in (("host", parts.host), ("graph", parts.graphs)):
                for part, one in found.items():
                    line = f"{one.count} times, median {one.median_us:.1f} us"
                    say(f"  {name}, c={c}, {kind} {part}: {line}")
    return told


def chosen(engine: Engine) -> list[str]:
    """Who computes what."""
    nodes = engine.report.nodes
    return [f"{c.operation}: {c.name}, {c.rank}" for node in nodes for c in node.choices]


def check_rows(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The row check, until so many rows of steps were compared."""
    told = []
    for folder in given.folders:
        with open_arm(folder, ("debug.row_check=true",), [WIDEST]) as engine:
            each = 0
            while (found := engine.stats()["row_check"])["rows"] < given.rows:
                loop(engine, WIDEST, 2 * WIDEST, seed=each, new=40)
                each += 1
            say(f"{folder.name}: bucket of {WIDEST} rows, {found}")
            told.append({"folder": folder.name, "row_check": found, "stats": engine.stats()})
    return told


class Until:
    """Requests, as many as are asked for before a moment."""

    def __init__(self, engine: Engine, concurrency: int, seconds: float) -> None:
        self._concurrency, self._end = concurrency, time.monotonic() + seconds
        self._engine = engine

    def __len__(self) -> int:
        return self._concurrency

    def __iter__(self) -> Iterator[Any]:
        seed = 0
        while time.monotonic() < self._end:
            seed += 1
            yield from requests_of(self._engine, shape(self._engine, 1, 16, seed))


def run_long(given: argparse.Namespace) -> list[dict[str, Any]]:
    """One load without a pause; what torch has reserved each second."""
    told = []
    for folder in given.folders:
        for c in given.concurrency:
            with open_arm(folder, (), given.concurrency) as engine:
                loop(engine, c, 2 * c, seed=5)
                one = one_long(engine, c, given.seconds)
            say(f"{folder.name}, c={c}: {one}")
            told.append({"folder": folder.name, "concurrency": c, **one})
    return told


def reserved_now() -> int:
    """Bytes that torch has of the device."""
    return torch.cuda.memory_reserved()


def one_long(engine: Engine, concurrency: int, seconds: float) -> dict[str, Any]:
    """The load, and what became of it and of memory."""
    reserved, over = [reserved_now()], threading.Event()

    def sample() -> None:
        while not over.wait(1.0):
            reserved.append(reserved_now())

    sampler = threading.Thread(target=sample)
    sampler.start()
    begin = time.perf_counter()
    try:
        heard = ClosedLoop(engine).run(Until(engine, concurrency, seconds), concurrency)  # type: ignore[arg-type]
        passed_s = time.perf_counter() - begin
    finally:
        over.set()
        sampler.join()
    samples = [one.sample() for one in heard]
    tokens = sum(one.output_tokens for one in samples)
    return {
        "seconds": round(passed_s, 1),
        "requests": len(samples),
        "failed": sum(one.error is not None for one in samples),
        "tokens_per_s": round(tokens / passed_s),
        "reserved_before": reserved[0],
        "reserved_most": max(reserved),
        "reserved_after": reserved[-1],
    }


def kernels(given: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Triton, then FlashInfer for each of the operations, and for all of them."""
    found: dict[str, tuple[str, ...]] = {"triton": ()}
    for operation in given.operations:
        name = f"flashinfer {operation}"
        found[name] = (f"nodes.text.backends.{operation}=flashinfer",)
    if len(given.operations) > 1:
        found["flashinfer"] = tuple(one for sets in found.values() for one in sets)
    return found


def counts(text: str) -> list[int]:
    """Numbers with commas between them."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "ablation", "kernels", "rows", "long"))
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--concurrency", type=counts, default=[1, 16, 64, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests-per-place", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000, help="of rows: to compare at least")
    parser.add_argument("--seconds", type=float, default=300.0, help="of long")
    parser.add_argument("--operations", nargs="+", default=["paged_attention"], help="of kernels")
    parser.add_argument("--phases", action="store_true", help="one more round, timed by parts")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = described(shlex.join(["python", *sys.argv]))
    say("\n".join(f"{key:<11}{value}" for key, value in machine.items()))
    arms = {"speed": {"as served": ()}, "ablation": ABLATION}
    if given.what == "rows":
        told = check_rows(given)
    elif given.what == "long":
        told = run_long(given)
    else:
        told = compare(given, arms.get(given.what) or kernels(given))
    if given.json:
        given.json.write_text(json.dumps({**machine, "results": told}, default=str, indent=1))


if __name__ == "__main__":
    main()
