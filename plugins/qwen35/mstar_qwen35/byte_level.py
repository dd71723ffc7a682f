"""The bytes behind the characters in which a byte-level vocabulary is written."""

from __future__ import annotations

_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that stand for themselves; the others are the characters from 256 on, in order."""

BYTES: dict[str, int] = {chr(byte): byte for byte in _PRINTED} | {
    chr(256 + index): byte for index, byte in enumerate(sorted(set(range(256)) - set(_PRINTED)))
}
"""Character of a token's name → the byte that it is."""
