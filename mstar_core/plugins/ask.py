"""Asking a hook: every implementation called in a guard, the answers combined by the hook's rule.

The order of plugins never changes an outcome: answers come sorted by owner, and a rule either takes
all of them, wants them equal, or goes by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from mstar_core.errors import MstarError, Refusal

A_LIST = "a list, or None for no opinion"
ANSWERS: Mapping[str, tuple[type, str]] = {
    "union": (tuple, A_LIST),
    "any_refuses": (Refusal, "a Refusal, or None for no opinion"),
}
"""What an answer must be for the rules that look inside, and how a person calls it."""
REFUSALS = frozenset({"doctor_checks", "review_plan"})
"""Hooks whose lists hold Refusals."""


@frozen(kw_only=True)
class Voice:
    """Somebody who can answer: a plugin by its hook, or an object by its method."""

    owner: str
    """The plugin's name, or the object's key."""
    call: Callable[[], Any]


@frozen(kw_only=True)
class Answer:
    """What one voice said."""

    plugin: str
    """Its owner."""
    value: Any = None
    """None is "no opinion"."""
    error: Refusal | None = None
    """What it raised instead of answering, or why what it said is no answer."""
    seconds: float = 0.0


@frozen(kw_only=True)
class Asked:
    """All answers to one question, and what the rule makes of them."""

    hook: str
    answers: tuple[Answer, ...]
    value: Any = None
    """By rule. ``union``: a tuple of all items in order of owner. ``all_agree``, ``first_answer``:
    the value, or None. ``each``: the answers that hold an opinion. Others: None."""
    refusals: tuple[Refusal, ...] = ()
    """``any_refuses``: each refusal, a failure included. ``all_agree``: the disagreement."""

    @property
    def findings(self) -> tuple[Refusal, ...]:
        """What was raised, and what was no answer: one Refusal per voice that failed."""
        return tuple(answer.error for answer in self.answers if answer.error is not None)


def ask_all(hook: str, rule: str, voices: Sequence[Voice]) -> Asked:
    """Call each of ``voices`` once and combine by ``rule``. Never raises for what a voice does."""
    ordered = sorted(voices, key=lambda voice: voice.owner)
    answers = tuple(_heard(hook, rule, voice) for voice in ordered)
    opinions = tuple(answer for answer in answers if answer.value is not None)
    asked = Asked(hook=hook, answers=answers)
    if rule == "union":
        return evolve(asked, value=tuple(item for each in opinions for item in each.value))
    if rule == "each":
        return evolve(asked, value=opinions)
    if rule == "first_answer":
        return evolve(asked, value=opinions[0].value if opinions else None)
    if rule == "any_refuses":
        objections = (answer.error or answer.value for answer in answers)
        owned = zip(answers, objections, strict=True)
        refusals = tuple(_owned(answer.plugin, refusal) for answer, refusal in owned if refusal)
        return evolve(asked, refusals=refusals)
    if rule == "all_agree":
        return _agreed(asked, opinions)
    return asked


def _heard(hook: str, rule: str, voice: Voice) -> Answer:
    started = time.perf_counter()
    value, error = None, None
    try:
        value = voice.call()
        if isinstance(value, Iterable) and not isinstance(value, str):
            value = tuple(value)
        if (want := _wanted(hook, rule, value)) is not None:
            value, error = None, no_answer(hook, voice.owner, value, want)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        error = _raised(hook, voice.owner, raised)
    seconds = time.perf_counter() - started
    return Answer(plugin=voice.owner, value=value, error=error, seconds=seconds)


def _wanted(hook: str, rule: str, value: Any) -> str | None:
    """What an answer should have been; None for one that may be."""
    kind, words = ANSWERS.get(rule, (object, ""))
    if value is None:
        return None
    if not issubclass(type(value), kind):
        return words
    if hook in REFUSALS and not all(isinstance(item, Refusal) for item in value):
        return "a list of Refusals, or None for no opinion"
    return None


def _agreed(asked: Asked, opinions: Sequence[Answer]) -> Asked:
    for other in opinions[1:]:
        if other.value != opinions[0].value:
            first = opinions[0]
            refusal = Refusal(
                code="no-agreement",
                where=f"hook {asked.hook}",
                got=f"{first.plugin} says {first.value!r}, {other.plugin} says {other.value!r}",
                want="one answer",
                fix=f"disable {first.plugin} or {other.plugin}",
                owner=f"{first.plugin}, {other.plugin}",
            )
            return evolve(asked, refusals=(refusal,))
    return evolve(asked, value=opinions[0].value if opinions else None)


def _owned(owner: str, refusal: Refusal) -> Refusal:
    return refusal if refusal.owner else evolve(refusal, owner=owner)


def _raised(hook: str, owner: str, error: BaseException) -> Refusal:
    got = f"{type(error).__name__}: {error}"
    if isinstance(error, MstarError):
        got = f"{error.where}: {error.facts()['got']}"
    return _failed("hook-raised", hook, owner, got, "an answer, or None for no opinion")


def no_answer(hook: str, owner: str, value: object, want: str) -> Refusal:
    """The Refusal of an answer of the wrong kind."""
    return _failed("hook-answer", hook, owner, f"the answer {value!r}", want)


def _failed(code: str, hook: str, owner: str, got: str, want: str) -> Refusal:
    return Refusal(
        code=code,
        where=f"{owner}: {hook}",
        got=got,
        want=want,
        fix=f"disable {owner}, or report it to its authors",
        owner=owner,
    )
