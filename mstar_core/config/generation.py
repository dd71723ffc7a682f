"""The generation defaults that a checkpoint folder carries in ``generation_config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mstar_core.errors import CheckpointError, Words

FILE = "generation_config.json"


def generation_defaults(folder: Path) -> dict[str, Any]:
    """The settings of ``generation_config.json`` by name; empty where there is no such file.

    Raises CheckpointError when the file is there and is not a JSON object.
    """
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            where=str(file),
            got=Words(str(error)),
            want="a JSON object of generation settings",
            fix="fetch the file again, or remove it to use the engine's own defaults",
        ) from error
    if not isinstance(read, dict):
        raise CheckpointError(
            where=str(file),
            got=read,
            want="a JSON object of generation settings",
            fix="fetch the file again, or remove it to use the engine's own defaults",
        )
    return {key: value for key, value in read.items() if not key.startswith("_")}
