"""Long sound made of recordings whose words and places in it are known, and words missed in it.

::

    python plugins/whisper/tests/long_sound.py CHECKPOINT RECORDINGS --minutes 60 [--batched]

Where words are put in it, ``stamps.py`` measures.
"""

from __future__ import annotations

import argparse
import difflib
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import published
from attrs import frozen

from mstar_core.audio import read_audio
from mstar_core.engine import Engine
from mstar_core.model.transcription import Answered, Sound

RATE = 16_000
BLOCK = 30 * RATE
PAUSE_S = (0.2, 2.5)
"""Silence or noise between two recordings, at random."""
SAID = {name: text for name, text in published.SAID.items() if name != "espeak_fox"}
"""Of the recordings that long sound is made of."""
LOUD_DB = 20
"""Speech begins and ends where the level is this much below that of its loud parts."""


def words(text):
    """Lower case, without punctuation."""
    return re.findall(r"[a-z0-9]+", text.lower().replace("-", ""))


def spoken(samples_T):
    """Seconds at which a recording's speech begins and ends, by its level."""
    power = np.add.reduceat(samples_T**2, np.arange(0, len(samples_T), RATE // 100))
    db = 10 * np.log10(np.convolve(power, np.ones(5), mode="same") + 1e-12)
    loud = np.flatnonzero(db > np.percentile(db, 95) - LOUD_DB)
    return loud[0] / 100, (loud[-1] + 1) / 100


@frozen
class Place:
    """A recording within the long sound, in seconds."""

    name: str
    begin: float
    """Of its speech, by its level."""
    end: float
    joins: tuple[float, float]
    """Where it was joined to what is in front of it and behind it."""


class LongSound:
    """Recordings in any order, pauses between them; never whole in memory.

    ``cut``: they are cut to their speech, so that it begins and ends where they are joined.
    """

    def __init__(self, folder: Path, seconds: float, seed: int = 0, cut: bool = False) -> None:
        self.clips = {name: read_audio(folder / f"{name}.wav").samples_T for name in sorted(SAID)}
        if cut:
            for name, clip in self.clips.items():
                first, last = (int(RATE * side) for side in spoken(clip))
                self.clips[name] = clip[first:last]
        draw, names, at = np.random.default_rng(seed), list(self.clips), 0
        self._parts: list[tuple[int, bool, str]] = []
        self.places: list[Place] = []
        while at < seconds * RATE:
            pause, noisy = int(RATE * draw.uniform(*PAUSE_S)), bool(draw.integers(2))
            name = names[draw.integers(len(names))]
            begin, end = spoken(self.clips[name])
            self._parts.append((pause, noisy, name))
            at += pause
            start, at = at / RATE, at + len(self.clips[name])
            self.places.append(Place(name, start + begin, start + end, (start, at / RATE)))
        self.seconds = at / RATE

    def parts(self) -> Iterator[np.ndarray]:
        """Pauses and recordings, in order."""
        draw = np.random.default_rng(1)
        for pause, noisy, name in self._parts:
            yield (0.003 * noisy * draw.standard_normal(pause)).astype(np.float32)
            yield self.clips[name]

    def blocks(self) -> Iterator[np.ndarray]:
        """As ``Sound`` wants them."""
        kept = np.empty(0, np.float32)
        for part in self.parts():
            kept = np.concatenate([kept, part])
            while len(kept) >= BLOCK:
                yield kept[:BLOCK]
                kept = kept[BLOCK:]
        if len(kept):
            yield kept

    def missing(self, text: str) -> tuple[int, int]:
        """Words that were said and are not in ``text``, in order, and words that were said."""
        said = [word for place in self.places for word in words(SAID[place.name])]
        match = difflib.SequenceMatcher(None, said, words(text), autojunk=False)
        return len(said) - sum(block.size for block in match.get_matching_blocks()), len(said)


def hear(engine, sound, **options):
    """Segments; and as it went, every two minutes of sound: its seconds, those that hearing it
    took, those of all cores, and MiB of memory at most."""
    plan = engine.front.transcription(Sound(rate=RATE, blocks=sound.blocks), **options)
    segments, went = [], []
    begin, cpu = time.perf_counter(), time.process_time()
    while requests := plan.next():
        for result in engine.run(requests):
            segments += plan.take(Answered.of(result))
        if plan.seconds >= min(120 * (len(went) + 1), plan.duration):
            taken = time.perf_counter() - begin, time.process_time() - cpu
            went.append((plan.seconds, *taken, peak_mib()))
            sys.stderr.write(f"{[round(each) for each in went[-1]]}\n")
    return segments, went


def peak_mib():
    """Memory of this process at most, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Hear a long sound and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--batched", action="store_true")
    given = parser.parse_args()
    sound = LongSound(given.recordings, 60 * given.minutes)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "whisper.yaml"
        folder = given.checkpoint.resolve()
        file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: fp32}}\n")
        with Engine.open(file, ["engine.max_rows=8"], offline=True) as engine:
            segments, went = hear(engine, sound, word_timestamps=True, batched=given.batched)
    missing, said = sound.missing("".join(s.text for s in segments))
    sys.stdout.write(f"{missing} of {said} words missing\n")
    for name, (seconds, took, cpu, mib) in (("first", went[0]), ("last", went[-1])):
        sys.stdout.write(
            f"{name}: {seconds:.0f} s heard in {took:.0f} s, {cpu:.0f} s of all cores; "
            f"memory at most {mib:.0f} MiB\n"
        )


if __name__ == "__main__":
    main()
