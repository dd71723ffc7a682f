"""Long sound made of recordings whose words and whose places in it are known, and a count of both.

::

    python plugins/whisper/tests/long_sound.py CHECKPOINT RECORDINGS --minutes 60 [--batched]
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
    """A recording's speech within the long sound, in seconds."""

    name: str
    begin: float
    end: float


class LongSound:
    """Recordings in any order, pauses between them; never whole in memory."""

    def __init__(self, folder: Path, seconds: float, seed: int = 0) -> None:
        self.clips = {name: read_audio(folder / f"{name}.wav").samples_T for name in sorted(SAID)}
        draw, names, at = np.random.default_rng(seed), list(self.clips), 0
        self._parts: list[tuple[int, bool, str]] = []
        self.places: list[Place] = []
        while at < seconds * RATE:
            pause, noisy = int(RATE * draw.uniform(*PAUSE_S)), bool(draw.integers(2))
            name = names[draw.integers(len(names))]
            begin, end = spoken(self.clips[name])
            start = (at + pause) / RATE
            self.places.append(Place(name, start + begin, start + end))
            self._parts.append((pause, noisy, name))
            at += pause + len(self.clips[name])
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

    def errors(self, timed) -> np.ndarray:
        """``[places, 2]`` seconds: how late first and last words of recordings were put.

        ``timed`` are words, or segments that begin and end with one. Of a recording whose first or
        last word is not among those near it, that one is NaN.
        """
        found = np.full((len(self.places), 2), np.nan)
        for i, place in enumerate(self.places):
            said = words(SAID[place.name])
            near = [w for w in timed if w.end > place.begin - 0.7 and w.start < place.end + 0.7]
            first = [w.start for w in near if words(w.text)[:1] == said[:1]]
            last = [w.end for w in near if words(w.text) and said[-1].endswith(words(w.text)[-1])]
            if first:
                found[i, 0] = first[0] - place.begin
            if last:
                found[i, 1] = last[-1] - place.end
        return found


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
    late = np.abs(sound.errors([word for s in segments for word in s.words]))
    ends = np.abs(sound.errors(segments))
    sides = {"first words": late[:, 0], "last words": late[:, 1]}
    sides |= {"segments with the first words": ends[:, 0], "with the last words": ends[:, 1]}
    for name, side in sides.items():
        known = side[~np.isnan(side)]
        sys.stdout.write(
            f"{name} of recordings: {len(known)} of {len(side)} heard, within 0.2 s "
            f"{(known <= 0.2).mean():.1%}, median {np.median(known):.3f} s\n"
        )
    sys.stdout.write(f"{missing} of {said} words missing\n")
    for name, (seconds, took, cpu, mib) in (("first", went[0]), ("last", went[-1])):
        sys.stdout.write(
            f"{name}: {seconds:.0f} s heard in {took:.0f} s, {cpu:.0f} s of all cores; "
            f"memory at most {mib:.0f} MiB\n"
        )


if __name__ == "__main__":
    main()
