"""How the HTTP server is reached and how it behaves; flags of ``mstar-core serve`` override it."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import Bytes, about, flag, number, origins, whole, words


@frozen(kw_only=True)
class ServerConfig:
    """The HTTP server."""

    host: str = field(
        default="127.0.0.1",
        validator=words,
        metadata=about(
            "address to listen on; one that others reach needs `api_key_file`, or `--insecure`"
        ),
    )
    port: int = field(
        default=8000,
        validator=whole(0, 65535),
        metadata=about("TCP port; 0 takes a free one"),
    )
    uds: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("path of a unix socket to listen on instead of a port"),
    )
    tls_cert: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("file with the certificate chain, in PEM"),
    )
    tls_key: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("file with its key, in PEM"),
    )
    processes: int = field(
        default=1,
        validator=whole(1, 64, "processes"),
        metadata=about("API processes in front of the engine"),
    )
    model_name: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about(
            "name by which clients ask for the model; null is the name of the configuration"
        ),
    )
    api_key_file: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("file with API keys, one a line; requests need one of them"),
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "names that a request may give as its host where no key is set; this machine always"
        ),
    )
    cors_origins: tuple[str, ...] = field(
        default=(),
        validator=origins,
        metadata=about("web origins whose pages may call the server; none by default"),
    )
    ui: bool = field(
        default=True,
        validator=flag,
        metadata=about("serve the playground page at `/`"),
    )
    strict: bool = field(
        default=False,
        validator=flag,
        metadata=about("a field that is not known is a 400, instead of a warning header"),
    )
    media_hosts: tuple[str, ...] = field(
        default=(),
        metadata=about("hosts from which sound may be fetched by https; none: no fetching at all"),
    )
    keep_alive_s: float = field(
        default=15.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about(
            "a stream that is silent for so long gets a comment, so that nobody closes it"
        ),
    )
    drain_s: float = field(
        default=30.0,
        validator=number(0, unit="seconds"),
        metadata=about("time that open requests have to finish when the server is told to stop"),
    )
    stall_s: float = field(
        default=30.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about(
            "time without progress after which the engine is taken for hung: its stacks are "
            "written, and it is started again"
        ),
    )
    max_restarts: int = field(
        default=5,
        validator=whole(0, unit="restarts"),
        metadata=about(
            "times that the engine may end unasked within `restart_window_s`; then the server "
            "ends, with code 3"
        ),
    )
    restart_window_s: float = field(
        default=600.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("see `max_restarts`"),
    )
    media_bytes: Bytes = field(
        default=256 << 20,
        validator=whole(1 << 20, unit="bytes"),
        metadata=about("shared memory between an API process and the engine for large inputs"),
    )
