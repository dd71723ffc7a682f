"""``mstar-core speak CONFIG --text TEXT --out FILE``."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from mstar_core.cli.arguments import count
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import SoundProgress, log, progress_bar
from mstar_core.cli.saying import Saying
from mstar_core.cli.sound_file import STDOUT, SoundFile, check_rate, style_of
from mstar_core.cli.streams import given_text, shown
from mstar_core.cli.tables import print_json
from mstar_core.cli.wishes import add_wishes, check_front, requests_of
from mstar_core.config import Resolved
from mstar_core.errors import UsageError, Words
from mstar_core.model.speech import voices_of
from mstar_core.serving.media.encode import MEDIA


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("speak", help="text in, speech out")
    add_config_arguments(parser)
    parser.add_argument("--text", metavar="TEXT", help="what is said; - is stdin, @FILE a file")
    parser.add_argument(
        "--out", metavar="FILE", help="where the sound goes; - is stdout, while it is made"
    )
    parser.add_argument(
        "--voices", action="store_true", help="list the voices and languages, and do nothing else"
    )
    add_wishes(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="the same sound on every run")
    parser.add_argument(
        "--format", choices=tuple(MEDIA), help="by default what FILE ends in, and wav for stdout"
    )
    parser.add_argument(
        "--sample-rate", type=count, metavar="HZ", help="by default the model's own"
    )


def run(args: argparse.Namespace) -> int:
    """Write TEXT, spoken, to FILE.

    TEXT may be of any length: what is longer than the model speaks at once is spoken in parts of
    whole sentences, several at a time, which are one sound in the file. FILE is there once the
    sound is whole. How long it is, and how fast it came, is told on stderr.

    Exit code: 0 done, 1 something is wrong with what was asked or the model failed (then there is
    no FILE), 2 the command line is wrong, 130 interrupted.

    Examples:
      mstar-core speak tts.yaml --text "Good morning." --voice vivian --out morning.wav
      mstar-core speak tts.yaml --text @chapter.txt --out chapter.mp3
      mstar-core speak tts.yaml --voices
    """
    if args.voices:
        return _list(args)
    _check_given(args)
    style = style_of(args.out, args.format)
    check_rate(style, args.sample_rate)
    text = given_text("--text", args.text)
    resolved, _ = resolve_arguments(args)
    with SoundFile(args.out, style) as file:
        saying = _speak(args, resolved, text, file)
    if args.json:
        print_json(_facts(args.out, style, saying))
    return 0


def _speak(args: argparse.Namespace, resolved: Resolved, text: str, file: SoundFile) -> Saying:
    from mstar_core.engine import Engine
    from mstar_core.engine.opening import open_front

    front = open_front(resolved, offline=args.offline)
    requests = requests_of(front, args, text)  # what is wrong with them is known before any weights
    if args.log_level is None:
        log.setLevel(logging.INFO)
    bar = SoundProgress()
    try:
        with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
            saying = Saying(engine=engine, front=front, requests=requests)
            file.begin(saying.rate, args.sample_rate)
            for samples_T in saying.pieces():
                file.push(samples_T)
                bar.show(saying.seconds)
            file.finish()
    finally:
        bar.clear()
    _tell(args.out, saying)
    return saying


def _tell(path: str, saying: Saying) -> None:
    """How it went, to stderr."""
    for number, reason in enumerate(saying.reasons, 1):
        if reason == "length":
            of = f"part {number} of {len(saying.reasons)}"
            print(f"Warning: {of} did not come to an end and was cut off", file=sys.stderr)
    speed = saying.seconds / saying.elapsed_s if saying.elapsed_s else 0.0
    print(
        f"{'stdout' if path == STDOUT else shown(path)}: {saying.seconds:.2f} s of sound in "
        f"{saying.elapsed_s:.2f} s ({speed:.1f} times real time), the first after "
        f"{saying.first_s:.3f} s",
        file=sys.stderr,
    )


def _facts(path: str, style: str, saying: Saying) -> dict[str, Any]:
    """The same, as ``--json`` prints it."""
    return {
        "file": shown(path),
        "format": style,
        "seconds": round(saying.seconds, 3),
        "parts": len(saying.reasons),
        "finish_reason": "length" if "length" in saying.reasons else "stop",
        "first_sound_s": round(saying.first_s, 3),
        "elapsed_s": round(saying.elapsed_s, 3),
    }


def _list(args: argparse.Namespace) -> int:
    """Print what may be asked of the model's voice."""
    from mstar_core.engine.opening import open_front

    resolved, _ = resolve_arguments(args)
    front = open_front(resolved, offline=args.offline)
    check_front(front, args)
    told = voices_of(front.traits())
    if args.json:
        print_json(told)
        return 0
    for name, value in told.items():
        words = ", ".join(value) if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):<18}{words or '-'}")
    return 0


def _check_given(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that are missing, or do not go together."""
    for flag, value in (("--text", args.text), ("--out", args.out)):
        if value is None:
            raise UsageError(
                where="mstar-core speak",
                got=Words(f"no {flag}"),
                want="--text TEXT and --out FILE, or --voices",
                fix=f"add {flag}",
            )
    if args.reference is None and (args.reference_text is not None or args.speaker_only):
        raise UsageError(
            where="mstar-core speak",
            got=Words("no --reference"),
            want="--reference FILE with --reference-text and --speaker-only",
            fix="add --reference",
        )
    if args.out == STDOUT and args.json:
        raise UsageError(
            where="mstar-core speak --json",
            got=Words("given with --out -"),
            want="one thing on stdout",
            fix="write the sound to a file, or leave --json out",
        )
