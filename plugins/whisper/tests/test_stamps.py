"""Times against the joins of a long sound: how they are measured, and published tiny.en weights."""

from __future__ import annotations

import numpy as np
import pytest
from long_sound import SAID, LongSound, hear
from published import heard_words
from stamps import GREEDY, REFERENCE, measured, within

from mstar_core.model.segment import Segment, Word

pytestmark = [pytest.mark.shared]


def placed(sound, late=0.0):
    """Segments that say a recording each, evenly, ``late`` seconds behind where it is."""
    for place in sound.places:
        begin, end = (join + late for join in place.joins)
        words = SAID[place.name].split()
        edges = np.linspace(begin, end, len(words) + 1)
        yield Segment(
            start=begin,
            end=end,
            text="",
            ids=(),
            words=tuple(
                Word(start=a, end=b, text=f" {text}", probability=1.0)
                for text, a, b in zip(words, edges, edges[1:], strict=False)
            ),
        )


def test_what_lies_at_the_joins_is_measured_so_and_what_is_late_by_as_much(speech):
    """A recording that is left out, and a repeated one that is near, change nothing."""
    sound = LongSound(speech, 60, cut=True)
    found = measured(sound, [*placed(sound)])
    assert all(within(seconds, name) == 1 for name, seconds in found.items())
    assert len(found["first words"]) == len(found["last words"]) == len(sound.places)
    late = measured(sound, [*placed(sound, 0.3)][1:])
    assert late["first words"] == pytest.approx(np.full(len(sound.places) - 1, 0.3))
    assert late["segments to last words"].max() == pytest.approx(0.3)
    assert late["words end too late"].max() == pytest.approx(0.3)
    assert within(late["last words"], "last words") == 0
    assert within(late["words begin too soon"], "words begin too soon") == 1


@pytest.mark.weights
def test_a_minutes_words_and_segments_lie_within_a_fifth_of_a_second_of_the_joins(engine, speech):
    """Each first and last word, and nothing reaches over a join."""
    sound = LongSound(speech, 60, cut=True)
    segments, _ = hear(engine, sound, word_timestamps=True)
    found = measured(sound, segments)
    assert {name: within(seconds, name) for name, seconds in found.items()} == dict.fromkeys(
        found, 1
    )
    assert len(found["words end too late"]) > 80
    assert min(len(found["first words"]), len(found["last words"])) > 8


@pytest.mark.long
@pytest.mark.weights
@pytest.mark.parametrize("seed", [0, 1])
def test_ten_minutes_are_timed_nearer_to_the_joins_than_the_reference_does(
    engine, real_weights, speech, seed
):
    """Its words and segments, of the same text."""
    sound = LongSound(speech, 600, seed, cut=True)
    segments, _ = hear(engine, sound, word_timestamps=True, **GREEDY)
    theirs = heard_words(real_weights, np.concatenate([*sound.parts()]), **REFERENCE)
    assert [s.ids for s in segments] == [s.ids for s in theirs]
    found, reference = measured(sound, segments), measured(sound, theirs)
    for name, seconds in found.items():
        assert within(seconds, name) > 0.97, name
        assert within(seconds, name) >= within(reference[name], name), name
    assert len(found["first words"]) > 80
