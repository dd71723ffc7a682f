"""How deep a JSON text nests and how many fields it has, found without parsing it."""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 20
_KEPT = b'"[]{}:'
_OTHERS = bytes(set(range(256)) - set(_KEPT))
_QUOTE = ord('"')
_COLON = ord(":")


def json_shape(body: bytes) -> tuple[int, int]:
    """The deepest level of arrays and objects in ``body``, and how many fields all objects have.

    What is in strings does not count. In blocks and in numpy, since it is asked of bodies that
    somebody may have made to be slow. For what is no JSON they are some numbers, and the parser
    refuses it.
    """
    if b"\\" in body:  # a quote that is escaped does not end its string
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(body.translate(None, _OTHERS), np.uint8)
    level = deepest = 0
    inside = fields = 0
    for at in range(0, len(marks), _BLOCK):
        block = marks[at : at + _BLOCK]
        quotes = block == _QUOTE
        string = (np.cumsum(quotes, dtype=np.uint8) + inside) & 1
        outside = (string == 0) & ~quotes
        colons = outside & (block == _COLON)
        opens = (block == ord("[")) | (block == ord("{"))
        steps = np.where(opens, 1, -1) * (outside & ~colons)
        levels = np.cumsum(steps, dtype=np.int32) + level
        inside = int(string[-1])
        level = int(levels[-1])
        deepest = max(deepest, int(levels.max()))
        fields += int(np.count_nonzero(colons))
    return deepest, fields
