"""Whisper's windows over random weights on a GPU: windows a second, first tokens, the encoder.

    python tools/gpu_windows.py FOLDER [--concurrency 1,16,64] [--tokens 28] [--rounds 3]

FOLDER holds a published size's JSON files, no weights: noise is as fast. Each load is a closed loop
over windows of noise whose features are there already, greedy, to a fixed number of tokens. The
encoder is timed by itself at each number of windows that is captured, beside what it multiplies.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from mstar_whisper.config import WhisperConfig
from mstar_whisper.model import CAPTURED_WINDOWS, Whisper
from mstar_whisper.options import WhisperOptions

from mstar_core.engine import Engine
from mstar_core.engine.events import EngineEvent, FinishEvent, TokenEvent
from mstar_core.model.base import NodeEnv
from mstar_core.model.front import Request
from mstar_core.model.load import random_weights

MAX_ROWS = 64
CONFIG = """\
model: {{name: whisper, path: '{folder}', load: random, dtype: bf16}}
engine: {{max_rows: {max_rows}, token_budget: 2048, in_flight: 4,
         capture: {{rows: [1, 8, 16, 32, 48, 64], tokens: [8, 32]}}}}
"""


def windows(config: WhisperConfig, count: int, tokens: int) -> list[Request]:
    """Requests over windows of noise, a prompt of four ids each."""
    draw, shape = np.random.default_rng(0), (1, config.mel_bins, config.window_frames)
    mels = [draw.normal(0, 0.5, shape).astype(np.float32) for _ in range(4)]
    ids = np.full(4, config.tokens.sot)
    return [
        Request(arrays={"mel": mels[i % 4], "ids": ids}, max_new_tokens=tokens)
        for i in range(count)
    ]


def loop(
    engine: Engine, config: WhisperConfig, concurrency: int, count: int, tokens: int
) -> tuple[float, list[float], np.ndarray]:
    """Windows a second, and milliseconds to each first token and from each token to the next."""
    left, done = windows(config, count, tokens), queue.SimpleQueue()
    came: dict[str, list[float]] = {request.id: [] for request in left}

    def begin() -> None:
        if not left:
            return
        request = left.pop()
        times = came[request.id]
        times.append(time.perf_counter())

        def listen(event: EngineEvent) -> None:
            if isinstance(event, TokenEvent):
                times.append(time.perf_counter())
            elif isinstance(event, FinishEvent):
                done.put(event.error)

        engine.submit(request, listen)

    started = time.perf_counter()
    for _ in range(concurrency):
        begin()
    for _ in range(count):
        if (error := done.get(timeout=120)) is not None:
            raise SystemExit(str(error))
        begin()
    rate = count / (time.perf_counter() - started)
    gaps = [1000 * np.diff(times) for times in came.values()]
    return rate, [each[0] for each in gaps], np.concatenate([each[1:] for each in gaps])


def encoder_ms(folder: Path, counts: Iterable[int], rounds: int = 5) -> Iterator[float]:
    """Milliseconds of a pass over so many windows of noise each, replayed as the engine does."""
    model = Whisper.open(folder, WhisperOptions())
    config, device = model.config, torch.device("cuda")
    env = NodeEnv(node="encoder", device=device, dtype=torch.bfloat16, resources={})
    encoder = model.build_submodule("encoder", env)
    random_weights({"encoder": encoder}, 0, device)
    stream = torch.cuda.Stream()
    for count in counts:
        mel = torch.randn(count, config.mel_bins, config.window_frames, device=device) / 2
        graph = torch.cuda.CUDAGraph()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream), torch.no_grad():
            encoder("encode", {"mel": mel}, {})
            with torch.cuda.graph(graph, stream=stream):
                encoder("encode", {"mel": mel}, {})
            graph.replay()
            begin.record(stream)
            for _ in range(rounds):
                graph.replay()
            end.record(stream)
        torch.cuda.synchronize()
        yield begin.elapsed_time(end) / rounds


def encoder_tflop(config: WhisperConfig) -> float:
    """What the encoder multiplies and adds for a window, convolutions left out."""
    positions, width = config.source_positions, config.width
    linear = 4 * width * width + 2 * width * config.encoder_ffn
    attention = 2 * positions * width
    return 2 * config.encoder_layers * positions * (linear + attention) / 1e12


def decoder_gb(config: WhisperConfig, rows: int) -> float:
    """What a decode step of ``rows`` must read in 16 bits: weights, and each row's window."""
    width, ffn = config.width, config.decoder_ffn
    layer = 6 * width * width + 2 * width * ffn
    window = 2 * config.source_positions * width
    read = config.decoder_layers * (layer + rows * window) + config.vocab_size * width
    return 2 * read / 1e9


