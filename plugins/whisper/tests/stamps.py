"""Where words are put in a long sound, against the joins it was made at.

::

    python plugins/whisper/tests/stamps.py CHECKPOINT RECORDINGS --minutes 20
        [--cut] [--speech] [--seed 0] [--greedy] [--reference]

Two things a join tells. What is said in a recording lies within its joins: how far outside are its
words, and segments? And where speech begins and ends at the joins (``--cut``: recordings are cut to
it; ``--speech``: its beginning and end, by level, stand for the joins): how far from them are its
first and last word, and segments that begin or end with these?
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from attrs import frozen
from long_sound import SAID, LongSound, hear
from published import heard_words

from mstar_core.engine import Engine

NEAR_S = 0.2
FAR_S = 6.0
"""A word that is further from its recording is not taken for one of it."""
HEARD = {"ten": "10", "clovs": "clubs", "7": "seven", "sposed": "disposed"}
"""As tiny.en writes some of what is said."""
GREEDY = {"temperature": 0.0, "compression_ratio_threshold": None, "skip_steady": False}
REFERENCE = {"temperature": 0.0, "compression_ratio_threshold": 1e9, "logprob_threshold": -1.0}
REFERENCE |= {"no_speech_threshold": 0.6, "condition_on_prev_tokens": False}
"""The same: the reference measures repetition in another way."""


def spelled(text):
    """Lower case, without punctuation."""
    return [HEARD.get(word, word) for word in re.findall(r"[a-z0-9]+", text.lower())]


@frozen
class Spoken:
    """A word of a recording, which lasts from ``begin`` to ``end``."""

    text: str
    place: int
    begin: float
    end: float
    is_first: bool
    is_last: bool


def spoken_in(sound: LongSound, by_speech: bool) -> list[Spoken]:
    """The words of all recordings, in order."""
    every = []
    for at, place in enumerate(sound.places):
        begin, end = (place.begin, place.end) if by_speech else place.joins
        words = spelled(SAID[place.name])
        for i, word in enumerate(words):
            every.append(Spoken(word, at, begin, end, i == 0, i == len(words) - 1))
    return every


def matched(said: list[Spoken], heard) -> list[tuple[int, int]]:
    """Which of ``said`` is which of ``heard``: as many in order as there are, near ones rather.

    ``heard``: text, start, end of each.
    """
    texts = np.array([text for text, *_ in heard])
    middles = np.array([(start + end) / 2 for _, start, end, *_ in heard])
    best = np.zeros((len(said) + 1, len(heard) + 1), np.float32)
    for i, word in enumerate(said):
        off = np.maximum(0, np.maximum(word.begin - middles, middles - word.end))
        worth = np.where((texts == word.text) & (off < FAR_S), 1 - 0.9 * off / FAR_S, -1)
        row = np.maximum(best[i], np.append(0, best[i, :-1] + worth))
        best[i + 1] = np.maximum.accumulate(row)
    i, j, pairs = len(said), len(heard), []
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _timed(segments):
    """Text, start, end, segment of each word; spread evenly over a segment that times none."""
    for at, segment in enumerate(segments):
        if segment.words:
            for word in segment.words:
                yield from ((text, word.start, word.end, at) for text in spelled(word.text))
        else:
            texts = spelled(segment.text)
            edges = np.linspace(segment.start, segment.end, len(texts) + 1)
            yield from ((*each, at) for each in zip(texts, edges, edges[1:], strict=False))


def measured(sound: LongSound, segments, by_speech: bool = False) -> dict[str, np.ndarray]:
    """Seconds by which words and segments lie outside of their recordings, negative within; and
    from the joins to where first and last words are, and segments that begin and end with them."""
    said, timed = spoken_in(sound, by_speech), [*_timed(segments)]
    pairs = [(said[i], timed[j]) for i, j in matched(said, timed)]
    begins = {at: word for word, (_, _, _, at) in reversed(pairs)}
    ends = {at: word for word, (_, _, _, at) in pairs}
    starts = {at: segments[at].start - word.begin for at, word in begins.items()}
    stops = {at: segments[at].end - word.end for at, word in ends.items()}
    seconds = {
        "words begin too soon": [word.begin - start for word, (_, start, _, _) in pairs],
        "words end too late": [end - word.end for word, (_, _, end, _) in pairs],
        "segments begin too soon": [-each for each in starts.values()],
        "segments end too late": [*stops.values()],
        "first words": [start - w.begin for w, (_, start, _, _) in pairs if w.is_first],
        "last words": [end - w.end for w, (_, _, end, _) in pairs if w.is_last],
        "segments from first words": [starts[at] for at, w in begins.items() if w.is_first],
        "segments to last words": [stops[at] for at, w in ends.items() if w.is_last],
    }
    return {name: np.array(each) for name, each in seconds.items()}


def within(seconds: np.ndarray, name: str) -> float:
    """The share that is at most 0.2 s outside, or away."""
    off = seconds if "too" in name else np.abs(seconds)
    return float((off <= NEAR_S + 1e-6).mean())


def report(title: str, found: dict[str, np.ndarray]) -> None:
    """A line for each of ``measured``."""
    for name, seconds in found.items():
        sys.stdout.write(
            f"{title:13s} {name:26s} {len(seconds):5d}, within 0.2 s {within(seconds, name):6.1%}, "
            f"median {np.median(seconds):+.3f} s, worst {seconds.min():+.2f} {seconds.max():+.2f}\n"
        )


def beside(ours, theirs) -> None:
    """How far words are from the reference's, where both have heard the same."""
    mine, others = ([word for s in heard for word in s.words] for heard in (ours, theirs))
    if [w.text for w in mine] != [w.text for w in others]:
        sys.stdout.write("the reference has heard other words\n")
        return
    for side in ("start", "end"):
        off = [abs(getattr(a, side) - getattr(b, side)) for a, b in zip(mine, others, strict=True)]
        shares = ", ".join(
            f"{np.mean([each <= most + 1e-6 for each in off]):.1%} within {most} s"
            for most in (0.005, 0.02, 0.2)
        )
        sys.stdout.write(f"{len(off)} words' {side} beside the reference's: {shares}\n")


def main() -> None:
    """Hear a long sound and say where its words were put."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    for flag in ("cut", "speech", "greedy", "reference", "batched"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    sound = LongSound(given.recordings, 60 * given.minutes, given.seed, given.cut)
    folder, how = given.checkpoint.resolve(), GREEDY if given.greedy else {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "whisper.yaml"
        file.write_text(f"model: {{name: whisper, path: '{folder}', dtype: fp32}}\n")
        with Engine.open(file, ["engine.max_rows=8"], offline=True) as engine:
            how = {**how, "batched": given.batched}
            ours, _ = hear(engine, sound, word_timestamps=True, **how)
            plain, _ = hear(engine, sound, **how)
    report("words timed", measured(sound, ours, given.speech))
    coarse = measured(sound, plain, given.speech)
    report("not timed", {name: each for name, each in coarse.items() if "segments" in name})
    if given.reference:
        theirs = heard_words(folder, np.concatenate([*sound.parts()]), **REFERENCE)
        report("transformers", measured(sound, theirs, given.speech))
        beside(ours, theirs)


if __name__ == "__main__":
    main()
