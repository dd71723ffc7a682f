"""Configuration: YAML with line numbers to frozen classes, and where every value came from."""

from mstar_core.config.checks import Bytes, about, flag, number, one_of, parse_bytes, whole, words
from mstar_core.config.describe import Row, describe
from mstar_core.config.find import ShippedConfigs
from mstar_core.config.findings import ConfigErrors
from mstar_core.config.generation import generation_defaults
from mstar_core.config.limits import LimitsConfig
from mstar_core.config.located import Located, Origin
from mstar_core.config.resolve import Resolved, resolve
from mstar_core.config.schema import (
    CaptureConfig,
    Config,
    DebugConfig,
    EngineConfig,
    ModelConfig,
    NodeConfig,
    PluginsConfig,
)
from mstar_core.config.server import ServerConfig
from mstar_core.config.structure import structure

__all__ = [
    "Bytes",
    "CaptureConfig",
    "Config",
    "ConfigErrors",
    "DebugConfig",
    "EngineConfig",
    "LimitsConfig",
    "Located",
    "ModelConfig",
    "NodeConfig",
    "Origin",
    "PluginsConfig",
    "Resolved",
    "Row",
    "ServerConfig",
    "ShippedConfigs",
    "about",
    "describe",
    "flag",
    "generation_defaults",
    "number",
    "one_of",
    "parse_bytes",
    "resolve",
    "structure",
    "whole",
    "words",
]
