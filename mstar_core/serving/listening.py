"""The socket that the server listens on: bound by the supervisor, inherited by API processes."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from pathlib import Path

from attrs import frozen

from mstar_core.config.server import ServerConfig
from mstar_core.errors import ConfigError, Words
from mstar_core.serving.keys import Keys

BACKLOG = 2048


@frozen(kw_only=True)
class Listening:
    """A bound and listening socket, and how clients reach it."""

    sock: socket.socket
    url: str
    """``http://127.0.0.1:8000``, or ``unix:/path``."""
    uds: Path | None = None

    def close(self) -> None:
        """Stop listening; the name of a unix socket goes too."""
        self.sock.close()
        if self.uds is not None:
            self.uds.unlink(missing_ok=True)


def check_server(config: ServerConfig, *, insecure: bool) -> None:
    """Raise ConfigError for what must not be served so, or cannot."""
    if not (insecure or config.api_key_file or config.uds or is_local(config.host)):
        raise ConfigError(
            where="server.host",
            got=config.host,
            want="an address of this machine alone, or API keys (server.api_key_file)",
            fix="give --api-key-file FILE, or --insecure to let everybody in",
        )
    if (config.tls_cert is None) != (config.tls_key is None):
        missing = "tls_key" if config.tls_key is None else "tls_cert"
        raise ConfigError(
            where=f"server.{missing}",
            got=None,
            want="a certificate and its key",
            fix="give both --tls-cert and --tls-key, or neither",
        )
    if config.tls_cert is not None and config.tls_key is not None:
        _check_tls(config.tls_cert, config.tls_key)
    if config.api_key_file is not None:
        Keys.read(config.api_key_file)


def is_local(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(config: ServerConfig) -> Listening:
    """Bind and listen. Raises ConfigError for an address that is taken or is none."""
    if config.uds is not None:
        return _listen_unix(Path(config.uds))
    try:
        family, _, _, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise _cannot(error, config) from error
    scheme = "http" if config.tls_cert is None else "https"
    host = f"[{config.host}]" if ":" in config.host else config.host
    return Listening(sock=sock, url=f"{scheme}://{host}:{sock.getsockname()[1]}")


def _listen_unix(path: Path) -> Listening:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()  # left by a server that was killed
        sock.bind(os.fspath(path))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(
            where="server.uds",
            got=str(path),
            want=f"a path for a new socket ({error.strerror or error})",
            fix="name a path in a folder that exists, where nothing is",
        ) from error
    return Listening(sock=sock, url=f"unix:{path}", uds=path)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def _cannot(error: OSError, config: ServerConfig) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            where="server.port",
            got=config.port,
            want=f"a port of {config.host} that no other program listens on",
            fix="end the other program, or give --port; 0 takes a free one",
        )
    return ConfigError(
        where="server.host",
        got=config.host,
        want=Words(f"an address of this machine ({error.strerror or error})"),
        fix="give --host an address that this machine has, and --port one that is allowed",
    )


def _check_tls(cert: str, key: str) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            where="server.tls_cert",
            got=cert,
            want=f"a certificate chain in PEM, and its key ({error.strerror or error})",
            fix="check both files: they belong together, are readable, and have no pass phrase",
        ) from error


def _no_password() -> str:
    """Instead of a question on the terminal: a key with a pass phrase cannot be used."""
    return ""
