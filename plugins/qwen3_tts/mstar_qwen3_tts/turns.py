"""Text as the ids of a turn."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from mstar_core.errors import CheckpointError, RequestError, Words

TOKENIZER_FILES = ("tokenizer.json", "vocab.json")
TURN = "<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>assistant\n"
MARKS = ("<|im_start|>", "<|im_end|>")
HEARD = "<|im_start|>assistant\n{}<|im_end|>\n"
INSTRUCTION = "<|im_start|>user\n{}<|im_end|>\n"


class Turns:
    """The tokenizer of a checkpoint folder; it is loaded when there is text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. Raises CheckpointError where it has none that loads."""
        from transformers import AutoTokenizer

        got: object = Words(f"none of {', '.join(TOKENIZER_FILES)}")
        if any((self.folder / name).is_file() for name in TOKENIZER_FILES):
            try:
                return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
            except (OSError, ValueError) as error:
                got = Words(error)
        raise CheckpointError(
            where=str(self.folder),
            got=got,
            want="the tokenizer that came with the weights",
            fix="add tokenizer.json to the checkpoint folder",
        )

    def ids(self, turn: str, text: str, where: str) -> list[int]:
        """The ids of ``turn`` with ``text`` in it. Raises RequestError that names ``where``."""
        got = next((Words(mark) for mark in MARKS if mark in text), None)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            got = Words(f"{text[error.start]!a}, which has no UTF-8")
        if got is not None:
            raise RequestError(
                where=where,
                got=got,
                want="text in UTF-8, without the marks of a turn",
                fix="take it out, or check how the text was read",
            )
        return list(self.tokenizer.encode(turn.replace("{}", text), add_special_tokens=False))
