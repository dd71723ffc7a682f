"""Parts of speech as one sound: no sample more or less, and no step where they meet."""

import numpy as np
import pytest

from mstar_core.model.speech import FADE_S, Joined

RATE = 24_000
FADE = int(FADE_S * RATE)


def joined(parts_T, chunk):
    made, found = Joined(RATE), []
    for number, part_T in enumerate(parts_T):
        last = number == len(parts_T) - 1
        starts = range(0, len(part_T), chunk)
        found += [made.push(part_T[at : at + chunk], last=last) for at in starts]
        found.append(made.end())
    return np.concatenate(found)


@pytest.mark.parametrize("chunk", [1, 7, 119, 120, 121, 5000])
@pytest.mark.parametrize("lengths", [(3000, 2500, 4000), (1000, 50, 300), (130, 1, 2000)])
def test_parts_are_joined_without_a_step_and_without_a_sample_more_or_less(chunk, lengths):
    """However they are cut; beginning and end are as they were."""
    rng = np.random.default_rng(0)
    walks = [np.cumsum(rng.normal(0, 0.01, n)).astype(np.float32) for n in lengths]
    parts_T = [walk + (-1) ** i * 0.5 for i, walk in enumerate(walks)]
    sound_T = joined(parts_T, chunk)
    assert len(sound_T) == sum(lengths)
    assert sound_T.dtype == np.float32
    steps = np.abs(np.diff(sound_T))
    for joint in np.cumsum(lengths)[:-1]:
        near = np.concatenate(
            [steps[joint - 2 * FADE : joint - 1], steps[joint : joint + 2 * FADE]]
        )
        assert steps[joint - 1] <= 3 * near.max()
    assert np.array_equal(sound_T, joined(parts_T, 10_000))
    inside = lengths[0] - FADE
    assert np.array_equal(sound_T[:inside], parts_T[0][:inside])
    assert sound_T[-1] == parts_T[-1][-1]


def test_sound_of_one_part_stays_as_it_is_and_nothing_of_it_is_held():
    sound_T = np.random.default_rng(0).normal(0, 0.3, 999).astype(np.float32)
    made = Joined(RATE)
    assert np.array_equal(made.push(sound_T, last=True), sound_T)
    assert len(made.end()) == 0
