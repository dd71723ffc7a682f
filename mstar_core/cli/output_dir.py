"""A folder that takes a file for each input: whether it can, before the work, and the writing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mstar_core.cli.sources import Source
from mstar_core.errors import UsageError, Words


def targets_of(sources: Sequence[Source], suffix: str, output_dir: str) -> list[Path]:
    """``output_dir/NAME + suffix`` of each; the folder is made, and has been seen to take files.

    Raises UsageError where two inputs would be written to one file, or nothing can be written.
    """
    folder = Path(output_dir)
    written: dict[Path, str] = {}
    for source in sources:
        target = folder / (source.name + suffix)
        if target in written:
            raise _refused(
                f"{target} for {written[target]} and for {source.path}",
                "files whose names differ",
                "give each such file a run and a folder of its own",
            )
        written[target] = source.path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(error) from error
    return list(written)


def write_whole(target: Path, text: str) -> None:
    """Write ``text`` so that ``target`` is never there in part. Raises UsageError."""
    data = text.encode("utf-8", "backslashreplace")
    begun = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            begun.write_bytes(data)
            begun.replace(target)
        finally:
            begun.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(error) from error


def partial_of(target: Path) -> Path:
    """Where an output lies that does not have all of its sound: ``a.wav.partial.srt``."""
    return target.with_name(f"{target.stem}.partial{target.suffix}")


def cannot_write(error: OSError) -> UsageError:
    """What is said where the folder takes no more."""
    return _refused(str(error), "a folder that can be written to", "name another folder")


def _refused(got: str, want: str, fix: str) -> UsageError:
    return UsageError(where="--output-dir", got=Words(got), want=want, fix=fix)
