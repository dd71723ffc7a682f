"""How one request picks its tokens: checked numbers, free of torch.

A setting that cannot be used is refused by name before the request reaches the engine. ``True`` is
not a number here, nor is ``"1"``, NaN or infinity. A number of numpy is taken as Python's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from attrs import Attribute, field, frozen

from mstar_core.errors import RequestError, Words

GREEDY_BELOW = 1e-5
"""A temperature below this picks the likeliest token."""
MAX_LOGPROBS = 20
MAX_BIASES = 1024
"""Token ids that one request may bias."""
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_PLAIN = frozenset({int, float, str, type(None)})
"""Most values are of these, and to ask what else one is takes longer."""

Check = Callable[[Any, "Attribute[Any]", Any], None]


def plain(value: Any) -> Any:
    """A number of numpy as Python's own; all else, ``True`` too, as it is."""
    if type(value) in _PLAIN or isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _plain_biases(value: Any) -> Any:
    return {plain(k): plain(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _number(low: float, high: float, above: bool = False) -> Check:
    """A finite int or float from ``low`` (not ``low`` itself with ``above``) to ``high``."""
    want = (
        f"a finite number {'above' if above else 'from'} {low} {'and at most' if above else 'to'}"
    )

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if _is_number(value) and low <= value <= high and not (above and value == low):
            return
        raise RequestError(
            where=attribute.name,
            got=value,
            want=f"{want} {high}",
            fix="send a number in that range",
        )

    return check


def _whole(low: int, high: int, optional: bool = False) -> Check:
    """A plain integer from ``low`` to ``high``, or None with ``optional``."""
    want = f"a whole number from {low} to {high}" + (", or null" if optional else "")

    def check(owner: Any, attribute: Attribute[Any], value: Any) -> None:
        if (optional and value is None) or (type(value) is int and low <= value <= high):
            return
        raise RequestError(
            where=attribute.name, got=value, want=want, fix="send a whole number in that range"
        )

    return check


def _biases(owner: Any, attribute: Attribute[Any], value: Any) -> None:
    """Token id → bias from -100 to 100; whether an id is in the vocabulary is asked later."""
    if not isinstance(value, Mapping):
        raise RequestError(
            where=attribute.name,
            got=value,
            want="token ids mapped to numbers from -100 to 100",
            fix="send for example {42: -100}",
        )
    if len(value) > MAX_BIASES:
        raise RequestError(
            where=attribute.name,
            got=Words(f"{len(value)} token ids"),
            want=f"at most {MAX_BIASES}",
            fix="bias fewer tokens",
        )
    for token, bias in value.items():
        if type(token) is not int or token < 0:
            raise RequestError(
                where=attribute.name,
                got=token,
                want="token ids: whole numbers of at least 0",
                fix="name tokens by their ids",
            )
        if not (_is_number(bias) and -100 <= bias <= 100):
            raise RequestError(
                where=f"{attribute.name}[{token}]",
                got=bias,
                want="a finite number from -100 to 100",
                fix="send a number in that range",
            )


@frozen(kw_only=True)
class SamplingSettings:
    """The sampling settings of one request. Raises RequestError naming the field."""

    temperature: float = field(default=0.0, converter=plain, validator=_number(0, 100))
    """Logits are divided by it; below 1e-5 the likeliest token is taken."""
    top_k: int = field(default=0, converter=plain, validator=_whole(-1, INT64_MAX))
    """Keep the k likeliest tokens; 0 and -1 keep all, more than the vocabulary is all."""
    top_p: float = field(default=1.0, converter=plain, validator=_number(0, 1, above=True))
    """Keep the fewest likeliest tokens whose probabilities reach it."""
    min_p: float = field(default=0.0, converter=plain, validator=_number(0, 1))
    """Keep tokens at least this fraction as likely as the likeliest."""
    repetition_penalty: float = field(default=1.0, converter=plain, validator=_number(0.01, 10))
    """Divides positive and multiplies negative logits of tokens in the prompt or generated."""
    presence_penalty: float = field(default=0.0, converter=plain, validator=_number(-2, 2))
    """Subtracted once from the logit of each generated token."""
    frequency_penalty: float = field(default=0.0, converter=plain, validator=_number(-2, 2))
    """Subtracted once per time that a token was generated."""
    seed: int | None = field(
        default=None, converter=plain, validator=_whole(INT64_MIN, INT64_MAX, optional=True)
    )
    """Same seed, same tokens; null draws one."""
    logit_bias: Mapping[int, float] = field(
        factory=dict, converter=_plain_biases, validator=_biases
    )
    """Added to the logits of these token ids."""
    logprobs: int | None = field(
        default=None, converter=plain, validator=_whole(0, MAX_LOGPROBS, optional=True)
    )
    """How many of the likeliest tokens to report with each token; null reports none."""

    @property
    def is_greedy(self) -> bool:
        """Nothing is drawn: the likeliest token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def needs_row(self) -> bool:
        """Past tokens or a bias change the logits, so the request holds a penalty row."""
        return bool(
            self.repetition_penalty != 1
            or self.presence_penalty
            or self.frequency_penalty
            or self.logit_bias
        )
