"""The command ``mstar-core``: one module per verb, imported only when its verb is typed.

A verb's module has ``add_parser(subparsers)``, which returns the parser it added, and
``run(args) -> int``, whose docstring is the verb's help. A result goes to stdout, all else to
stderr. Exit codes: 0 fine, 1 something is wrong with what was asked, 2 the command line is wrong,
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mstar_core.cli.parser import parse
from mstar_core.errors import MstarError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    try:
        parsed = parse(sys.argv[1:] if argv is None else argv)
        return _run(parsed) if isinstance(parsed, argparse.Namespace) else parsed
    except MstarError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader left; say nothing at exit either
        return 1


def _run(args: argparse.Namespace) -> int:
    from mstar_core.cli.logs import start_logging

    start_logging(args.log_level or ("info" if args.verbose else "warning"), args.log_format)
    code = int(args.run(args))
    sys.stdout.flush()
    return code
