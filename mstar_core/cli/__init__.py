"""The command ``mstar-core``: one module per verb, imported only when its verb is typed.

A verb's module has ``add_parser(subparsers)``, which returns the parser it added, and
``run(args) -> int``, whose docstring is the verb's help. A result goes to stdout, all else to
stderr. Exit codes: 0 fine, 1 something is wrong with what was asked, 2 the command line is wrong,
130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mstar_core.cli.parser import parse
from mstar_core.cli.streams import UNWRITABLE, drop_stdout, open_streams
from mstar_core.errors import MstarError, UsageError, Words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    try:
        open_streams()
        parsed = parse(sys.argv[1:] if argv is None else argv)
        code = _run(parsed) if isinstance(parsed, argparse.Namespace) else parsed
        sys.stdout.flush()
        return code
    except MstarError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        drop_stdout()  # the reader left
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        drop_stdout()
        want, fix = "room for the whole result", "free some, or send the result elsewhere"
        told = MstarError(where="writing the result", got=Words(error.strerror), want=want, fix=fix)
        print(f"Error: {told}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    from mstar_core.logs import start_logging

    start_logging(args.log_level or ("info" if args.verbose else "warning"), args.log_format)
    return int(args.run(args))
