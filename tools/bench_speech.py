"""What a Qwen3-TTS deployment speaks: seconds of sound a second, and how soon the first are there.

    python tools/bench_speech.py qwen3_tts --set model.path=FOLDER --set model.load=random --rows 64

``--packets`` answers one by one, each timed from its request to its first sound; then ``--rows`` of
``--frames`` frames at once (12.5 frames are a second). Answers go on to their limit, are drawn at
the checkpoint's settings with seeds of their own, and say random words. On a GPU also what is
captured takes by walk and size while all speak, and how much of the time that is; and by itself the
code predictor, and the codec on chunks of several lengths, with what the weights must take at
``--gbps``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from mstar_qwen3_tts.columns.contract import Frames
from mstar_qwen3_tts.packed import PackedRows

from mstar_core.bench.machine import described
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine, ItemsEvent
from mstar_core.ops.functional import rope_angles

cuda = torch.cuda
FRAME_S, WORDS = 0.08, 24
CODEC_FRAMES, CODEC_LENGTHS = 512, (1, 8, 16)
SAMPLED = {"temperature_B": 0.9, "top_p_B": 1.0, "min_p_B": 0.0}
DRAWN = {"top_k_B": 50, "seed_B": 7, "position_B": 3}


def asked(front: Any, number: int, frames: int) -> Any:
    """A request that speaks random words, up to its limit."""
    words = np.random.default_rng(number).integers(3, 200, WORDS).tolist()
    return front.ids_request(
        [0, 1, 2, *words, 0, 1, 2, 0, 1],
        voice=front.traits()["voices"][0] if front.traits()["voices"] else None,
        max_new_tokens=frames + 1,
        ignore_stop_ids=True,
        sampling=SamplingSettings(**{**front.default_sampling(), "seed": number}),
    )


def together(engine: Engine, rows: int, frames: int) -> dict[str, float]:
    """All at once: seconds of sound by the time until the last is there."""
    given = [asked(engine.front, number, frames) for number in range(rows)]
    began = time.perf_counter()
    found = engine.run(given)
    took_s = time.perf_counter() - began
    spoken_s = FRAME_S * sum(len(result.items["sound"]) for result in found)
    return {"sound_s": spoken_s, "took_s": took_s, "sound_s_per_s": spoken_s / took_s}


def first_packets(engine: Engine, packets: int) -> dict[str, float]:
    """One by one: milliseconds from the request to its first sound."""
    waits = []
    for number in range(packets):
        began, first = time.perf_counter(), None
        for event in engine.stream(asked(engine.front, number, 25)):
            if isinstance(event, ItemsEvent) and first is None:
                first = time.perf_counter() - began
        waits.append(1e3 * (first or 0.0))
    return {"p50_ms": statistics.median(waits), "worst_ms": max(waits)}


def on_device_ms(call: Callable[[], object], times: int = 20) -> float:
    """Milliseconds of one call on the device."""
    for _ in range(3):
        call()
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    cuda.synchronize()
    return begin.elapsed_time(end) / times


class Timed:
    """A graph that notes on the device when it begins and ends."""

    def __init__(self, graph: Any, name: str, notes: list[tuple[str, Any, Any]]) -> None:
        self.graph, self.name, self.notes = graph, name, notes

    def replay(self) -> None:
        """Run it."""
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        self.notes.append((self.name, begin, end))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)


def by_walk(engine: Engine, rows: int, frames: int) -> dict[str, Any]:
    """What each captured walk takes of the device's time while all speak at once."""
    notes: list[tuple[str, Any, Any]] = []
    captured = engine.driver.core.lifecycle.buckets.captured
    for bucket, each in captured.items():
        each.graph = Timed(each.graph, str(bucket), notes)
    found: dict[str, Any] = {"all at once": together(engine, rows, frames)}
    cuda.synchronize()
    for each in captured.values():
        each.graph = each.graph.graph
    spent: dict[str, list[float]] = {}
    for name, begin, end in notes:
        spent.setdefault(name, []).append(begin.elapsed_time(end))
    for name, times in sorted(spent.items()):
        found[name] = {"steps": len(times), "median_ms": statistics.median(times)}
        found[name]["all_ms"] = sum(times)
    found["share of the time"] = (
        sum(map(sum, spent.values())) / found["all at once"]["took_s"] / 1e3
    )
    return found


