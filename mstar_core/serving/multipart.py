"""``multipart/form-data``, parsed while it comes: fields by name, and one file in memory.

The parts' own limits are here; the body's is that of the receive it comes through.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from attrs import define, field
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request as HttpRequest

from mstar_core.serving.errors import ApiError

MAX_PARTS = 64
MAX_FIELD_BYTES = 64 << 10
MAX_NAME_BYTES = 256
MAX_HEADER_BYTES = 4096
MAX_HEADERS = 8


@define(kw_only=True, eq=False)
class Form:
    """What was sent. Its file is closed when the block that it manages ends."""

    fields: dict[str, list[str]] = field(factory=dict)
    """By name, without a ``[]`` at its end; a field that came twice has two values."""
    file: int | None = None
    """Descriptor of the file's bytes, in memory and without a name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless where there is none."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


async def read_form(http: HttpRequest, file: str) -> Form:
    """The form in the body of ``http``; the part named ``file`` is its one file.

    Raises ApiError ``invalid_value``, ``limit_exceeded``, or what the receive raises.
    """
    form = Form()
    try:
        parts = _Parts(form, file)
        parser = _parser(http, parts)
        async for chunk in http.stream():
            try:
                parser.write(chunk)
            except FormParserError:
                raise _bad("The body is not the form that its headers announce.") from None
        if not parts.is_whole:
            raise _bad("The form ends in the middle.")
    except BaseException:
        form.close()
        raise
    return form


def _parser(http: HttpRequest, parts: _Parts) -> MultipartParser:
    _, options = parse_options_header(http.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise _bad("The content-type names no boundary.")
    try:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": parts.begin,
                "on_header_field": parts.header_name,
                "on_header_value": parts.header_value,
                "on_header_end": parts.header_end,
                "on_headers_finished": parts.headers_finished,
                "on_part_data": parts.data,
                "on_part_end": parts.end,
                "on_end": parts.finish,
            },
            max_header_count=MAX_HEADERS,
            max_header_size=MAX_HEADER_BYTES,
        )
    except FormParserError:
        raise _bad("The content-type's boundary is too long.") from None


class _Parts:
    """Takes what the parser finds, part by part."""

    def __init__(self, form: Form, file: str) -> None:
        self.is_whole = False
        self._form = form
        self._file = file
        self._count = 0
        self._to_file = False

    def begin(self) -> None:
        self._count += 1
        if self._count > MAX_PARTS:
            raise ApiError("limit_exceeded", f"The form has more than {MAX_PARTS} parts.")
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._text = bytearray()

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"")
        if kind != b"form-data" or not 0 < len(name) <= MAX_NAME_BYTES:
            raise _bad("A part of the form has no name.")
        self._name = _text(name).removesuffix("[]")
        self._to_file = self._name == self._file
        if not self._to_file and b"filename" in options:
            raise ApiError(
                "invalid_value", f"The form's file must be named `{self._file}`.", param=self._name
            )
        if self._to_file:
            if self._form.file is not None:
                message = "The form has more than one file."
                raise ApiError("invalid_value", message, param=self._file)
            self._form.file = os.memfd_create("upload", os.MFD_CLOEXEC)

    def data(self, data: bytes, start: int, end: int) -> None:
        with memoryview(data)[start:end] as more:
            if self._to_file and self._form.file is not None:
                done = 0
                while done < len(more):
                    done += os.write(self._form.file, more[done:])
                return
            self._text += more
        if len(self._text) > MAX_FIELD_BYTES:
            message = f"A field of the form is longer than {MAX_FIELD_BYTES} bytes."
            raise ApiError("limit_exceeded", message, param=self._name)

    def end(self) -> None:
        if not self._to_file:
            self._form.fields.setdefault(self._name, []).append(_text(self._text))

    def finish(self) -> None:
        self.is_whole = True


def _text(data: bytes | bytearray) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _bad("The form holds text that is not UTF-8.") from None


def _bad(message: str) -> ApiError:
    return ApiError("invalid_value", message)