def profile(engine: Engine, config: WhisperConfig, concurrency: int, tokens: int) -> None:
    """Print the kernels of a short load, the dearest first, and its whole time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as taken:
        rate, _, _ = loop(engine, config, concurrency, 2 * concurrency, tokens)
    rows = sorted(taken.key_averages(), key=lambda row: -row.device_time_total)
    busy = sum(row.device_time_total for row in rows) / 1000
    took = 2000 * concurrency / rate
    sys.stdout.write(f"kernels ran {busy:.0f} ms of {took:.0f} ms\n")
    for row in rows[:25]:
        ms = row.device_time_total / 1000
        sys.stdout.write(f"{ms:9.2f} ms {row.count:6d}  {row.key[:120]}\n")


def main() -> None:
    """Print a line for each number of windows, and one for each load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--concurrency", default="1,16,64")
    parser.add_argument("--tokens", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="list the kernels of the last load")
    parser.add_argument("--set", action="append", default=[], help="as of mstar-core")
    given = parser.parse_args()
    config = Whisper.open(given.folder, WhisperOptions()).config
    if torch.cuda.is_available():
        taken = encoder_ms(given.folder, CAPTURED_WINDOWS)
        for count, ms in zip(CAPTURED_WINDOWS, taken, strict=True):
            rate = count * encoder_tflop(config) / ms * 1000
            sys.stdout.write(f"encoder, {count} windows: {ms:.2f} ms, {rate:.0f} TFLOP/s\n")
    file = Path(tempfile.mkdtemp()) / "whisper.yaml"
    file.write_text(CONFIG.format(folder=given.folder.resolve(), max_rows=MAX_ROWS))
    with Engine.open(file, given.set, offline=True) as engine:
        for concurrency in map(int, given.concurrency.split(",")):
            count = max(24, 10 * concurrency)
            loop(engine, config, concurrency, concurrency, given.tokens)
            runs = [
                loop(engine, config, concurrency, count, given.tokens) for _ in range(given.rounds)
            ]
            rates = sorted(run[0] for run in runs)
            firsts = sorted(first for run in runs for first in run[1])
            gap = statistics.median(np.concatenate([run[2] for run in runs]))
            sys.stdout.write(
                f"c={concurrency}: {statistics.median(rates):.1f} windows/s "
                f"({rates[0]:.1f} to {rates[-1]:.1f}), first token p50 "
                f"{statistics.median(firsts):.1f} ms, p90 {firsts[int(0.9 * len(firsts))]:.1f} ms, "
                f"then one every {gap:.2f} ms\n"
            )
            sys.stdout.flush()
        count, most = min(concurrency, MAX_ROWS), min(200, config.target_positions - 4)
        step = float(np.median(loop(engine, config, count, count, most)[2]))
        read = decoder_gb(config, count)
        sys.stdout.write(
            f"a decode step of {count} rows: {step:.2f} ms for {read:.2f} GB, "
            f"{read / step:.2f} TB/s\n"
        )
        if given.profile:
            profile(engine, config, concurrency, given.tokens)


if __name__ == "__main__":
    main()