def parts(core: Any, rows: int, bytes_per_ms: float) -> dict[str, Any]:
    """Of the predictor and the codec by themselves: milliseconds, and those of the weights."""
    talker, codec = (core.nodes[name].submodule for name in ("talker", "codec"))
    passes = talker.predictor.later + 1
    found: dict[str, Any] = {
        f"code predictor, {rows} rows": in_graph_ms(_predictor(talker, rows)),
        "weights of the talker's layers": _bytes(talker.layers) / bytes_per_ms,
        "weights of the predictor's layers, all passes": (
            passes * _bytes(talker.predictor.layers) / bytes_per_ms
        ),
    }
    for length in CODEC_LENGTHS:
        count = min(rows, CODEC_FRAMES // length)
        found[f"codec, {count} rows of {length}"] = in_graph_ms(_codec(codec, count, length))
    return found


def in_graph_ms(call: Callable[[], object]) -> float:
    """Milliseconds of one call, captured."""
    graph = cuda.CUDAGraph()
    call()
    with cuda.graph(graph):
        call()
    return on_device_ms(graph.replay)


def _predictor(talker: Any, rows: int) -> Callable[[], object]:
    norm = talker.norm
    hidden_BH = torch.randn(rows, len(norm), device=norm.device, dtype=norm.dtype)
    plan = SimpleNamespace(sampled=1, top_logprobs=0, penalised=0)
    for name, value in {**SAMPLED, **DRAWN}.items():
        setattr(plan, name, torch.full((rows,), value, device=norm.device))
    return lambda: talker.predictor(hidden_BH, hidden_BH, plan)


def _codec(codec: Any, rows: int, length: int) -> Callable[[], object]:
    table = codec.decoder.codebooks.begins
    row_B = torch.arange(rows, device=table.device)
    packed = PackedRows(
        starts_B=row_B * length,
        lens_B=torch.full_like(row_B, length),
        row_T=row_B.repeat_interleave(length),
        slots_B=row_B + 1,
        fresh_B=row_B < 0,
    )
    index_T = 100 + torch.arange(length, device=table.device).repeat(rows)
    layer = codec.decoder.pre_transformer.layers[0]
    rope = rope_angles(index_T, layer.head_dim, 1e4)
    frames = Frames(rows=packed, index_T=index_T, rope=rope)
    codes_TQ = torch.randint(codec.decoder.codebooks.size, (rows * length, len(table)))
    codes_TQ = codes_TQ.to(table.device)
    return lambda: codec.decoder(codes_TQ, frames)


def _bytes(module: torch.nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in module.parameters())


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--frames", type=int, default=125)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--packets", type=int, default=20)
    parser.add_argument("--gbps", type=float, default=4800, help="of the device's memory")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    sizes = [f"engine.max_rows={args.rows}", f"engine.capture.rows=[1,{args.rows}]"]
    record: dict[str, Any] = {"machine": described(shlex.join(["python", *sys.argv]))}
    with Engine.open(args.config, [*sizes, *args.sets]) as engine:
        together(engine, args.rows, 20)
        record["first packet"] = first_packets(engine, args.packets)
        rounds = [together(engine, args.rows, args.frames) for _ in range(args.rounds)]
        record["together"] = rounds
        core = engine.driver.core
        record["steps"] = {k: core.stats()[k] for k in ("by_walk", "eager_by_walk", "steady")}
        if cuda.is_available():
            with torch.inference_mode():
                for rows in sorted({1, args.rows}):
                    record[f"by walk, {rows} rows"] = by_walk(engine, rows, args.frames)
                for rows in sorted({1, args.rows}):
                    record[f"parts of {rows} rows, ms"] = parts(core, rows, args.gbps * 1e6)
    sys.stdout.write(json.dumps(record, indent=1) + "\n")
    if args.json:
        Path(args.json).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
