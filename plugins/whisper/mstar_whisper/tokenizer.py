"""The tokenizer that came with the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mstar_core.errors import CheckpointError, Words

TOKENIZER_FILES = ("tokenizer.json", "vocab.json")


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer in ``folder``. Raises CheckpointError where there is none that loads."""
    from transformers import AutoTokenizer

    got: object = Words(f"none of {', '.join(TOKENIZER_FILES)}")
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            got = Words(error)
    raise CheckpointError(
        where=str(folder),
        got=got,
        want="the tokenizer that came with the weights",
        fix="add tokenizer.json to the checkpoint folder",
    )
