"""Where speech goes: a file that is there once it is whole, or stdout as it is made."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from mstar_core.errors import UsageError, Words
from mstar_core.serving.media.encode import MEDIA, RATES, encoder, offered, wav_head

STDOUT = "-"
FLAG = "mstar-core speak --out"


def style_of(path: str, asked: str | None) -> str:
    """The format in which ``path`` is written. Raises UsageError for one that cannot be."""
    style = asked or ("wav" if path == STDOUT else Path(path).suffix.lstrip(".").lower())
    style = {"ogg": "opus"}.get(style, style)
    if style not in MEDIA:
        raise UsageError(
            where=FLAG,
            got=path,
            want=f"a name that ends in one of: {', '.join(f'.{name}' for name in MEDIA)}",
            fix=f"name it so, or give --format ({', '.join(offered())})",
        )
    if style not in offered():
        raise UsageError(
            where="--format",
            got=style,
            want=f"one of: {', '.join(offered())}",
            fix="install the extra audio: pip install 'mstar-core[audio]'",
        )
    return style


def check_rate(style: str, rate: int | None) -> None:
    """Raise UsageError for a sample rate that the format does not know."""
    known = RATES.get(style)
    if rate is not None and known is not None and rate not in known:
        raise UsageError(
            where="mstar-core speak --sample-rate",
            got=rate,
            want=f"one of: {', '.join(map(str, known))} (what {style} knows)",
            fix="pick one of them, or write wav or flac",
        )


class SoundFile:
    """One sound as it is written. As a context manager that is left by an error it leaves none."""

    def __init__(self, path: str, style: str) -> None:
        """Raises UsageError where nothing can be written."""
        self.path, self.style = path, style
        self._begun: Path | None = None
        self._rate = 0
        if path == STDOUT:
            self._file: BinaryIO = sys.stdout.buffer
            return
        target = Path(path)
        self._begun = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            if target.is_dir():
                raise IsADirectoryError(21, "Is a directory", path)
            self._file = self._begun.open("wb")
        except OSError as error:
            raise _unwritable(error) from error

    def begin(self, rate: int, new_rate: int | None) -> None:
        """The sound has ``rate`` samples a second, and the file ``new_rate``, or the same."""
        self._rate = new_rate or rate
        whole = self._begun is not None
        self._encoder = encoder(self.style, rate, new_rate, whole=whole)

    def push(self, samples_T: np.ndarray) -> None:
        """More of the sound, float32 ``[T]``."""
        self._write(self._encoder.push(samples_T))

    def finish(self) -> None:
        """The sound is whole: the file is there under its name. Raises UsageError."""
        self._write(self._encoder.finish())
        if self._begun is None:
            return
        try:
            if self.style == "wav":
                head = wav_head(self._rate)
                self._file.seek(0, os.SEEK_END)
                samples = (self._file.tell() - len(head)) // 2
                self._file.seek(0)
                self._file.write(wav_head(self._rate, samples))
            self._file.close()
            self._begun.replace(self.path)
        except OSError as error:
            raise _unwritable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._begun is not None:
            self._file.close()
            self._begun.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        if self._begun is None:
            self._file.write(data)
            self._file.flush()
            return
        try:
            self._file.write(data)
        except OSError as error:
            raise _unwritable(error) from error


def _unwritable(error: OSError) -> UsageError:
    return UsageError(
        where=FLAG, got=Words(str(error)), want="a file that can be written", fix="name another"
    )
