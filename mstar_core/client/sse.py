"""Server-sent events out of bytes.

A line ends at ``\\n`` or ``\\r\\n`` and nowhere else: U+0085 and U+2028, at which Python's own
``splitlines`` would cut, are part of the text. Bytes are UTF-8 whatever a header says.
"""

from __future__ import annotations

from typing import NamedTuple

from mstar_core.client.errors import bad_answer

_BOM = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """One event: its name (mostly empty) and its data."""

    name: str
    data: str


class EventParser:
    """A stream's events, in whatever pieces its bytes arrive."""

    def __init__(self, where: str) -> None:
        """``where`` names the call in errors."""
        self._where = where
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._first = True

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that ``piece`` completes. Raises BadAnswer for what is no UTF-8."""
        self._rest += piece
        if b"\n" not in piece:
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        if self._first:
            lines[0], self._first = lines[0].removeprefix(_BOM), False
        events: list[ServerEvent] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if line:
                self._take(line)
            elif self._data:
                events.append(self._event())
        return events

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _event(self) -> ServerEvent:
        data, name = b"\n".join(self._data), self._name
        self._data, self._name = [], b""
        try:
            return ServerEvent(name.decode(), data.decode())
        except UnicodeDecodeError:
            raise bad_answer(self._where, "an event that is no UTF-8", "events in UTF-8") from None
