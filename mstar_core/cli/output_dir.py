"""A folder that takes a file for each input: whether it can, before the work, and the writing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mstar_core.errors import UsageError, Words


def targets_of(files: Sequence[str], suffix: str, output_dir: str) -> dict[str, Path]:
    """Input → ``output_dir/NAME + suffix``; the folder is made, and has been seen to take files.

    Raises UsageError where two inputs would be written to one file, or nothing can be written.
    """
    folder = Path(output_dir)
    written: dict[Path, str] = {}
    for file in files:
        target = folder / (Path(file).name + suffix)
        if target in written:
            raise _refused(
                f"{target} for {written[target]} and for {file}",
                "files whose names differ",
                "give each such file a run and a folder of its own",
            )
        written[target] = file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(error) from error
    return {file: target for target, file in written.items()}


def write_all(texts: Mapping[Path, str]) -> None:
    """Write each text, and a line's end, into its file. Raises UsageError where one cannot be."""
    try:
        for target, text in texts.items():
            target.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise _cannot_write(error) from error


def _cannot_write(error: OSError) -> UsageError:
    return _refused(str(error), "a folder that can be written to", "name another folder")


def _refused(got: str, want: str, fix: str) -> UsageError:
    return UsageError(where="--output-dir", got=Words(got), want=want, fix=fix)
