"""``mstar-core transcribe CONFIG FILE|FOLDER…``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mstar_core.audio import audio_head
from mstar_core.cli.common import add_config_arguments, resolve_arguments
from mstar_core.cli.hearing import STDOUT, Hearing, Job
from mstar_core.cli.output_dir import targets_of
from mstar_core.cli.outputs import SUFFIX, Outputs, Printed, Written, key_of
from mstar_core.cli.progress import SoundProgress, log, progress_bar
from mstar_core.cli.sources import Source, sources_of
from mstar_core.cli.streams import add_texts, shown
from mstar_core.cli.tables import columns
from mstar_core.config import Resolved
from mstar_core.errors import ConfigError, RequestError, UsageError, Words
from mstar_core.model.front import Front
from mstar_core.model.transcript import FORMATS, Format, Task

WISHES = ("language", "task", "prompt", "hotwords", "batched")
WORD_FORMAT = "verbose_json"


def add_parser(subparsers: Any) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("transcribe", help="speech in, text out")
    add_config_arguments(parser)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="wav, flac, ogg or mp3, or a folder: all such files below it",
    )
    add_texts(
        parser,
        ("--language", "CODE", "the language spoken, such as de"),
        ("--task", "TASK", "transcribe, or translate (into English)"),
        ("--prompt", "TEXT", "what was said before, or how it is written"),
        ("--hotwords", "TEXT", "words to expect in all of each sound"),
    )
    parser.add_argument(
        "--batched",
        action="store_true",
        default=None,
        help="hear the windows of a file together: faster, but none knows what was said before it",
    )
    parser.add_argument(
        "--format",
        default="text",
        choices=FORMATS,
        help="json and verbose_json are one object a line (default: text)",
    )
    parser.add_argument(
        "--timestamps",
        default="segment",
        choices=("segment", "word"),
        help=f"word: the times of words too, in {WORD_FORMAT} (default: segment)",
    )
    parser.add_argument(
        "--output-dir", metavar="DIR", help="write a file for each FILE instead of to stdout"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="make outputs anew that are there already"
    )


def run(args: argparse.Namespace) -> int:
    """Print the text of each FILE; with several files each line begins with the file's name.

    Files are told apart by their content; any length, sample rate and number of channels will do,
    as far as the model hears them. A file that cannot be transcribed is reported on stderr and
    does not end the others.

    With --output-dir an output is there once it is whole. The next run with the same settings
    skips it, and goes on with a file that was not heard to its end: by Ctrl-C, by an error, or
    because the process was killed. What was heard of such a file is in NAME.partial.SUFFIX.

    Exit code: 0 all files, 1 some file or setting is wrong, 2 the command line is wrong,
    130 interrupted.

    Example:  mstar-core transcribe speech.yaml recordings/ --format srt --output-dir texts
    """
    style: Format = "json" if args.json else args.format
    sources = sources_of(args.files)
    _check(args, style, sources)
    given = targets_of(sources, SUFFIX[style], args.output_dir) if args.output_dir else []
    targets = given or [STDOUT] * len(sources)
    resolved, _ = resolve_arguments(args)
    wishes = {name: value for name in WISHES if (value := getattr(args, name)) is not None}
    if args.timestamps == "word":
        wishes["word_timestamps"] = True
    asked = {**wishes, "format": style}
    jobs = [
        _job(source.path, target, key_of(resolved, asked, source.path))
        for source, target in zip(sources, targets, strict=True)
    ]
    outputs = _outputs(args, style, jobs)
    if not all(job.done for job in jobs):
        _hear(args, resolved, wishes, outputs)
    return _summed(jobs)


def _job(path: str, target: Path, key: str) -> Job:
    job = Job(path=path, target=target, key=key)
    try:
        head = audio_head(path)
        job.rate, job.seconds = head.rate, head.seconds
    except (RequestError, OSError) as error:
        job.fail(error)
    return job


def _outputs(args: argparse.Namespace, style: Format, jobs: list[Job]) -> Outputs:
    words = args.timestamps == "word"
    task: Task = "translate" if args.task == "translate" else "transcribe"
    if not args.output_dir:
        return Printed(style=style, words=words, task=task, jobs=jobs)
    at = {"folder": Path(args.output_dir), "overwrite": args.overwrite}
    return Written(style=style, words=words, task=task, jobs=jobs, **at)


def _hear(
    args: argparse.Namespace, resolved: Resolved, wishes: dict[str, Any], outputs: Outputs
) -> None:
    """Run the jobs that are not done."""
    from mstar_core.engine import Engine

    jobs = outputs.jobs
    if args.log_level is None:
        log.setLevel(logging.INFO)
    bar = SoundProgress(sum(job.seconds for job in jobs))
    try:
        with Engine.open(resolved, offline=args.offline, progress=progress_bar()) as engine:
            _check_front(engine.front, args)
            hearing = Hearing(
                engine=engine,
                wishes=wishes,
                tell=outputs.add,
                look=lambda: bar.show(sum(job.heard_s for job in jobs)),
            )
            for job in hearing.run([job for job in jobs if not job.done]):
                bar.clear()
                if job.error is not None:
                    print(f"Error: {job.error}", file=sys.stderr)
                outputs.over(job)
    finally:
        bar.clear()
        outputs.close()


def _check(args: argparse.Namespace, style: str, sources: Sequence[Source]) -> None:
    """Raise UsageError for arguments that do not go together."""
    if args.timestamps == "word" and style != WORD_FORMAT:
        raise UsageError(
            where="mstar-core transcribe --timestamps",
            got="word",
            want=f"segment, for --format {style}",
            fix=f"write --format {WORD_FORMAT}, which has the times of words",
        )
    if style in ("srt", "vtt") and len(sources) > 1 and not args.output_dir:
        raise UsageError(
            where="mstar-core transcribe --format",
            got=style,
            want=f"one file, or a place for each; there are {len(sources)}",
            fix="add --output-dir DIR",
        )


def _check_front(front: Front, args: argparse.Namespace) -> None:
    """Raise ConfigError or UsageError for a model that cannot do what is asked."""
    if "audio" not in front.capabilities():
        kinds = ", ".join(sorted(front.capabilities())) or "no sound"
        raise ConfigError(
            where=str(args.config),
            got=Words(f"a model that takes {kinds}"),
            want="a model that takes sound",
            fix="name a configuration of a speech recognition model",
        )
    if args.timestamps == "word" and not front.traits().get("word_timestamps"):
        raise UsageError(
            where="mstar-core transcribe --timestamps",
            got="word",
            want="segment: this model does not tell the times of words",
            fix="leave --timestamps out",
        )


def _summed(jobs: Sequence[Job]) -> int:
    """Exit code; several failures are listed once more, so that they are seen together."""
    failed = [(shown(job.path), str(job.error.got)) for job in jobs if job.error is not None]
    if len(failed) > 1:
        print(f"{len(failed)} of {len(jobs)} files failed:", file=sys.stderr)
        print(columns([("FILE", "WHAT"), *failed]), file=sys.stderr)
    return int(bool(failed))
