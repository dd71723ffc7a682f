"""What the echo model is asked, as ids: text as its bytes, a chat as its last user turn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mstar_core.config.sampling import plain
from mstar_core.errors import RequestError, Words

VOCAB = 257
"""Ids 0 to 255 are the bytes of UTF-8."""


def bytes_of(text: object, where: str) -> bytes:
    """``text`` in UTF-8. Raises RequestError for what is no text."""
    if not isinstance(text, str):
        raise RequestError(
            where=where, got=Words(f"a {type(text).__name__}"), want="text", fix="send text"
        )
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            where=where,
            got=Words(f"{text[error.start]!a} at character {error.start}"),
            want="text that can be written in UTF-8",
            fix="check how the text was read; its bytes were not UTF-8",
        ) from error


def ids_of(text: object, where: str) -> np.ndarray:
    """int64 ``[n]``: the bytes of ``text``. Raises RequestError."""
    return np.frombuffer(bytes_of(text, where), np.uint8).astype(np.int64)


def last_user(messages: object) -> str:
    """The text of the last message of role ``user``."""
    listed = messages if isinstance(messages, list | tuple) else ()
    for message in reversed(listed):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return _content(message.get("content"))
    raise RequestError(
        where="messages",
        got=Words("no message of the role user"),
        want="messages with a role and text, at least one of the role user",
        fix="add what the user said",
    )


def _content(content: object) -> str:
    if isinstance(content, list | tuple):
        parts = [p.get("text") if isinstance(p, Mapping) else None for p in content]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    if isinstance(content, str):
        return content
    raise RequestError(
        where="messages", got=content, want="text, or parts of type text", fix="send text"
    )


def checked(ids: object) -> np.ndarray:
    """``ids`` as int64 ``[n]``."""
    listed = ids
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        if ids.dtype.kind in "iu" and len(ids) and 0 <= ids.min() <= ids.max() < VOCAB:
            return ids.astype(np.int64)
        listed = ids.tolist()
    if not isinstance(listed, list | tuple | range) or not listed:
        raise RequestError(
            where="prompt",
            got=Words("no tokens" if isinstance(listed, list | tuple) else type(ids).__name__),
            want="at least one byte of text, or one token id",
            fix="write a prompt",
        )
    for index, one in enumerate(map(plain, listed)):
        if type(one) is not int or not 0 <= one < VOCAB:
            raise RequestError(
                where=f"prompt, token {index}",
                got=one,
                want=f"a token id from 0 to {VOCAB - 1}",
                fix="send the bytes of text in UTF-8",
            )
    return np.asarray(listed, np.int64)
