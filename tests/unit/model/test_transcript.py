"""A transcript in each of its formats."""

from __future__ import annotations

import json

import msgspec
import pytest

from mstar_core.model.segment import Segment, Word
from mstar_core.model.transcript import FORMATS, Transcript, Trimmed, document
from mstar_core.serving.protocol.audio import Transcription

SEGMENTS = [
    Segment(
        start=0.0,
        end=1.5,
        text=" Good <morning> & --> all.",
        ids=(7, 8),
        avg_logprob=-1.5,
        compression_ratio=0.75,
        no_speech_prob=0.125,
        temperature=0.2,
        words=(
            Word(start=0.1, end=0.6, text=" Good", probability=0.5),
            Word(start=0.6, end=1.23456, text=" <morning>", probability=1.0),
        ),
    ),
    Segment(start=3661.25, end=3662.0, text="\nTwo\n\nlines", ids=(9,), avg_logprob=-float("inf")),
]
HEARD = Transcript(segments=SEGMENTS, seconds=3662.34567, language="en")
TEXT = "Good <morning> & --> all.\nTwo\n\nlines"
NOTHING = Transcript(segments=[], seconds=5.0)


def test_text_is_what_the_segments_say_without_space_around_it():
    assert document(HEARD, "text") == f"{TEXT}\n"


def test_json_and_verbose_json_say_the_same_as_text():
    """WH-02."""
    assert document(HEARD, "json") == {"text": TEXT}
    assert document(HEARD, "verbose_json")["text"] == TEXT


def test_all_formats_have_the_same_words():
    """WH-02."""
    said = Transcript(
        segments=[
            Segment(start=i, end=i + 1, text=f" {word}", ids=())
            for i, word in enumerate(("kept", "me", "honest"))
        ],
        seconds=3,
    )
    for style in FORMATS:
        told = document(said, style)
        text = told if isinstance(told, str) else told["text"]
        words = [word for word in text.split() if word.isalpha() and word != "WEBVTT"]
        assert words == ["kept", "me", "honest"], style


def test_srt_numbers_its_cues_and_no_text_is_taken_for_a_cue():
    assert document(HEARD, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nGood <morning> & -> all.\n\n"
        "2\n01:01:01,250 --> 01:01:02,000\nTwo lines\n\n"
    )


def test_vtt_has_its_head_and_escapes_what_would_be_markup():
    assert document(HEARD, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nGood &lt;morning&gt; &amp; -&gt; all.\n\n"
        "01:01:01.250 --> 01:01:02.000\nTwo lines\n\n"
    )


def test_verbose_json_tells_times_and_how_far_each_segment_is_to_be_believed():
    told = document(HEARD, "verbose_json")
    first, second = told.pop("segments")
    assert told == {"task": "transcribe", "language": "en", "duration": 3662.346, "text": TEXT}
    assert first == {
        "id": 0,
        "seek": 0,
        "start": 0.0,
        "end": 1.5,
        "text": " Good <morning> & --> all.",
        "tokens": [7, 8],
        "temperature": 0.2,
        "avg_logprob": -1.5,
        "compression_ratio": 0.75,
        "no_speech_prob": 0.125,
    }
    assert (second["id"], second["avg_logprob"], second["no_speech_prob"]) == (1, -9999.0, None)


def test_words_are_told_where_they_are_asked_for():
    words = document(HEARD, "verbose_json", words=True)["words"]
    assert words == [
        {"word": "Good", "start": 0.1, "end": 0.6, "probability": 0.5},
        {"word": "<morning>", "start": 0.6, "end": 1.235, "probability": 1.0},
    ]
    assert "words" not in document(HEARD, "json", words=True)


def test_nothing_said_is_a_transcript_without_text():
    """WH-06."""
    assert [document(NOTHING, style) for style in ("text", "srt", "vtt")] == [
        "\n",
        "",
        "WEBVTT\n\n",
    ]
    assert document(NOTHING, "verbose_json")["segments"] == []


@pytest.mark.parametrize("heard", [HEARD, NOTHING])
def test_what_is_written_is_what_the_interface_promises(heard):
    usage = {"type": "duration", "seconds": 1.0}
    for style in ("json", "verbose_json"):
        told = {**document(heard, style, words=True), "usage": usage}
        read = msgspec.convert(json.loads(json.dumps(told)), Transcription)
        assert msgspec.to_builtins(read) == told


@pytest.mark.parametrize(
    "pieces", [["  a b ", "c  "], ["", " ", "a", " ", "b", " c", " ", " "], ["a b c"], [" a b c\n"]]
)
def test_space_around_the_text_is_dropped_in_whatever_pieces_it_comes(pieces):
    trimmed = Trimmed()
    assert "".join(trimmed.push(piece) for piece in pieces) == trimmed.text == "a b c"
