"""The decoder's prompt: what tells it the language, the task, timestamps and earlier text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import Attribute, evolve, field, fields, frozen

from mstar_core.config.sampling import plain
from mstar_core.errors import RequestError, Words
from mstar_core.names import nearest, suggest
from mstar_whisper.config import Tokens
from mstar_whisper.judging import Thresholds

DEFAULT_TASK, TRANSLATE = "transcribe", "translate"
ENGLISH = "en"
_WORDS = {str: "text", bool: "true or false", int: "a whole number"}


def _of(*types: type) -> Callable[[Any, Attribute[Any], Any], None]:
    want = " or ".join("null" if kind is type(None) else _WORDS[kind] for kind in types)

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if type(value) not in types:
            raise RequestError(
                where=attribute.name, got=value, want=want, fix=f"leave {attribute.name} out"
            )

    return check


@frozen(kw_only=True)
class Wishes:
    """What one request asks of the decoder. Raises RequestError for a value of another type."""

    language: str | None = field(default=None, validator=_of(str, type(None)))
    """Code of the language spoken."""
    task: str | None = field(default=None, validator=_of(str, type(None)))
    """``transcribe``, or ``translate`` (into English)."""
    timestamps: bool = field(default=False, validator=_of(bool))
    prompt: str | None = field(default=None, validator=_of(str, type(None)))
    """Text that was heard before, or words to expect."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The wishes of a request. Raises RequestError for one that there is not."""
        known = [a.name for a in fields(cls)]
        for name in given:
            if name not in known:
                raise RequestError(
                    where=name,
                    got=given[name],
                    want=f"one of: {', '.join(known)}",
                    fix=suggest(name, known),
                )
        return cls(**given)


@frozen(kw_only=True)
class LongWishes(Wishes, Thresholds):
    """What a plan asks for: the wishes of its requests, and how it judges what they give."""

    hotwords: str | None = field(default=None, validator=_of(str, type(None)))
    """Words to expect, which every window is told, before what was said."""
    condition_on_previous_text: bool = field(default=False, validator=_of(bool))
    """Whether a window is told what was said before it."""
    batched: bool = field(default=False, validator=_of(bool))
    """Windows are cut at quiet places and heard together; none is told what was said before it."""
    word_timestamps: bool = field(default=False, validator=_of(bool))
    """Whether words are timed, for which a window is heard once more."""
    seed: int = field(default=0, converter=plain, validator=_of(int))
    """Of what is drawn at a temperature above 0."""


def prompt_ids(
    tokens: Tokens, wishes: Wishes, previous: Sequence[int], target_positions: int
) -> list[int]:
    """The ids of the prompt; of ``previous`` the last ``target_positions // 2 - 1`` are kept.

    Raises RequestError for a language or task that the model does not have, and for no language on
    a multilingual one. A model of English alone takes ``en`` and ``transcribe``.
    """
    ids = [tokens.sot, *_language_and_task(tokens, wishes)]
    if not wishes.timestamps:
        ids.append(tokens.no_timestamps)
    kept = list(previous)[-(target_positions // 2 - 1) :]
    return [tokens.previous, *kept, *ids] if kept else ids


def check_wishes(tokens: Tokens, wishes: Wishes) -> None:
    """Raise RequestError for a language or task that the model does not have."""
    if tokens.multilingual and wishes.language is None:
        wishes = evolve(wishes, language=next(iter(tokens.languages)))
    _language_and_task(tokens, wishes)


def _language_and_task(tokens: Tokens, wishes: Wishes) -> list[int]:
    if not tokens.multilingual:
        for name, value, only in (
            ("language", wishes.language, ENGLISH),
            ("task", wishes.task, DEFAULT_TASK),
        ):
            if value is not None and value.strip().lower() != only:
                raise RequestError(
                    where=name,
                    got=value,
                    want=f"{only}: the model writes English as English is spoken",
                    fix=f"leave {name} out, or use a multilingual model",
                )
        return []
    if wishes.language is None:
        raise RequestError(
            where="language",
            got=Words("nothing"),
            want=f"the language spoken, {_listed(tokens.languages)}",
            fix="name the language, or set model.options.default_language",
        )
    task = DEFAULT_TASK if wishes.task is None else wishes.task
    return [
        language_id(tokens, wishes.language),
        _id_of("task", task, tokens.tasks),
    ]


def language_id(tokens: Tokens, language: str) -> int:
    """The id of a language code, in any case. Raises RequestError for one the model lacks."""
    return _id_of("language", language, tokens.languages)


def _id_of(what: str, value: str, known: Mapping[str, int]) -> int:
    name = value.strip().lower()
    if name in known:
        return known[name]
    near = nearest(name, known)
    raise RequestError(
        where=what,
        got=value,
        want=_listed(known),
        fix=f"write {near!r}" if near else f"write one of the {what} codes",
    )


def _listed(known: Mapping[str, int]) -> str:
    return f"one of: {', '.join(sorted(known))}"
