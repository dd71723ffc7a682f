"""What a prompt must be before it becomes numbers: text, or a list of token ids."""

from __future__ import annotations

import numpy as np

from mstar_core.config.sampling import plain
from mstar_core.errors import RequestError, Words


def check_text(text: object) -> None:
    """Raise RequestError for what is no text, or text that no file could hold."""
    if not isinstance(text, str):
        raise RequestError(
            where="prompt",
            got=Words(type(text).__name__),
            want="text",
            fix="decode bytes first; send token ids with ids_request",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            where="prompt",
            got=Words(f"{text[error.start]!a} at character {error.start}"),
            want="text that can be written in UTF-8",
            fix="check how the text was read; its bytes were not UTF-8",
        ) from error


def listed_ids(ids: object, vocab: int) -> list[int]:
    """``ids`` as a list, numbers of numpy as Python's own.

    Raises RequestError for what is no list, for no ids, or one that is no integer of the
    vocabulary. How many there may be is for the engine's door to say.
    """
    if isinstance(ids, np.ndarray):
        ids = ids.tolist() if ids.ndim == 1 else ids
    if not isinstance(ids, list | tuple | range):
        shape = f" of shape {list(ids.shape)}" if isinstance(ids, np.ndarray) else ""
        raise RequestError(
            where="prompt",
            got=Words(f"{type(ids).__name__}{shape}"),
            want="a list of token ids",
            fix="write for example [1, 2, 3]; send text with text_request",
        )
    if not len(ids):
        raise RequestError(
            where="prompt", got=Words("no tokens"), want="at least one token", fix="write a prompt"
        )
    listed = [plain(one) for one in ids]
    for index, one in enumerate(listed):
        if type(one) is not int or not 0 <= one < vocab:
            raise RequestError(
                where=f"prompt, token {index}",
                got=one,
                want=f"a token id from 0 to {vocab - 1}",
                fix="use the tokenizer of this checkpoint",
            )
    return listed
