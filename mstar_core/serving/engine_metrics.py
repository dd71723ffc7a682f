"""The engine's own counts as metrics, from the last ``Link.stats``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

GAUGES = {
    "mstar_requests_running": ("running", "Requests that the engine runs"),
    "mstar_requests_waiting": ("waiting", "Requests that wait for room in the engine"),
    "mstar_waiting_tokens": ("waiting_tokens", "Tokens that waiting requests ask for"),
    "mstar_steps_in_flight": ("in_flight", "Steps that were launched and not yet read"),
}
"""Name → (its key in the statistics, what it is)."""
COUNTERS = {
    "mstar_engine_offloaded": (
        "offload.offloads",
        "Times that a request gave its memory up and was copied out",
    ),
    "mstar_engine_restarts": ("restarts", "Times that the engine was started again"),
    "mstar_engine_recomputed": (
        "recomputed",
        "Times that a request gave its memory up and was run again",
    ),
}
USAGE = "mstar_resource_usage_ratio"
NAMES = frozenset({*GAUGES, *COUNTERS, USAGE})
"""What each API process says alike, since they share the engine."""


class EngineCounts(Collector):
    """Reads ``stats`` whenever it is collected; what the engine did not say reads 0."""

    def __init__(self) -> None:
        self.stats: Mapping[str, Any] = {}

    def collect(self) -> Iterator[Metric]:
        for name, (key, text) in GAUGES.items():
            yield GaugeMetricFamily(name, text, value=self._number(key))
        for name, (key, text) in COUNTERS.items():
            yield CounterMetricFamily(name, text, value=self._number(key))
        yield self._usage()

    def _number(self, key: str) -> float:
        value: Any = self.stats
        for part in key.split("."):
            value = value.get(part, 0) if isinstance(value, Mapping) else 0
        return float(value) if isinstance(value, int | float) else 0.0

    def _usage(self) -> Metric:
        """Of every pool: the share that requests hold, from 0 to 1 (KV pages, state slots, …)."""
        text = "Share of a pool of the engine that is held: pages, slots, rows"
        family = GaugeMetricFamily(USAGE, text, labels=["resource"])
        for resource, (free, total) in self.stats.get("held", {}).items():
            family.add_metric([resource], 1 - free / total if total else 0.0)
        return family
