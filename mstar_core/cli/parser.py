"""From a command line to one verb and its arguments."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from mstar_core import __version__
from mstar_core.errors import UsageError, Words
from mstar_core.names import nearest

PROGRAM = "mstar-core"
VERBS = {
    "list-plugins": "what is installed, what it offers, what is broken and why",
    "check": "validate and wire a configuration, without loading weights",
    "explain": "every value of a configuration, and where it came from",
    "doctor": "this machine: versions, devices, which backends apply and why not",
    "generate": "stream text",
    "transcribe": "speech in, text out",
    "speak": "text in, speech out",
    "serve": "the HTTP server",
    "bench": "measure",
    "new-plugin": "a working skeleton of a plugin with its tests",
}
"""Verb → one line. A verb is there when its module (``list_plugins.py``) is."""
LEVELS = ("debug", "info", "warning", "error")
_WITH_VALUE = ("--log-level", "--log-format")


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError, with the nearest name, instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(
            where=self.prog,
            got=Words(message),
            want=" ".join(self.format_usage().removeprefix("usage: ").split()),
            fix=f"{self.prog} --help shows what it takes",
        )

    def flags(self) -> list[str]:
        """Every long option it takes, or one of its parsers below."""
        own = [flag for flag in self._option_string_actions if flag.startswith("--")]
        below = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        return own + [flag for a in below for one in a.choices.values() for flag in one.flags()]


def verbs() -> dict[str, str]:
    """The verbs whose module is there."""
    folder = Path(__file__).parent
    return {verb: line for verb, line in VERBS.items() if (folder / _file(verb)).is_file()}


def parse(argv: Sequence[str]) -> argparse.Namespace | int:
    """The arguments of a command line with ``run`` set, or an exit code if it was answered.

    Raises UsageError, with the nearest verb or flag, for one that does not exist.
    """
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    add_logging(parser, top=True)
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    wanted = _verb_of(argv)
    for verb, line in verbs().items():
        if verb == wanted:
            _add_verb(subparsers, verb, line)
        else:
            subparsers.add_parser(verb, help=line)
    try:
        args, extra = parser.parse_known_args(argv)
    except SystemExit as done:  # --help and --version print and leave
        return int(done.code or 0)
    if args.verb is None:
        if extra:
            _unknown_argument(parser, extra[0])
        parser.print_help(sys.stderr)
        return 2
    if extra:
        _unknown_argument(subparsers.choices[args.verb], extra[0])
    return args


def _add_verb(subparsers: argparse._SubParsersAction[Parser], verb: str, line: str) -> None:
    module = import_module(f"mstar_core.cli.{_file(verb).removesuffix('.py')}")
    module.add_parser(subparsers)
    parser = subparsers.choices[verb]
    parser.description = parser.description or inspect.getdoc(module.run) or line
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    add_logging(parser, top=False)
    parser.set_defaults(run=module.run)


def add_logging(parser: argparse.ArgumentParser, *, top: bool) -> None:
    """Logging options, accepted before the verb (``top``) and after it."""

    def default(value: object) -> object:
        return value if top else argparse.SUPPRESS

    group = parser.add_argument_group("logging (to stderr)")
    group.add_argument(
        "-v", "--verbose", action="store_true", default=default(False), help="say what is done"
    )
    group.add_argument("--log-level", choices=LEVELS, default=default(None), help="least severity")
    group.add_argument(
        "--log-format", choices=("text", "json"), default=default("text"), help="one line each"
    )


def _verb_of(argv: Sequence[str]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    words = iter(argv)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            if word not in verbs():
                _unknown_verb(word)
            return word
    return None


def _unknown_verb(word: str) -> NoReturn:
    near = nearest(word, verbs())
    raise UsageError(
        where=PROGRAM,
        got=word,
        want=f"one of: {', '.join(verbs())}",
        fix=f"{PROGRAM} {near}" if near else f"{PROGRAM} --help shows every verb",
    )


def _unknown_argument(parser: Parser, word: str) -> NoReturn:
    near = nearest(word.partition("=")[0], parser.flags()) if word.startswith("-") else None
    raise UsageError(
        where=parser.prog,
        got=word,
        want=" ".join(parser.format_usage().removeprefix("usage: ").split()),
        fix=f"write {near}" if near else f"{parser.prog} --help shows what it takes",
    )


def _file(verb: str) -> str:
    return verb.replace("-", "_") + ".py"


_DESCRIPTION = "Serve composite models from a small core and the plugins installed beside it."
