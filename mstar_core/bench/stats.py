"""Figures out of samples, by the field's own definitions. Pure: no clock, no socket.

Times are milliseconds unless a name says otherwise; ``docs/bench.md`` says each definition in full.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen


@frozen(kw_only=True)
class Sample:
    """One request as its client saw it. Seconds, of one clock."""

    due_s: float
    """When it should have been sent: its place in an open loop, else when it was sent."""
    sent_s: float
    end_s: float
    """The last byte of the answer."""
    first_s: float | None = None
    """The first text, or the first sound."""
    gaps_s: Sequence[float] = field(factory=list)
    """Between one chunk with text and the next."""
    chunks: int = 0
    """Those with text."""
    events: int = 0
    """All of them."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    """As the server counted them; where it did not, the chunks."""
    audio_s: float = 0.0
    """Seconds of sound, heard or made."""
    error: str | None = None
    """A status and code, or what became of the connection; None where all is well."""


@frozen(kw_only=True)
class Summary:
    """A distribution."""

    count: int
    mean: float
    median: float
    p90: float
    p99: float
    max: float


@frozen(kw_only=True)
class Figures:
    """What a run of requests came to. A figure that the route does not have is None."""

    requests: int
    failed: int
    errors: Mapping[str, int]
    duration_s: float
    """First request sent, or due, to last byte."""
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    events_per_s: float
    mean_prompt_tokens: float
    mean_output_tokens: float
    tokens_per_chunk: float | None
    ttft_ms: Summary | None
    tpot_ms: Summary | None
    itl_ms: Summary | None
    e2el_ms: Summary | None
    late_ms: Summary | None
    """How long after it was due a request was sent: the load generator's own delay."""
    rtf: Summary | None = None
    """Seconds of work per second of sound."""
    audio_s_per_s: float | None = None
    goodput_per_s: float | None = None
    """Requests per second that kept every promise that was asked for."""
    client_busy: float | None = None
    """Of one processor, taken by the busiest process of the load generator; near 1 it is the
    load generator that is measured."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the sorted ``values`` lie, linear between neighbours."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def summary(values: Iterable[float]) -> Summary | None:
    """The distribution of ``values``; None of none."""
    found = sorted(values)
    if not found:
        return None
    return Summary(
        count=len(found),
        mean=math.fsum(found) / len(found),
        median=percentile(found, 0.5),
        p90=percentile(found, 0.9),
        p99=percentile(found, 0.99),
        max=found[-1],
    )


def ttft_ms(sample: Sample) -> float | None:
    """Time to the first text (or sound), from when the request was due."""
    return None if sample.first_s is None else (sample.first_s - sample.due_s) * 1e3


def e2el_ms(sample: Sample) -> float:
    """Time to the end of the answer, from when the request was due."""
    return (sample.end_s - sample.due_s) * 1e3


def tpot_ms(sample: Sample) -> float | None:
    """Time per output token behind the first: ``(E2EL - TTFT) / (output tokens - 1)``."""
    if sample.first_s is None or sample.output_tokens < 2:
        return None
    return (sample.end_s - sample.first_s) * 1e3 / (sample.output_tokens - 1)


def keeps(sample: Sample, promises: Mapping[str, float]) -> bool:
    """Whether a request kept every promise, milliseconds by ``ttft``, ``tpot`` or ``e2el``."""
    found = {"ttft": ttft_ms(sample), "tpot": tpot_ms(sample), "e2el": e2el_ms(sample)}
    values = ((found[name], limit) for name, limit in promises.items())
    return all(value is None or value <= limit for value, limit in values)


def figures(samples: Sequence[Sample], promises: Mapping[str, float] | None = None) -> Figures:
    """What ``samples`` came to; times are those of requests that did not fail."""
    good = [sample for sample in samples if sample.error is None]
    begin = min((min(s.due_s, s.sent_s) for s in samples), default=0.0)
    seconds = max((s.end_s for s in samples), default=0.0) - begin
    per_s = 1 / seconds if seconds > 0 else 0.0
    prompt, output = (sum(getattr(s, n) for s in good) for n in ("prompt_tokens", "output_tokens"))
    chunks, audio_s = sum(s.chunks for s in good), math.fsum(s.audio_s for s in good)
    kept = None if promises is None else sum(keeps(s, promises) for s in good) * per_s
    return Figures(
        requests=len(samples),
        failed=len(samples) - len(good),
        errors=dict(Counter(s.error for s in samples if s.error is not None)),
        duration_s=seconds,
        requests_per_s=len(good) * per_s,
        output_tokens_per_s=output * per_s,
        total_tokens_per_s=(prompt + output) * per_s,
        events_per_s=sum(s.events for s in good) * per_s,
        mean_prompt_tokens=prompt / max(len(good), 1),
        mean_output_tokens=output / max(len(good), 1),
        tokens_per_chunk=output / chunks if chunks else None,
        ttft_ms=summary(v for s in good if (v := ttft_ms(s)) is not None),
        tpot_ms=summary(v for s in good if (v := tpot_ms(s)) is not None),
        itl_ms=summary(gap * 1e3 for s in good for gap in s.gaps_s),
        e2el_ms=summary(e2el_ms(s) for s in good),
        late_ms=summary((s.sent_s - s.due_s) * 1e3 for s in samples),
        rtf=summary((s.end_s - s.due_s) / s.audio_s for s in good if s.audio_s > 0),
        audio_s_per_s=audio_s * per_s if audio_s else None,
        goodput_per_s=kept,
    )


@frozen(kw_only=True)
class Spread:
    """One figure of several rounds."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median, least and greatest of at least one value."""
    found = sorted(values)
    return Spread(median=percentile(found, 0.5), low=found[0], high=found[-1])


def alternated(rounds: int) -> str:
    """The order of two arms over ``rounds``, each round both: ``ABBA…``, so that drift cancels."""
    return "".join("AB" if each % 2 == 0 else "BA" for each in range(rounds))
