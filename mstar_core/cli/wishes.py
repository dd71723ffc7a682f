"""What a command line wishes of a voice: its arguments, and the requests that they make."""

from __future__ import annotations

import argparse
from typing import Any

from attrs import evolve

from mstar_core.audio import read_audio
from mstar_core.cli.arguments import positive
from mstar_core.cli.streams import add_texts
from mstar_core.errors import ConfigError, UsageError, Words
from mstar_core.model.front import Front, Request

OPTIONS = ("language", "instructions", "reference")
"""Wishes that a front takes where its ``speech_options`` say so."""


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_texts(
        parser,
        ("--voice", "NAME", "one of --voices"),
        ("--language", "NAME", "the language of TEXT, one of --voices"),
        ("--instructions", "TEXT", "in words, how to speak"),
        ("--reference-text", "TEXT", "all that is said in the recording of --reference"),
    )
    parser.add_argument(
        "--reference",
        metavar="FILE",
        help="a recording of the voice to imitate: wav, flac, ogg, mp3",
    )
    parser.add_argument(
        "--speaker-only",
        action="store_true",
        help="imitate the voice, and not how it speaks there: --reference-text is not needed",
    )
    parser.add_argument(
        "--speed", type=positive, default=1.0, metavar="FACTOR", help="2 is twice as fast"
    )


def requests_of(front: Front, args: argparse.Namespace, text: str) -> list[Request]:
    """The requests for ``text``. Raises ConfigError, UsageError and RequestError."""
    check_front(front, args)
    asked = {name: value for name in OPTIONS if (value := getattr(args, name)) is not None}
    if "reference" in asked:
        asked |= _heard(args)
    requests = front.speech_requests(text, voice=args.voice, speed=args.speed, **asked)
    if args.seed is None:
        return requests
    return [evolve(r, sampling=evolve(r.sampling, seed=args.seed)) for r in requests]


def _heard(args: argparse.Namespace) -> dict[str, Any]:
    """The recording of a voice, as a front takes it. Raises RequestError."""
    sound = read_audio(args.reference)
    return {
        "reference": sound.samples_T,
        "reference_rate": sound.rate,
        "reference_text": args.reference_text,
        "speaker_only": args.speaker_only,
    }


def check_front(front: Front, args: argparse.Namespace) -> None:
    """Raise ConfigError or UsageError for a model that cannot do what is asked."""
    if "speech" not in front.capabilities():
        raise ConfigError(
            where=str(args.config),
            got=Words(f"a model that takes {', '.join(sorted(front.capabilities())) or 'no text'}"),
            want="a model that speaks",
            fix="name a configuration of a speech synthesis model",
        )
    for name in OPTIONS:
        if getattr(args, name) is not None and name not in front.speech_options():
            raise UsageError(
                where=f"mstar-core speak --{name}",
                got=Words("a model that does not take it"),
                want="a model that does",
                fix=f"leave --{name} out",
            )
