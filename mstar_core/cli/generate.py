"""``mstar-core generate CONFIG --prompt TEXT``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from typing import Any

from attrs import define, field

from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import progress_bar
from mstar_core.cli.streams import given_text, text_of
from mstar_core.cli.tables import print_json
from mstar_core.errors import RequestError, UsageError, Words
from mstar_core.text import TextDelta
from mstar_core.text.stream import FinishReason

DEFAULT_TOKENS = 128
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("generate", help="stream text")
    add_config_arguments(parser)
    parser.add_argument(
        "--prompt", required=True, metavar="TEXT", help="the text; - is stdin, @FILE a file"
    )
    parser.add_argument(
        "--chat", action="store_true", help="TEXT is a user's turn, not a beginning"
    )
    parser.add_argument(
        "--system", type=text_of("--system"), metavar="TEXT", help="the system turn of a chat"
    )
    parser.add_argument(
        "--think", action=argparse.BooleanOptionalAction, help="open or close the thinking block"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help=f"new tokens at most (default {DEFAULT_TOKENS})"
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        type=text_of("--stop"),
        metavar="TEXT",
        help="end before TEXT; repeatable",
    )
    parser.add_argument("--temperature", type=float, metavar="T", help="0 takes the likeliest")
    parser.add_argument("--top-k", type=int, metavar="K", help="of the K likeliest")
    parser.add_argument("--top-p", type=float, metavar="P", help="of the likeliest that hold P")
    parser.add_argument("--min-p", type=float, metavar="P", help="at least P of the likeliest's")
    parser.add_argument("--seed", type=int, metavar="N", help="the same draw on every run")
    parser.add_argument(
        "--report", action="store_true", help="print the warmup report and the speed to stderr"
    )


def run(args: argparse.Namespace) -> int:
    """Stream what the model says after TEXT to stdout.

    Without sampling flags the checkpoint's own defaults hold; without those the likeliest token
    is taken, so the same prompt gives the same text.

    Exit code: 0 done, 1 something is wrong with what was asked or the request failed (behind the
    text that it had until then), 2 the command line is wrong.

    Example:  mstar-core generate model.yaml --chat --prompt "Name three rivers."
    """
    prompt = given_text("--prompt", args.prompt)
    _check_chat_flags(args)
    resolved, _ = resolve_arguments(args)
    from mstar_core.engine import Engine
    from mstar_core.engine.texts import stream_text

    with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
        if args.report:
            print("\n".join(engine.report.lines()), file=sys.stderr)
        request = _request(engine, args, prompt)
        said = _Said(shows=not args.json)
        begin = time.perf_counter()
        failed = said.follow(stream_text(engine, request), begin)
        seconds = time.perf_counter() - begin
    if args.json:
        text, reason = "".join(said.pieces), said.reason
        print_json({"text": text, "tokens": said.tokens, "finish_reason": reason})
    else:
        print()
    if args.report:
        print(
            f"{said.tokens} tokens in {seconds:.2f} s ({said.tokens / seconds:.1f} tokens/s), "
            f"the first after {said.first_s:.3f} s; ended by {said.reason}",
            file=sys.stderr,
        )
    if failed is not None:
        raise failed
    return 0


@define
class _Said:
    """What the model has said so far."""

    shows: bool
    """Each piece is printed as it comes."""
    pieces: list[str] = field(factory=list)
    tokens: int = 0
    first_s: float = 0.0
    reason: FinishReason | None = None

    def follow(self, deltas: Iterable[TextDelta], begin: float) -> RequestError | None:
        """Take in all pieces; the error where the request failed behind some of them.

        Raises RequestError where it failed before the first.
        """
        try:
            for delta in deltas:
                self.first_s = self.first_s or time.perf_counter() - begin
                self.tokens += delta.num_tokens
                self.reason = delta.finish_reason or self.reason
                self.pieces.append(delta.text)
                if self.shows:
                    print(delta.text, end="", flush=True)
        except RequestError as error:
            if not self.pieces:
                raise
            return error
        return None


def _check_chat_flags(args: argparse.Namespace) -> None:
    for flag, value in (("--system", args.system), ("--think", args.think)):
        if value is not None and not args.chat:
            raise UsageError(
                where=flag,
                got=Words("given without --chat"),
                want="--chat with it",
                fix=f"add --chat, or leave {flag} out",
            )


def _request(engine: Any, args: argparse.Namespace, prompt: str) -> Any:
    """The request of the flags, with the checkpoint's sampling where no flag says otherwise."""
    from attrs import evolve

    if args.chat:
        turns = [{"role": "system", "content": args.system}] if args.system is not None else []
        turns.append({"role": "user", "content": prompt})
        request = engine.front.chat_request(turns, think=args.think)
    else:
        request = engine.front.text_request(prompt)
    flags = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    room = engine.report.max_context - max(map(len, request.arrays.values()), default=0)
    return evolve(
        request,
        stop=tuple(args.stop),
        sampling=evolve(request.sampling, **flags),
        max_new_tokens=min(DEFAULT_TOKENS, max(room, 1))
        if args.max_tokens is None
        else args.max_tokens,
    )
