"""The expositions of several API processes as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from mstar_core.serving.engine_metrics import NAMES

LARGEST = NAMES | {
    "mstar_build_info",
    "mstar_process_max_fds",
    "mstar_process_start_time_seconds",
}
"""Taken from whoever says most; everything else is summed."""


def merge(texts: Iterable[bytes]) -> bytes:
    """One exposition: counts, sums and buckets added; what all say alike, once."""
    return generate_latest(_Merged(texts))


class _Merged(CollectorRegistry, Collector):
    def __init__(self, texts: Iterable[bytes]) -> None:
        super().__init__(auto_describe=False)
        self._families: dict[str, Metric] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for text in texts:
            for family in text_string_to_metric_families(text.decode("utf-8")):
                self._add(family)

    def collect(self) -> Iterator[Metric]:
        for name, family in self._families.items():
            metric = Metric(name, family.documentation, family.type)
            for (sample, labels), value in self._values[name].items():
                metric.add_sample(sample, dict(labels), value)
            yield metric

    def _add(self, family: Metric) -> None:
        self._families.setdefault(family.name, family)
        values = self._values.setdefault(family.name, {})
        for sample in family.samples:
            at = (sample.name, tuple(sample.labels.items()))
            known = values.get(at)
            if known is None:
                values[at] = sample.value
            elif family.name in LARGEST:
                values[at] = max(known, sample.value)
            else:
                values[at] = known + sample.value
