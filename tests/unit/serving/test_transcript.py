"""A transcript in each of its formats."""

from __future__ import annotations

import json

import pytest

from mstar_core.model.segment import Segment
from mstar_core.serving.hearing import _Trimmed
from mstar_core.serving.transcript import Transcript, written

SEGMENTS = [
    Segment(start=0.0, end=1.5, text=" Good <morning> & --> all.", first=1, ids=(7, 8)),
    Segment(start=3661.25, end=3662.0, text="\nTwo\n\nlines", first=5, ids=(9,)),
]
HEARD = Transcript(
    text="Good morning.",
    seconds=12.34567,
    segments=SEGMENTS,
    logprobs=[-9.0, -1.0, -2.0, -9.0, -9.0, -4.0, -9.0],
    task="transcribe",
    language="en",
    temperature=0.5,
)


def test_text_is_a_line():
    assert written(HEARD, "text") == ("text/plain", b"Good morning.\n")


def test_json_has_the_text_and_what_it_is_counted_by():
    media, body = written(HEARD, "json")
    assert media == "application/json"
    usage = {"type": "duration", "seconds": 12.346}
    assert json.loads(body) == {"text": "Good morning.", "usage": usage}


def test_srt_numbers_its_cues_and_no_text_is_taken_for_a_cue():
    media, body = written(HEARD, "srt")
    assert media == "application/x-subrip"
    assert body.decode() == (
        "1\n00:00:00,000 --> 00:00:01,500\nGood <morning> & -> all.\n\n"
        "2\n01:01:01,250 --> 01:01:02,000\nTwo lines\n\n"
    )


def test_vtt_has_its_head_and_escapes_what_would_be_markup():
    media, body = written(HEARD, "vtt")
    assert media == "text/vtt"
    assert body.decode() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nGood &lt;morning&gt; &amp; -&gt; all.\n\n"
        "01:01:01.250 --> 01:01:02.000\nTwo lines\n\n"
    )


def test_verbose_json_tells_times_and_the_mean_log_probability_of_each_segment():
    body = json.loads(written(HEARD, "verbose_json")[1])
    first, second = body.pop("segments")
    assert body == {
        "task": "transcribe",
        "language": "en",
        "duration": 12.346,
        "text": "Good morning.",
        "usage": {"type": "duration", "seconds": 12.346},
    }
    assert (first["start"], first["end"], first["tokens"]) == (0.0, 1.5, [7, 8])
    assert (first["avg_logprob"], second["avg_logprob"]) == (-1.5, -4.0)
    assert first["no_speech_prob"] is None
    assert second["id"] == 1
    assert first["temperature"] == 0.5


def test_speech_that_repeats_itself_has_a_high_compression_ratio():
    segment = Segment(start=0, end=9, text=" ha" * 200, first=0, ids=(1,))
    again = Transcript(
        text="",
        seconds=9,
        segments=[segment],
        logprobs=[],
        task="transcribe",
        language=None,
        temperature=0,
    )
    body = json.loads(written(again, "verbose_json")[1])
    assert body["segments"][0]["compression_ratio"] > 20
    assert body["language"] is None


@pytest.mark.parametrize(
    "pieces", [["  a b ", "c  "], ["", " ", "a", " ", "b", " c", " ", " "], ["a b c"], [" a b c\n"]]
)
def test_space_around_the_text_is_dropped_in_whatever_pieces_it_comes(pieces):
    trimmed = _Trimmed()
    assert "".join(trimmed.push(piece) for piece in pieces) == trimmed.text == "a b c"
