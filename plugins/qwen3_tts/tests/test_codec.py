"""The codec against the reference's waveforms: whole, in chunks and in company."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

FRAME = 1920
SCHEDULES = ([1], [2], [25], [300], [1, 4, 25], [3, 10])
FOLDER = "speech_tokenizer"


def frames(count, seed=0):
    """int64 ``[count, 16]`` of the tiny codec's 64 codes."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 64, (count, 16), generator=draw)


@pytest.fixture
def published(equations, voice):
    """The samples of frames by the reference's own equations."""
    weights = load_file(voice.folder / FOLDER / "model.safetensors")
    config = json.loads((voice.folder / FOLDER / "config.json").read_text())
    return lambda codes: equations.codec_decode(weights, config, codes.T)


@pytest.mark.shared
def test_whole_and_chunked_sound_is_the_published_one(codec_bench, tiny):
    bench, codes = codec_bench(tiny.folder), tiny.codes()
    for chunks in SCHEDULES:
        sound = bench.decode(codes, chunks)
        assert len(sound) == FRAME * len(codes)
        assert (sound - tiny.wave).abs().max() < 1e-4


@pytest.mark.shared
@pytest.mark.parametrize("count", [1, 2, 3, 24, 25, 26, 50, 51])
def test_chunks_of_any_schedule_join_to_the_whole(codec_bench, voice, count):
    """TT-03, TT-04, TT-15: no sample is lost at a joint, also at the tail, and none differs."""
    bench, codes = codec_bench(voice.folder), frames(count)
    whole = bench.decode(codes, [count])
    for chunks in SCHEDULES:
        sound = bench.decode(codes, chunks)
        assert len(sound) == len(whole) == FRAME * count
        assert (sound - whole).abs().max() < 2e-6


@pytest.mark.shared
def test_frames_beyond_the_window_are_the_published_ones(codec_bench, voice, published):
    """TT-16: 70 frames with a window of 8, whole and in chunks."""
    bench, codes = codec_bench(voice.folder), frames(70, seed=3)
    want = published(codes)
    for chunks in ([70], [1], [25]):
        assert (bench.decode(codes, chunks) - want).abs().max() < 1e-5


@pytest.mark.shared
@pytest.mark.parametrize(
    "size", [300, 25, *(pytest.param(each, marks=pytest.mark.long) for each in (2, 1))]
)
@pytest.mark.parametrize("count", [299, 300, 301, 600])
def test_chunks_around_three_hundred_frames_join_to_the_whole(codec_bench, voice, count, size):
    """TT-03"""
    bench, codes = codec_bench(voice.folder), frames(count, seed=4)
    whole, sound = bench.decode(codes, [count]), bench.decode(codes, [size])
    assert len(sound) == FRAME * count
    assert (sound - whole).abs().max() < 2e-6


@pytest.mark.shared
def test_rows_of_other_lengths_in_a_step_change_no_sample(codec_bench, voice):
    bench = codec_bench(voice.folder)
    all_codes = [frames(count, seed=count) for count in (9, 12, 7)]
    alone = [bench.decode(codes, [len(codes)]) for codes in all_codes]
    handles = [bench.open() for _ in all_codes]
    spans, found = ((1, 3, 2), (5, 1, 4), (3, 8, 1)), [[], [], []]
    at = [0, 0, 0]
    for step in spans:
        pieces = [codes[a : a + n] for codes, a, n in zip(all_codes, at, step, strict=True)]
        at = [a + n for a, n in zip(at, step, strict=True)]
        for kept, sound in zip(found, bench.step(handles, pieces), strict=True):
            kept.append(sound)
    for pieces, want in zip(found, alone, strict=True):
        assert (torch.cat(pieces) - want).abs().max() < 2e-6


@pytest.mark.shared
def test_what_a_request_left_in_its_slot_reaches_nobody(codec_bench, voice):
    bench, codes = codec_bench(voice.folder, rows=1), frames(6)
    before = bench.decode(codes, [2])
    for block in bench.world.resources["memory"].pool.blocks.values():
        block.fill_(float("nan"))
    assert torch.equal(bench.decode(codes, [2]), before)
