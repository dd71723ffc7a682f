"""What a request's text becomes: the prompt's rows of text and codec ids, and its script."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from mstar_core.errors import RequestError, Words
from mstar_core.names import suggest
from mstar_qwen3_tts.config import TtsConfig
from mstar_qwen3_tts.heard import Heard

ROLE, TAIL, HEARD_TAIL = 3, 5, 2
"""Ids before and behind the text in a turn: ``<|im_start|>assistant⏎`` and what closes it."""
NONE = -1
"""In the place of a codec id where there is none."""
AUTO = "auto"
DIALECTS_OF = ("chinese", AUTO)
"""Languages in which a speaker's dialect is spoken."""


@frozen(kw_only=True)
class Wishes:
    """What is spoken, and how."""

    ids: Sequence[int]
    """The whole turn: role, text, and what closes it."""
    language: str = AUTO
    speaker: str | None = None
    instruct: Sequence[int] = ()
    """The whole turn of an instruction; empty without one."""
    whole_text: bool = True
    """The text comes before the sound; else word by word beside it."""
    heard: Heard | None = None
    """The voice to imitate, where the model can."""
    heard_ids: Sequence[int] = ()
    """The whole turn of what was heard; empty where nothing of it is said again."""


Row = tuple[int, int]
"""A text id, and beside it a codec id or :data:`NONE`."""


def prompt_arrays(config: TtsConfig, wishes: Wishes, script: int) -> dict[str, np.ndarray]:
    """``text`` and ``code`` int64 ``[n]``, and ``script`` int64 ``[1, script]``.

    ``code`` is 0 where text stands alone, else a codec id plus one. Of a model that imitates also
    what the voice brings. Raises RequestError for text that the script does not hold.
    """
    text, codec = config.text, config.codec
    head = _codec_head(config, wishes)
    rows: list[Row] = [(i, NONE) for i in (*wishes.instruct, *wishes.ids[:ROLE])]
    rows += [(text.pad, code) for code in head[:-1]] + [(text.bos, codec.pad)]
    inner, spoken = _body(config, wishes)
    rows += inner
    if len(spoken) >= script:
        raise RequestError(
            where="input",
            got=Words(f"{len(wishes.ids) - ROLE - TAIL} tokens of text"),
            want=f"at most {script - 1} where it is spoken word by word",
            fix="give the whole text before the sound, or speak it in pieces",
        )
    padded = np.full((1, script), text.pad, np.int64)
    padded[0, : len(spoken)] = spoken
    arrays: dict[str, np.ndarray] = {
        "text": np.asarray([i for i, _ in rows], np.int64),
        "code": np.asarray([code for _, code in rows], np.int64) + 1,
        "script": padded,
    }
    return arrays if wishes.heard is None else arrays | wishes.heard.arrays(config)


def _body(config: TtsConfig, wishes: Wishes) -> tuple[list[Row], list[int]]:
    """The rows of text and heard sound, and what of the text is left for the script."""
    text, codec = config.text, config.codec
    body = list(wishes.ids[ROLE:-TAIL])
    if not body:
        raise RequestError(
            where="input",
            got=Words("no token of text"),
            want="text",
            fix="write what is to be said",
        )
    said = [*wishes.heard_ids[ROLE:-HEARD_TAIL], *body, text.eos]
    num = 0 if wishes.heard is None else wishes.heard.num_frames
    frames = [codec.bos, *config.heard_frames[:num]]
    if wishes.whole_text:
        rows: list[Row] = [(i, codec.pad) for i in said]
        return [*rows, *((text.pad, frame) for frame in frames)], []
    beside = [*said[: len(frames)], *[text.pad] * (len(frames) - len(said))]
    return list(zip(beside, frames, strict=True)), said[len(frames) :]


def _codec_head(config: TtsConfig, wishes: Wishes) -> list[int]:
    """Language and speaker, then the pad."""
    codec, language = config.codec, language_id(config, wishes.language, wishes.speaker)
    head = [codec.no_think, codec.think_bos, codec.think_eos]
    if language is not None:
        head = [codec.think, codec.think_bos, language, codec.think_eos]
    if wishes.speaker is not None:
        head.append(config.speakers[wishes.speaker])
    if wishes.heard is not None:
        head.append(config.heard_speaker)
    return [*head, codec.pad]


def speaker_of(config: TtsConfig, wanted: str | None) -> str | None:
    """A speaker by name, whatever its case; None where no speaker has a name.

    Raises RequestError for one that the model does not have: another never speaks in its place.
    """
    known = sorted(config.speakers)
    if not known and wanted is None:
        return None
    if not known:
        raise RequestError(
            where="voice",
            got=wanted,
            want="none: no voice of this model has a name",
            fix="leave it out, and describe the voice in instructions",
        )
    if wanted is not None and wanted.lower() in known:
        return wanted.lower()
    raise RequestError(
        where="voice",
        got=Words("no voice") if wanted is None else wanted,
        want=f"one of: {', '.join(known)}",
        fix=suggest(wanted.lower(), known) if wanted else "name one of them",
    )


def language_id(config: TtsConfig, language: str, speaker: str | None) -> int | None:
    """The codec id of a language; None leaves it to the model. Raises RequestError."""
    dialect = config.dialects.get(speaker) if speaker is not None else None
    if dialect is not None and language in DIALECTS_OF:
        return config.languages[dialect]
    if language == AUTO:
        return None
    if language not in config.languages:
        known = [AUTO, *sorted(config.languages)]
        raise RequestError(
            where="language",
            got=language,
            want=f"one of: {', '.join(known)}",
            fix=suggest(language, known),
        )
    return config.languages[language]
