"""``mstar-core generate CONFIG --prompt TEXT``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from mstar_core.cli.answer import Said
from mstar_core.cli.arguments import count
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.progress import progress_bar
from mstar_core.cli.streams import given_text, text_of
from mstar_core.cli.tables import print_json
from mstar_core.errors import UsageError, Words

DEFAULT_TOKENS = 128
NOTHING_SAID = "nothing was said: the model ended at once; a question is answered with --chat"
GREETING = "Hello!"
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("generate", help="stream text")
    add_config_arguments(parser)
    parser.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help="the text; - is stdin, @FILE a file; repeatable with --chat: the turns in order; "
        f"without any, the turn {GREETING!r} of a chat",
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
        "--max-tokens",
        type=count,
        metavar="N",
        help=f"new tokens at most (default {DEFAULT_TOKENS})",
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
    is taken, so the same prompt gives the same text. Without a prompt the model is greeted.

    Exit code: 0 done, 1 something is wrong with what was asked or the request failed (behind the
    text that it had until then), 2 the command line is wrong.

    Example:  mstar-core generate model.yaml --chat --prompt "Name three rivers."
    """
    if args.prompt is None:
        args.prompt, args.chat = [GREETING], True
    prompts = [given_text("--prompt", given) for given in args.prompt]
    _check_chat_flags(args)
    resolved, _ = resolve_arguments(args)
    from mstar_core.engine import Engine

    with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
        if args.report:
            print("\n".join(engine.report.lines()), file=sys.stderr)
        heard = list(_conversation(engine, args, prompts))
    if heard[-1].is_empty and not args.chat:
        print(NOTHING_SAID, file=sys.stderr)
    if args.json:
        told = [said.as_dict() for said in heard]
        print_json(told if len(prompts) > 1 else told[0])
    if heard[-1].failed is not None:
        raise heard[-1].failed
    return 0


def _conversation(engine: Any, args: argparse.Namespace, prompts: list[str]) -> Iterator[Said]:
    """The answers, each to the turns before it, as far as none has failed."""
    from mstar_core.engine.texts import stream_text

    turns = [{"role": "system", "content": args.system}] if args.system is not None else []
    for prompt in prompts:
        turns.append({"role": "user", "content": prompt})
        request = _request(engine, args, turns)
        said = Said(shows=not args.json)
        if said.shows and len(prompts) > 1:
            print(f"> {prompt}")
        said.follow(stream_text(engine, request))
        if said.shows:
            print()
        if args.report:
            print(said.speed(), file=sys.stderr)
        yield said
        if said.failed is not None:
            return
        turns.append({"role": "assistant", "content": said.text})


def _check_chat_flags(args: argparse.Namespace) -> None:
    if len(args.prompt) > 1 and not args.chat:
        raise UsageError(
            where="--prompt",
            got=Words(f"{len(args.prompt)} texts without --chat"),
            want="one text, or the turns of a chat",
            fix="add --chat, or give one --prompt",
        )
    for flag, value in (("--system", args.system), ("--think", args.think)):
        if value is not None and not args.chat:
            raise UsageError(
                where=flag,
                got=Words("given without --chat"),
                want="--chat with it",
                fix=f"add --chat, or leave {flag} out",
            )


def _request(engine: Any, args: argparse.Namespace, turns: list[dict[str, str]]) -> Any:
    """The request of the flags, with the checkpoint's sampling where no flag says otherwise."""
    from attrs import evolve

    if args.chat:
        request = engine.front.chat_request(turns, think=args.think)
    else:
        request = engine.front.text_request(turns[-1]["content"])
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
