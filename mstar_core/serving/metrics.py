"""What ``/metrics`` says: one registry, every name in one place (``docs/metrics.md`` prints it).

Requests are observed once, at their end, so that no token costs anything here. Labels come from
closed sets only: paths of the route table, outcomes, codes, parts of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric

from mstar_core import __version__
from mstar_core.serving.engine_metrics import EngineCounts

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
RTF = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one API process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self.engine = EngineCounts()
        registry.register(self.engine)
        ProcessCollector(namespace="mstar", registry=registry)
        build = Gauge("mstar_build_info", "1, with the version", ["version"], registry=registry)
        build.labels(__version__).set(1)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"mstar_{name}", text, labels, registry=registry)

        def times(name: str, text: str, buckets: tuple[float, ...] = LONG) -> Histogram:
            return Histogram(f"mstar_{name}", text, buckets=buckets, registry=registry)

        self.requests = counter(
            "requests_total", "Requests that ended, by route and outcome", ("route", "outcome")
        )
        self.errors = counter("errors_total", "Requests that failed, by code", ("code",))
        self.open = Gauge(
            "mstar_requests_open", "Requests to the model inside the server", registry=registry
        )
        self.prompt = counter("prompt_tokens_total", "Prompt tokens of requests that ended")
        self.cached = counter("cached_tokens_total", "Prompt tokens that were served from cache")
        self.generated = counter("generation_tokens_total", "Tokens that requests got")
        self.audio = counter("audio_seconds_total", "Seconds of sound that was understood")
        self.spoken = counter("audio_generated_seconds_total", "Seconds of sound that was made")
        self.e2e = times("e2e_request_latency_seconds", "From arrival to the end of the answer")
        self.ttft = times("time_to_first_token_seconds", "From arrival to the first token")
        self.itl = times(
            "inter_token_latency_seconds",
            "Time between tokens of all choices: one value per request, its mean behind the first",
            SHORT,
        )
        self.queue = times(
            "request_queue_time_seconds", "At the engine's door, until the request was let in"
        )
        self.ttfa = times("time_to_first_audio_seconds", "From arrival to the first sound made")
        self.rtf = times("rtf", "Time of a request over the seconds of sound in or out", RTF)

    def ended(self, fields: Mapping[str, Any], *, is_model_route: bool) -> None:
        """Count a request by its completion line; those to other routes have one label."""
        route = fields["route"] if is_model_route else "other"
        self.requests.labels(route, fields["outcome"]).inc()
        if "code" in fields:
            self.errors.labels(fields["code"]).inc()
        if not is_model_route:
            return
        total_s = fields["total_ms"] / 1000
        if fields["status"] == 200:
            self.e2e.observe(total_s)
        self.prompt.inc(fields.get("prompt_tokens", 0))
        self.cached.inc(fields.get("cached_tokens", 0))
        self.generated.inc(fields.get("output_tokens", 0))
        self._observe_times(fields, total_s)
        self._observe_sound(fields, total_s)

    def render(self, stats: Mapping[str, Any], num_open: int) -> bytes:
        """The exposition, with the engine's ``stats`` and the open requests as they are now."""
        self.engine.stats = stats
        self.open.set(num_open)
        return generate_latest(_Plain(self.registry))

    def _observe_times(self, fields: Mapping[str, Any], total_s: float) -> None:
        if (queue_ms := fields.get("queue_ms")) is not None:
            self.queue.observe(queue_ms / 1000)
        if (ttft_ms := fields.get("ttft_ms")) is None:
            return
        self.ttft.observe(ttft_ms / 1000)
        if (tokens := fields.get("output_tokens", 0)) > 1:
            self.itl.observe(max(0.0, total_s - ttft_ms / 1000) / (tokens - 1))

    def _observe_sound(self, fields: Mapping[str, Any], total_s: float) -> None:
        if (ttfa_ms := fields.get("ttfa_ms")) is not None:
            self.ttfa.observe(ttfa_ms / 1000)
        heard, made = fields.get("audio_s", 0.0), fields.get("audio_out_s", 0.0)
        self.audio.inc(heard)
        self.spoken.inc(made)
        if (made or heard) > 0 and fields["status"] == 200:
            self.rtf.observe(total_s / (made or heard))


class _Plain(CollectorRegistry):
    """A registry without the ``_created`` series, which nobody reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(auto_describe=False)
        self._whole = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._whole.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
