"""From what a person types to the text of one configuration file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mstar_core.config.located import Located
from mstar_core.config.read import read_yaml
from mstar_core.errors import ConfigError, Words
from mstar_core.names import nearest

ShippedConfigs = Callable[[], Sequence[Path]]
"""The configuration files that installed plugins ship, found when a bare name is looked up."""


def no_plugin_configs() -> Sequence[Path]:
    """The ShippedConfigs for use without plugins."""
    return ()


def find_file(path_or_name: str, shipped: ShippedConfigs = no_plugin_configs) -> Path:
    """The file a person means: a path, or else the name of a config that a plugin ships."""
    path = Path(path_or_name).expanduser()
    if not path_or_name.strip():
        raise ConfigError(
            where="config",
            got=path_or_name,
            want="a YAML file, or the name of a config that an installed plugin ships",
            fix="name one; mstar-core list-plugins shows the configs that plugins ship",
        )
    if path.is_file():
        return path
    if path.is_dir():
        raise ConfigError(
            where=path_or_name,
            got=Words("a folder"),
            want="a YAML file, or the name of a config that an installed plugin ships",
            fix="name a file in it",
        )
    files = [] if "/" in path_or_name else shipped()
    found = [file for file in files if path_or_name in (file.stem, file.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            where=path_or_name,
            got=Words(f"{len(found)} configs of that name: {', '.join(map(str, found))}"),
            want="one config of that name",
            fix="write the path of the one you mean",
        )
    raise ConfigError(
        where=path_or_name,
        got=Words("no such file, and no installed plugin ships a config of that name"),
        want="a YAML file, or the name of a config that an installed plugin ships",
        fix=_nearest(path_or_name, files),
    )


def _nearest(name: str, files: Sequence[Path]) -> str:
    near = nearest(name.removesuffix(".yaml"), {file.stem for file in files})
    if near is not None:
        return f"write {near}.yaml"
    return "check the spelling; mstar-core list-plugins shows the configs that plugins ship"


def read_file(file: Path) -> Located:
    """The YAML mapping in ``file``, with ``name:line`` for each value."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            where=str(file),
            got=Words(str(error)),
            want="a readable text file in UTF-8",
            fix="check the file and its permissions",
        ) from error
    root = read_yaml(text, file.name)
    if root.is_mapping:
        return root
    raise ConfigError(
        where=file.name,
        got=Words("an empty file") if root.value is None else root.plain(),
        want="a mapping of sections: model, engine, ...",
        fix="begin with:  model: {name: NAME}",
    )
