"""``mstar-core transcribe CONFIG FILE…``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from mstar_core.audio import read_audio
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.output_dir import targets_of, write_all
from mstar_core.cli.progress import progress_bar
from mstar_core.cli.streams import shown, text_of
from mstar_core.errors import ConfigError, MstarError, RequestError, UsageError, Words
from mstar_core.model.front import Front, Request

FORMATS = ("text", "json")
LATER = ("verbose_json", "srt", "vtt")


@frozen(kw_only=True)
class Heard:
    """What became of one file."""

    file: str
    seconds: float = 0.0
    text: str = ""
    tokens: int = 0
    error: MstarError | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        if self.error is not None:
            return {"file": shown(self.file), "error": self.error.facts()}
        seconds = round(self.seconds, 3)
        return {
            "file": shown(self.file),
            "seconds": seconds,
            "text": self.text,
            "tokens": self.tokens,
        }


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("transcribe", help="speech in, text out")
    add_config_arguments(parser)
    parser.add_argument("files", nargs="+", metavar="FILE", help="wav, flac, ogg or mp3")
    parser.add_argument(
        "--language",
        type=text_of("--language"),
        metavar="CODE",
        help="the language spoken, such as de",
    )
    parser.add_argument(
        "--task",
        type=text_of("--task"),
        metavar="TASK",
        help="transcribe, or translate (into English)",
    )
    parser.add_argument(
        "--format", default="text", metavar="FORMAT", help="text or json (one object a line)"
    )
    parser.add_argument(
        "--output-dir", metavar="DIR", help="write a file for each FILE instead of to stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Print the text of each FILE; with several files each line begins with the file's name.

    Files are told apart by their content; any sample rate and number of channels will do. A file
    that cannot be transcribed is reported on stderr and does not end the others.

    Exit code: 0 all files, 1 some file or setting is wrong, 2 the command line is wrong.

    Example:  mstar-core transcribe speech.yaml speech.wav --format json
    """
    style = _format("json" if args.json else args.format)
    suffix = ".json" if style == "json" else ".txt"
    targets = targets_of(args.files, suffix, args.output_dir) if args.output_dir else {}
    resolved, _ = resolve_arguments(args)
    from mstar_core.engine import Engine

    wishes = {"language": args.language, "task": args.task}
    with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
        _check_front(engine.front, args.config)
        heard = transcribe(engine, args.files, {k: v for k, v in wishes.items() if v is not None})
    for one in heard:
        if one.error is not None:
            print(f"Error: {one.error}", file=sys.stderr)
    if targets:
        done = [one for one in heard if one.error is None]
        write_all({targets[one.file]: _line(one, style, named=False) for one in done})
    else:
        _print(heard, style)
    return int(any(one.error is not None for one in heard))


def transcribe(engine: Any, files: Sequence[str], wishes: dict[str, Any]) -> list[Heard]:
    """Every file through ``engine``, all at once; what became of each, in the order given."""
    found: list[Heard] = []
    requests: list[Request] = []
    for file in files:
        try:
            audio = read_audio(file)
            requests.append(engine.front.audio_request(audio.samples_T, audio.rate, **wishes))
            found.append(Heard(file=file, seconds=audio.seconds))
        except RequestError as error:
            found.append(Heard(file=file, error=_of_file(error, file)))
    results = iter(engine.run(requests))
    return [
        one if one.error is not None else _heard(one, next(results), engine.front) for one in found
    ]


def _heard(one: Heard, result: Any, front: Front) -> Heard:
    if result.error is not None:
        facts = dict(result.error)
        error = RequestError(
            where=facts["where"], got=Words(facts["got"]), want=facts["want"], fix=facts["fix"]
        )
        return Heard(file=one.file, error=_of_file(error, one.file))
    text = front.decode([i for i in result.ids if i not in front.stop_ids]).strip()
    return Heard(file=one.file, seconds=one.seconds, text=text, tokens=len(result.ids))


def _of_file(error: RequestError, file: str) -> RequestError:
    """The error with the file's name in its place, once."""
    return error if error.where == file else error.under(file)


def _format(name: str) -> str:
    if name in FORMATS:
        return name
    known = f"one of: {', '.join(FORMATS)}"
    raise UsageError(
        where="mstar-core transcribe --format",
        got=name,
        want=f"{known} ({', '.join(LATER)} are not there yet)" if name in LATER else known,
        fix="write --format json",
    )


def _check_front(front: Front, config: str) -> None:
    if "audio" not in front.capabilities():
        raise ConfigError(
            where=str(config),
            got=Words(
                f"a model that takes {', '.join(sorted(front.capabilities())) or 'no sound'}"
            ),
            want="a model that takes sound",
            fix="name a configuration of a speech recognition model",
        )


def _line(one: Heard, style: str, named: bool) -> str:
    if style == "json":
        return json.dumps(one.as_dict(), ensure_ascii=False)
    return f"{shown(one.file)}: {one.text}" if named else one.text


def _print(heard: Sequence[Heard], style: str) -> None:
    for one in heard:
        if one.error is None or style == "json":
            print(_line(one, style, named=len(heard) > 1))
