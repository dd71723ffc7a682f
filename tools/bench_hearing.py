"""How fast sound is heard on this machine: this engine beside transformers and faster-whisper.

::

    python tools/bench_hearing.py CHECKPOINT SOUND [--faster PYTHON CT2_FOLDER] [--rounds 3]

Each takes its turn in every round, in a process of its own that stays: a difference between them is
none of the hour's. All decode greedily in fp32, with timestamps, and are told nothing of what was
said before. ``PYTHON`` is one that has faster-whisper, ``CT2_FOLDER`` the checkpoint converted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

RATE = 16_000
Hear = Callable[[np.ndarray], str]
"""Samples ``[T]`` → what was said."""


def ours(folder: str, threads: int, batched: bool = False) -> Hear:
    """This engine; ``batched`` hears eight windows together."""
    import torch

    from mstar_core.engine import Engine
    from mstar_core.model.transcription import Answered, Sound

    torch.set_num_threads(threads)
    file = Path(tempfile.mkdtemp()) / "whisper.yaml"
    file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: fp32}}\n")
    engine = Engine.open(file, ["engine.max_rows=8"], offline=True)

    def hear(samples_T: np.ndarray) -> str:
        plan = engine.front.transcription(
            Sound.of(samples_T, RATE), temperature=0.0, batched=batched
        )
        segments = []
        while requests := plan.next():
            for result in engine.run(requests):
                segments += plan.take(Answered.of(result))
        return "".join(segment.text for segment in segments)

    return hear


def batched(folder: str, threads: int) -> Hear:
    """This engine, with eight windows together."""
    return ours(folder, threads, batched=True)


def transformers(folder: str, threads: int) -> Hear:
    """The reference's long-form generation."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    torch.set_num_threads(threads)
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processor = WhisperProcessor.from_pretrained(folder)

    def hear(samples_T: np.ndarray) -> str:
        sound = processor.feature_extractor(
            samples_T,
            sampling_rate=RATE,
            return_tensors="pt",
            truncation=False,
            padding="longest",
            return_attention_mask=True,
        )
        ids = model.generate(
            sound.input_features,
            attention_mask=sound.attention_mask,
            return_timestamps=True,
            num_beams=1,
            temperature=0.0,
            condition_on_prev_tokens=False,
        )
        return processor.batch_decode(ids, skip_special_tokens=True)[0]

    return hear


def faster(folder: str, threads: int) -> Hear:
    """faster-whisper, sequential."""
    from faster_whisper import WhisperModel

    model = WhisperModel(folder, device="cpu", compute_type="float32", cpu_threads=threads)

    def hear(samples_T: np.ndarray) -> str:
        segments, _ = model.transcribe(
            samples_T,
            language="en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        return "".join(segment.text for segment in segments)

    return hear


ROLES = {"ours": ours, "ours, batched": batched, "transformers": transformers, "faster": faster}


def child(role: str, folder: str, sound: str, threads: int) -> None:
    """Hear ``sound`` once per line of the input: seconds, seconds of all cores, and words."""
    samples_T, hear = np.load(sound), ROLES[role](folder, threads)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        text = hear(samples_T)
        taken = time.perf_counter() - wall, time.process_time() - cpu
        sys.stdout.write(json.dumps([*taken, len(text.split())]) + "\n")
        sys.stdout.flush()


def started(python: str, *arguments: str) -> subprocess.Popen[str]:
    """A child that has its model, and has heard the sound once."""
    command = [python, __file__, "--role", *arguments]
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    heard(made)
    return made


def heard(child: subprocess.Popen[str]) -> list[float]:
    """One turn of a child."""
    if child.stdin is None or child.stdout is None:
        raise ValueError("a child without pipes")
    child.stdin.write("\n")
    child.stdin.flush()
    found: list[float] = json.loads(child.stdout.readline())
    return found


def main() -> None:
    """Run all that there are in turn, and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("sound")
    parser.add_argument("--faster", nargs=2, metavar=("PYTHON", "CT2_FOLDER"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        child(given.role, given.checkpoint, given.sound, given.threads)
        return
    from mstar_core.audio import read_audio
    from mstar_core.resample import resample

    audio = read_audio(given.sound)
    samples_T = resample(audio.samples_T, audio.rate, RATE)
    file = str(Path(tempfile.mkdtemp()) / "sound.npy")
    np.save(file, samples_T)
    tail = (given.checkpoint, file, "--threads", str(given.threads))
    running = {
        role: started(sys.executable, role, *tail) for role in list(ROLES) if role != "faster"
    }
    if given.faster:
        python, folder = given.faster
        running["faster"] = started(python, "faster", folder, *tail[1:])
    taken: dict[str, list[list[float]]] = {role: [] for role in running}
    for _ in range(given.rounds):
        for role, process in running.items():
            taken[role].append(heard(process))
            sys.stderr.write(f"{role}: {taken[role][-1]}\n")
    seconds = len(samples_T) / RATE
    for role, turns in taken.items():
        wall, cpu, words = (statistics.median(column) for column in zip(*turns, strict=True))
        sys.stdout.write(
            f"{role:14s} RTF {wall / seconds:.3f}, of all cores {cpu / seconds:.3f}, "
            f"{words:.0f} words\n"
        )
        process = running[role]
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
