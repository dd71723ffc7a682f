"""Whether an answer is to be believed: the published thresholds, and what they decide.

::

    repeats itself, or unlikely ──► again, at the next temperature  (of all, the likeliest is taken)
    unlikely, and no speech     ──► the window is silent: nothing of it is kept
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from attrs import Attribute, evolve, field, frozen

from mstar_core.config.sampling import plain
from mstar_core.errors import RequestError
from mstar_core.model.transcription import Answered
from mstar_whisper.sound import Level

NO_SPEECH = "no_speech_prob"
FIRST_POSITIONS = "first_positions"
"""The decoder's outputs that are reported with a request."""
RESET_ABOVE = 0.5
"""What was drawn at a higher temperature is not told to the next window, nor what came before."""
STILL_DB = -80.0
"""A window that is nowhere louder, of full scale, is not heard at all."""
STEADY_DB = 3.0
"""A window whose levels lie no further apart is as loud throughout as noise and tones are."""
STEADY_NO_SPEECH = 0.3
"""Such a window is silent where the model holds that likelier than this."""
LADDER = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def _number(low: float, high: float, optional: bool = True) -> Callable[..., None]:
    want = f"a number from {low:g} to {high:g}" + (", or null for none" if optional else "")

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is None and optional:
            return
        if type(value) not in (int, float) or not low <= value <= high:
            raise RequestError(
                where=attribute.name, got=value, want=want, fix=f"leave {attribute.name} out"
            )

    return check


def _ladder(value: Any) -> Any:
    """One temperature or several, as a tuple."""
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else (plain(value),)


def _temperatures(owner: Any, attribute: Attribute[Any], value: tuple[Any, ...]) -> None:
    for each in value:
        _number(0, 2, optional=False)(owner, attribute, each)
    if not value:
        raise RequestError(
            where=attribute.name, got=value, want="at least one", fix="leave temperature out"
        )


def _flag(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise RequestError(
            where=attribute.name, got=value, want="true or false", fix=f"leave {attribute.name} out"
        )


@frozen(kw_only=True, slots=False)
class Thresholds:
    """What an answer must be. Raises RequestError for a value of another type."""

    temperature: tuple[float, ...] = field(
        default=LADDER, converter=_ladder, validator=_temperatures
    )
    """Tried in this order while an answer is not to be believed."""
    compression_ratio_threshold: float | None = field(
        default=2.4, converter=plain, validator=_number(0, 1e6)
    )
    """Text that is shortened by more repeats itself."""
    logprob_threshold: float | None = field(
        default=-1.0, converter=plain, validator=_number(-1e6, 0)
    )
    """An answer whose mean log-probability is below it is unlikely."""
    no_speech_threshold: float | None = field(default=0.6, converter=plain, validator=_number(0, 1))
    """A window more likely than this to be without speech is so, if its answer is unlikely."""
    skip_steady: bool = field(default=True, validator=_flag)
    """Whether a window is silent too where it is still, or as loud throughout as noise and tones
    are (``STILL_DB``, ``STEADY_DB``) and the model takes it for speech only by a little."""


@frozen(kw_only=True)
class Judged:
    """An answer, and what it is worth."""

    ids: tuple[int, ...]
    """Without the stop id."""
    logprobs: tuple[float, ...]
    """Of ``ids``."""
    ended: bool
    """By its stop id, not at a limit."""
    text: str
    temperature: float
    avg_logprob: float
    """Mean over its tokens, the stop id among them."""
    compression_ratio: float
    no_speech_prob: float
    spread_db: float
    """How far apart the levels of the window are."""
    begins: tuple[float, ...] = ()
    """Where the tokens begin, and behind them where the last one ends: positions of the window.
    Empty where nobody asked."""

    @classmethod
    def of(
        cls,
        answered: Answered,
        temperature: float,
        spread_db: float,
        decode: Callable[[Sequence[int]], str],
    ) -> Judged:
        """What ``answered`` is worth, which was drawn at ``temperature``."""
        ids, text = tuple(answered.ids), decode(answered.ids).strip()
        silence, scores = answered.reported.get(NO_SPEECH), list(answered.logprobs)
        if answered.stop_logprob is not None:
            scores.append(answered.stop_logprob)
        return cls(
            ids=ids,
            logprobs=tuple(answered.logprobs),
            ended=answered.stop_logprob is not None,
            text=text,
            temperature=temperature,
            avg_logprob=sum(scores) / len(scores) if scores else 0.0,
            compression_ratio=compression_ratio(text),
            no_speech_prob=silence if isinstance(silence, float) else 0.0,
            spread_db=spread_db,
        )

    def aligned(self, answered: Answered) -> Judged:
        """With what the answer to an alignment reports: where each token but the first begins, and
        where the last one ends, if it was not cut off there."""
        told = answered.reported[FIRST_POSITIONS]
        later = [at for at in told if at >= 0] if isinstance(told, list) else []
        begins = [0.0, *later]
        missing = len(self.ids) + 1 - len(begins)
        return evolve(self, begins=(*begins, *begins[-1:] * missing))

    @property
    def is_hot(self) -> bool:
        """Drawn at a temperature at which nothing follows from it."""
        return self.temperature > RESET_ABOVE

    def is_silent(self, at: Thresholds) -> bool:
        """Nothing was said in the window."""
        steady = at.skip_steady and self.spread_db < STEADY_DB
        if steady and self.no_speech_prob > STEADY_NO_SPEECH:
            return True
        limit = at.no_speech_threshold
        return limit is not None and self.no_speech_prob > limit and self._is_unlikely(at, True)

    def is_doubtful(self, at: Thresholds) -> bool:
        """It should be drawn again."""
        limit = at.compression_ratio_threshold
        repeats = limit is not None and self.compression_ratio > limit
        return not self.is_silent(at) and (repeats or self._is_unlikely(at, False))

    def _is_unlikely(self, at: Thresholds, unasked: bool) -> bool:
        limit = at.logprob_threshold
        return unasked if limit is None else self.avg_logprob < limit


def chosen(tried: Sequence[Judged], at: Thresholds) -> Judged:
    """The last, if it is to be believed; else the likeliest, where by how much its text is above
    the threshold of repetition is taken off its log-probability."""
    if not tried[-1].is_doubtful(at):
        return tried[-1]
    limit = at.compression_ratio_threshold

    def worth(each: Judged) -> float:
        over = 0.0 if limit is None else max(0.0, each.compression_ratio - limit)
        return each.avg_logprob - over

    return max(reversed(tried), key=worth)


def is_still(level: Level, at: Thresholds) -> bool:
    """Whether there is nothing to be heard in a window."""
    return at.skip_steady and level.loudest_db < STILL_DB


def compression_ratio(text: str) -> float:
    """Bytes of ``text`` over those of its compressed form."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
