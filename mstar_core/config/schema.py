"""What a deployment can set. Every class is frozen and keyword-only; every key has its meaning.

Sizes that can be derived have no key, or a key whose null means *derive it*. A model's ``options``
and a resource's settings are read later, by the class of the plugin that owns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import Bytes, about, flag, number, one_of, whole, words
from mstar_core.config.limits import LimitsConfig
from mstar_core.config.located import Located
from mstar_core.config.server import ServerConfig
from mstar_core.errors import ConfigError

MOST_ROWS = 4096
"""Of one step."""


def _nothing() -> Located:
    return Located({})


@frozen(kw_only=True)
class ModelConfig:
    """Which model is served, and where its weights are."""

    name: str = field(validator=words, metadata=about("name of a model that a plugin offers"))
    path: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about(
            "checkpoint folder or hub id; `./` and `../` in a file start at that file's folder"
        ),
    )
    revision: str | None = field(
        default=None, validator=optional(words), metadata=about("branch, tag or commit on the hub")
    )
    load: Literal["auto", "random"] = field(
        default="auto",
        validator=one_of("auto", "random"),
        metadata=about("`random` fills the weights with seeded noise instead of reading them"),
    )
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = field(
        default="auto",
        validator=one_of("auto", "bf16", "fp16", "fp32"),
        metadata=about(
            "type the model computes in; `auto` is fp32 on a CPU, on a GPU the checkpoint's own "
            "(fp32 where it names none)"
        ),
    )
    options: Located = field(
        factory=_nothing, metadata=about("settings of the model itself, declared by its plugin")
    )


@frozen(kw_only=True)
class PluginsConfig:
    """Which installed plugins may be used."""

    disable: tuple[str, ...] = field(
        default=(), metadata=about("plugins that are not loaded, by name")
    )
    allow: tuple[str, ...] = field(
        default=(), metadata=about("only these plugins are loaded; empty allows every plugin")
    )


@frozen(kw_only=True)
class CaptureConfig:
    """Which steps are captured as graphs at warmup."""

    rows: tuple[int, ...] | None = field(
        default=None,
        metadata=about(
            "row counts to capture; null is the powers of two up to max_rows, and max_rows"
        ),
    )
    tokens: tuple[int, ...] | None = field(
        default=None,
        metadata=about(
            "token counts of prompt steps to capture; null is the powers of two from 16 up to "
            "token_budget, and token_budget"
        ),
    )
    require: bool = field(
        default=False,
        validator=flag,
        metadata=about("a bucket that cannot be captured is an error instead of running eagerly"),
    )

    def __attrs_post_init__(self) -> None:
        for name, sizes in (("rows", self.rows), ("tokens", self.tokens)):
            for size in sizes or ():
                if type(size) is not int or size < 1:
                    raise ConfigError(
                        where=name,
                        got=size,
                        want=f"whole numbers of at least 1 ({name})",
                        fix="write for example [1, 2, 4, 8]",
                    )


@frozen(kw_only=True)
class EngineConfig:
    """How much runs at once, and how a step is run."""

    max_rows: int = field(
        default=32,
        validator=whole(1, MOST_ROWS, "rows"),
        metadata=about("rows of one step, and requests admitted at once"),
    )
    token_budget: int = field(
        default=512, validator=whole(1, unit="tokens"), metadata=about("tokens of one step")
    )
    min_chunk: int = field(
        default=16,
        validator=whole(1, unit="tokens"),
        metadata=about("a prompt is not cut into pieces smaller than this many tokens"),
    )
    admission: Literal["take", "reserve"] = field(
        default="take",
        validator=one_of("take", "reserve"),
        metadata=about(
            "what a request holds before its first step: `take` the memory of its first chunk, "
            "`reserve` memory for its longest stream, so that nobody ever yields"
        ),
    )
    preempt: Literal["auto", "offload", "recompute"] = field(
        default="auto",
        validator=one_of("auto", "offload", "recompute"),
        metadata=about(
            "how a request yields its memory: `offload` copies it to the host, `recompute` runs "
            "its tokens again where that is possible, `auto` does what is cheaper for the model"
        ),
    )
    mixed: Literal["off", "on"] = field(
        default="off",
        validator=one_of("off", "on"),
        metadata=about(
            "`on` runs decode rows and prompt rows in one step, for models that have such a walk"
        ),
    )
    in_flight: int = field(
        default=1,
        validator=whole(0, 4, "steps"),
        metadata=about("steps launched before the oldest is read; 0 waits for each"),
    )
    max_context: int | None = field(
        default=None,
        validator=optional(whole(2, unit="tokens")),
        metadata=about("longest prompt and answer together, in tokens; null is the model's own"),
    )
    kv_memory: Bytes | None = field(
        default=None,
        validator=optional(whole(1, unit="bytes")),
        metadata=about("memory for KV pages; null is what is free on a GPU, a quarter on a CPU"),
    )
    prefix_cache: Literal["auto", "off"] = field(
        default="auto",
        validator=one_of("auto", "off"),
        metadata=about(
            "`auto` takes over what another request computed of the same beginning, where every "
            "resource of the model can; `off` computes every prompt whole"
        ),
    )
    resident: Literal["auto", "off"] = field(
        default="auto",
        validator=one_of("auto", "off"),
        metadata=about(
            "`off` plans captured decode steps on the host instead of in tables on the device"
        ),
    )
    graphs: Literal["auto", "off", "recorder", "cuda"] = field(
        default="auto",
        validator=one_of("auto", "off", "recorder", "cuda"),
        metadata=about("what records captured steps"),
    )
    capture: CaptureConfig = field(factory=CaptureConfig)
    step_timeout_s: float = field(
        default=60.0,
        validator=number(0, unit="seconds", above=True),
        metadata=about("seconds after which a step that has not finished is a device fault"),
    )

    def __attrs_post_init__(self) -> None:
        if self.min_chunk > self.token_budget:
            raise ConfigError(
                where="min_chunk",
                got=self.min_chunk,
                want=f"at most engine.token_budget, {self.token_budget} (tokens)",
                fix="lower min_chunk or raise token_budget",
            )
        if self.capture.tokens and max(self.capture.tokens) > self.token_budget:
            raise ConfigError(
                where="capture.tokens",
                got=list(self.capture.tokens),
                want=f"token counts up to engine.token_budget, {self.token_budget}",
                fix="drop the larger ones or raise token_budget",
            )
        if self.capture.rows and max(self.capture.rows) > self.max_rows:
            raise ConfigError(
                where="capture.rows",
                got=list(self.capture.rows),
                want=f"row counts up to engine.max_rows, {self.max_rows}",
                fix="drop the larger ones or raise max_rows",
            )

    @property
    def capture_rows(self) -> tuple[int, ...]:
        """Row counts to capture, rising: those set, else powers of two up to ``max_rows``."""
        if self.capture.rows is not None:
            return tuple(sorted(set(self.capture.rows)))
        powers = {1 << n for n in range(self.max_rows.bit_length()) if 1 << n <= self.max_rows}
        return tuple(sorted(powers | {self.max_rows}))

    @property
    def capture_tokens(self) -> tuple[int, ...]:
        """Token counts to capture, rising: those set, else powers of two up to the budget."""
        if self.capture.tokens is not None:
            return tuple(sorted(set(self.capture.tokens)))
        powers = {1 << n for n in range(4, self.token_budget.bit_length())}
        return tuple(sorted({n for n in powers if n <= self.token_budget} | {self.token_budget}))


@frozen(kw_only=True)
class NodeConfig:
    """One node of the model: which backends it uses, and the settings of its resources."""

    backends: Mapping[str, str] = field(
        factory=dict, metadata=about("operation to the name of a backend, or `auto`")
    )
    resources: Mapping[str, Located] = field(
        factory=dict, metadata=about("resource key to its settings, declared by the resource")
    )


@frozen(kw_only=True)
class DebugConfig:
    """Checks that cost time and find bugs."""

    conservation: bool = field(
        default=False,
        validator=flag,
        metadata=about("check after each request that every page and slot came back"),
    )
    row_check: bool = field(
        default=False,
        validator=flag,
        metadata=about("compare the device tables with the host after each resident step"),
    )


@frozen(kw_only=True)
class Config:
    """One deployment."""

    model: ModelConfig
    device: Literal["auto", "cpu", "cuda"] = field(
        default="auto",
        validator=one_of("auto", "cpu", "cuda"),
        metadata=about("where the model runs; `auto` takes a GPU where there is one"),
    )
    plugins: PluginsConfig = field(factory=PluginsConfig)
    engine: EngineConfig = field(factory=EngineConfig)
    nodes: Mapping[str, NodeConfig] = field(
        factory=dict, metadata=about("node name to its backends and resources")
    )
    limits: LimitsConfig = field(factory=LimitsConfig)
    server: ServerConfig = field(factory=ServerConfig)
    debug: DebugConfig = field(factory=DebugConfig)


MOVED: Mapping[str, str] = {
    "scheduler": "engine",
    "sampling": "a request's own settings, not the configuration",
    "resources": "nodes.NODE.resources",
    "backends": "nodes.NODE.backends",
    "engine.max_batch_size": "engine.max_rows",
    "engine.max_num_seqs": "engine.max_rows",
    "engine.max_batched_tokens": "engine.token_budget",
    "engine.max_model_len": "engine.max_context",
    "model.checkpoint": "model.path",
}
"""Keys that other spellings of this configuration had: each says where its setting lives."""
