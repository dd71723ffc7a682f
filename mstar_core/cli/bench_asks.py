"""What the requests of ``mstar-core bench serve`` are, from its arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mstar_core.cli.arguments import count
from mstar_core.errors import RequestError, UsageError, Words

if TYPE_CHECKING:
    from mstar_core.bench.serve import Run
    from mstar_core.client import Client

ROUTES = ("chat", "completions", "transcriptions", "speech")


def add_asks(parser: argparse.ArgumentParser) -> None:
    """Declare what every request is."""
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument(
        "--prompt-tokens", type=count, metavar="N", help="about N, of random words; default 128"
    )
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="prompts, one a line")
    parser.add_argument(
        "--vocab", type=count, metavar="V", help="completions: prompts of random ids below V"
    )
    parser.add_argument("--output-tokens", type=count, default=64, metavar="N", help="default 64")
    parser.add_argument("--ignore-eos", action="store_true", help="always all the output tokens")
    parser.add_argument(
        "--no-stream", dest="stream", action="store_false", help="take each answer whole"
    )
    parser.add_argument("--audio", nargs="+", default=[], metavar="FILE", help="to transcribe")
    parser.add_argument("--voice", help="speech: whose")


def run_of(args: argparse.Namespace, url: str) -> Run:
    """The load on one server. It is asked for its model, and what it counts as tokens.

    Raises ClientError where it does not answer, UsageError for arguments that contradict.
    """
    from attrs import evolve

    from mstar_core.bench.prompts import Asks, lines_of
    from mstar_core.bench.serve import Run, prompt_words
    from mstar_core.client import Client

    key = None if args.api_key_file is None else _key(args.api_key_file)
    _check(args)
    prompts = () if args.prompt_file is None else _lines(args.prompt_file, lines_of)
    with Client(url, api_key=key) as client:
        model = args.model or _first_model(client)
        tokens = args.prompt_tokens or 128
        asks = Asks(
            route=args.route,
            model=model,
            words=tokens,
            vocab=args.vocab,
            prompts=prompts,
            audio=tuple(args.audio),
            audio_s=tuple(map(_seconds, args.audio)),
            output_tokens=args.output_tokens,
            ignore_eos=args.ignore_eos,
            stream=args.stream,
            voice=args.voice,
            seed=args.seed,
        )
        if args.route in ("chat", "completions") and not prompts and args.vocab is None:
            asks = evolve(asks, words=prompt_words(client, asks, tokens))
    return Run(
        url=url,
        asks=asks,
        requests=args.requests,
        concurrency=args.concurrency or 8,
        rate=args.rate,
        processes=args.processes,
        warmup=args.warmup,
        api_key=key,
        promises=args.goodput,
    )


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that do not go together."""
    wrong = None
    if (args.route == "transcriptions") != bool(args.audio):
        wrong = ("--audio", "files for transcriptions, and for no other route")
    if args.vocab is not None and args.route != "completions":
        wrong = ("--vocab", "--route completions with it")
    if wrong is not None:
        raise UsageError(
            where=wrong[0],
            got=Words(f"--route {args.route}"),
            want=wrong[1],
            fix=f"change --route, or {wrong[0]}",
        )


def _first_model(client: Client) -> str | None:
    """The first model that the server names; None where it names none."""
    from mstar_core.client import ApiError

    try:
        return next((model.id for model in client.models()), None)
    except ApiError:
        return None


def _key(file: Path) -> str:
    """The first key of a server's own file of keys, in which ``#`` begins a remark."""

    def read(path: Path) -> tuple[str, ...]:
        lines = path.read_text(encoding="utf-8").splitlines()
        return tuple(x.strip() for x in lines if x.strip() and not x.startswith("#"))

    return _lines(file, read)[0]


def _lines(file: Path, read: Any) -> tuple[str, ...]:
    """The lines of a file, at least one. Raises RequestError."""
    try:
        lines: tuple[str, ...] = read(file)
        got = "no line that is not empty"
    except (OSError, UnicodeDecodeError) as error:
        lines, got = (), str(error)
    if not lines:
        raise RequestError(
            where=str(file),
            got=Words(got),
            want="a file in UTF-8 with a line of text",
            fix="check its name and what is in it",
        )
    return lines


def _seconds(file: str) -> float:
    """How long a sound file lasts."""
    from mstar_core.audio import read_audio

    return read_audio(file).seconds
