"""How deep a JSON text nests, found without parsing it."""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 20
_KEPT = b'"[]{}'
_OTHERS = bytes(set(range(256)) - set(_KEPT))
_QUOTE = ord('"')


def json_depth(body: bytes) -> int:
    """The deepest level of arrays and objects in ``body``; strings do not count.

    In blocks and in numpy, since it is asked of bodies that somebody may have made to be slow. For
    what is no JSON it is some number, and the parser refuses it.
    """
    if b"\\" in body:  # a quote that is escaped does not end its string
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(body.translate(None, _OTHERS), np.uint8)
    level = deepest = 0
    inside = 0
    for at in range(0, len(marks), _BLOCK):
        block = marks[at : at + _BLOCK]
        quotes = block == _QUOTE
        string = (np.cumsum(quotes, dtype=np.uint8) + inside) & 1
        opens = (block == ord("[")) | (block == ord("{"))
        steps = np.where(opens, 1, -1) * ((string == 0) & ~quotes)
        levels = np.cumsum(steps, dtype=np.int32) + level
        inside = int(string[-1])
        level = int(levels[-1])
        deepest = max(deepest, int(levels.max()))
    return deepest
