"""HTTP/1.1 out of bytes: no socket and no clock, so a thread and an event loop share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from mstar_core.client.errors import bad_answer, lost
from mstar_core.errors import RequestError

MAX_HEAD = 65536
"""Bytes of a status line with its headers."""
MAX_LINE = 1024
"""Bytes of a chunk's size with its extensions."""


@frozen(kw_only=True)
class Head:
    """A status line and its headers."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; what came twice is joined with a comma."""
    keeps_alive: bool
    """Whether the connection serves another request behind this one."""


@frozen
class End:
    """An answer is whole."""


END: Final = End()
Item = Head | bytes | End
"""What comes out of a parser: a head, pieces of its body, its end."""


class ResponseParser:
    """One connection's answers, one after another, in whatever pieces they arrive."""

    def __init__(self, where: str) -> None:
        """``where`` names the call in errors."""
        self.where = where
        self._rest = b""
        self._left = 0
        self._step: Callable[[bytes, int, list[Item]], int] = self._head
        self._begun = False

    def feed(self, data: bytes) -> list[Item]:
        """What ``data`` completes. Raises BadAnswer for what is no HTTP."""
        if self._rest:
            data = self._rest + data
        items: list[Item] = []
        at, size = 0, len(data)
        while at < size:
            after = self._step(data, at, items)
            if after < 0:
                break
            at = after
        self._rest = data[at:] if at < size else b""
        self._begun = self._begun or bool(self._rest)
        return items

    def eof(self) -> list[Item]:
        """What the end of the connection completes; raises ConnectionLost in mid-answer."""
        if self._step == self._until_close:
            self._step = self._head
            return [END]
        raise lost(
            self.where,
            "the connection was closed in the middle of the answer"
            if self._begun
            else "the connection was closed without an answer",
        )

    def _finish(self, items: list[Item]) -> None:
        items.append(END)
        self._step, self._begun = self._head, False

    def _head(self, data: bytes, at: int, items: list[Item]) -> int:
        end = data.find(b"\r\n\r\n", at)
        if end < 0 or end - at > MAX_HEAD:
            if len(data) - at > MAX_HEAD:
                raise bad_answer(self.where, "a head without an end", f"{MAX_HEAD} bytes at most")
            return -1
        head = self._parsed(data[at:end].decode("latin-1").split("\r\n"))
        if 100 <= head.status < 200:
            return end + 4
        self._begun = True
        items.append(head)
        if head.status in (204, 304):
            self._finish(items)
        elif "transfer-encoding" in head.headers:
            if head.headers["transfer-encoding"].lower() != "chunked":
                raise bad_answer(self.where, "an unknown transfer encoding", "chunked")
            self._step = self._size
        elif "content-length" in head.headers:
            self._left = self._number(head.headers["content-length"], 10)
            self._step = self._whole
            if not self._left:
                self._finish(items)
        else:
            self._step = self._until_close
        return end + 4

    def _parsed(self, lines: list[str]) -> Head:
        version, _, rest = lines[0].partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdecimal():
            raise bad_answer(self.where, f"the line {lines[0][:80]!r}", "a status line of HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise bad_answer(self.where, f"the header {line[:80]!r}", "NAME: VALUE")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        told = headers.get("connection", "").lower()
        keeps = "close" not in told if version == "HTTP/1.1" else "keep-alive" in told
        framed = "content-length" in headers or "transfer-encoding" in headers
        status = int(rest[:3])
        keeps = keeps and (framed or status in (204, 304))
        return Head(status=status, headers=headers, keeps_alive=keeps)

    def _number(self, text: str, base: int) -> int:
        digits = text.strip(" \t")
        if not digits.isascii() or not digits.isalnum() or len(digits) > 16:
            raise bad_answer(self.where, f"the length {text[:40]!r}", "a number of bytes")
        try:
            return int(digits, base)
        except ValueError:
            raise bad_answer(self.where, f"the length {digits!r}", "a number of bytes") from None

    def _whole(self, data: bytes, at: int, items: list[Item]) -> int:
        piece = data[at : at + self._left]
        items.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._finish(items)
        return at + len(piece)

    def _until_close(self, data: bytes, at: int, items: list[Item]) -> int:
        items.append(data[at:])
        return len(data)

    def _size(self, data: bytes, at: int, items: list[Item]) -> int:
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > MAX_LINE:
                raise bad_answer(self.where, "a chunk without a size", f"{MAX_LINE} bytes at most")
            return -1
        self._left = self._number(data[at:end].partition(b";")[0].decode("latin-1"), 16)
        self._step = self._chunk if self._left else self._trailer
        return end + 2

    def _chunk(self, data: bytes, at: int, items: list[Item]) -> int:
        piece = data[at : at + self._left]
        items.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._step = self._chunk_end
        return at + len(piece)

    def _chunk_end(self, data: bytes, at: int, items: list[Item]) -> int:
        if len(data) - at < 2:
            return -1
        if data[at : at + 2] != b"\r\n":
            raise bad_answer(self.where, "a chunk longer than its size", "a line's end behind it")
        self._step = self._size
        return at + 2

    def _trailer(self, data: bytes, at: int, items: list[Item]) -> int:
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > MAX_HEAD:
                raise bad_answer(self.where, "an endless trailer", f"{MAX_HEAD} bytes at most")
            return -1
        if end == at:
            self._finish(items)
        return end + 2


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A request as it goes over the wire. Raises RequestError for a header that would break it."""
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise RequestError(
                where=name,
                got=value,
                want="printable ASCII characters",
                fix="leave out what is no printable ASCII character",
            )
        lines.append(f"{name}: {value}")
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
