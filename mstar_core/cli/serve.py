"""``mstar-core serve CONFIG``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.streams import text_of
from mstar_core.errors import MstarError, UsageError, Words
from mstar_core.logs import start_logging

NEEDED = {"starlette": "starlette", "uvicorn": "uvicorn", "msgspec": "msgspec"} | {
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
}
"""Module → distribution of the extra ``serve``."""
FLAGS = {
    "host": "host",
    "port": "port",
    "uds": "uds",
    "processes": "processes",
    "api_key_file": "api_key_file",
    "cors_origins": "cors_origins",
    "tls_cert": "tls_cert",
    "tls_key": "tls_key",
    "model_name": "model_name",
    "drain": "drain_s",
    "ui": "ui",
}
"""Argument → the setting of section ``server`` that it overrides."""


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("serve", help="the HTTP server")
    add_config_arguments(parser, json=False)
    group = parser.add_argument_group("server (each overrides a setting of section `server`)")

    def text(flag: str, metavar: str, about: str) -> None:
        group.add_argument(flag, type=text_of(flag), metavar=metavar, help=about)

    text("--host", "HOST", "address to listen on; default 127.0.0.1")
    group.add_argument("--port", type=int, metavar="N", help="default 8000; 0 takes a free one")
    text("--uds", "PATH", "listen on a unix socket instead")
    group.add_argument("--processes", type=int, metavar="N", help="API processes; default 1")
    text("--api-key-file", "FILE", "requests need one of these keys, one a line")
    group.add_argument(
        "--insecure", action="store_true", help="let others in without a key, on any address"
    )
    group.add_argument(
        "--no-ui", dest="ui", action="store_false", default=None, help="no page at /"
    )
    group.add_argument(
        "--cors-origin",
        dest="cors_origins",
        action="append",
        type=text_of("--cors-origin"),
        metavar="ORIGIN",
        help="a web origin whose pages may call the server; may be given again",
    )
    text("--tls-cert", "FILE", "certificate chain, in PEM")
    text("--tls-key", "FILE", "its key, in PEM")
    text("--model-name", "NAME", "what clients ask for; default: the name of the configuration")
    group.add_argument(
        "--drain", type=float, metavar="SECONDS", help="for open requests at the end; default 30"
    )


def run(args: argparse.Namespace) -> int:
    """Serve CONFIG over HTTP, as OpenAI's API, until SIGTERM or SIGINT.

    The address answers at once: /live with 200, /ready with 503 and how far the start is, until
    the model is there. Told to stop, it takes nothing new and lets open requests end; told again,
    it ends at once.

    Exit code: 0 stopped, 1 something is wrong with what was asked, 2 the command line is wrong,
    3 the engine ended too often, 4 a process failed to start, 130 or 143 told to stop twice.

    Example:  mstar-core serve echo --port 8080
    """
    _check_installed()
    if args.uds is not None and (args.host is not None or args.port is not None):
        raise UsageError(
            where="--uds",
            got=Words("given with --host or --port"),
            want="a unix socket or a port, not both",
            fix="leave out --uds, or the other two",
        )
    level = args.log_level or ("debug" if args.verbose else "info")
    start_logging(level, args.log_format)
    args.sets = [*args.sets, *_sets(args)]
    resolved, _ = resolve_arguments(args)
    from mstar_core.serving.listening import check_server, listen
    from mstar_core.serving.orders import Start
    from mstar_core.serving.startup import exec_time
    from mstar_core.serving.supervisor import Supervisor

    check_server(resolved.config.server, insecure=args.insecure)
    start = Start(
        config=args.config,
        sets=args.sets,
        offline=args.offline,
        log_level=level,
        log_format=args.log_format,
    )
    listening = listen(resolved.config.server)
    supervisor = Supervisor(resolved.config.server, start, listening, began=exec_time())
    return supervisor.run()


def _sets(args: argparse.Namespace) -> Iterator[str]:
    """The flags as ``KEY=VALUE``, which every process reads alike."""
    for argument, setting in FLAGS.items():
        value = getattr(args, argument)
        if value is not None:
            yield f"server.{setting}={json.dumps(value)}"


def _check_installed() -> None:
    missing = [name for module, name in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise MstarError(
            where="mstar-core serve",
            got=Words(f"not installed: {', '.join(missing)}"),
            want="the packages of the extra `serve`",
            fix="pip install 'mstar-core[serve]'",
        )
