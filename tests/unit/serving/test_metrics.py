"""The metrics: names, labels from closed sets, sums over processes, and the pages about them."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mstar_core.serving.completion_log import OUTCOMES
from mstar_core.serving.errors import CODES
from mstar_core.serving.merged_metrics import merge
from mstar_core.serving.metrics import Metrics
from mstar_core.serving.reference import metrics_reference
from mstar_core.serving.routes.table import all_routes

STATS = {
    "running": 2,
    "waiting": 1,
    "waiting_tokens": 40,
    "in_flight": 1,
    "restarts": 1,
    "recomputed": 3,
    "offload": {"offloads": 5},
    "held": {"text.kv pages": (25, 100), "text.state slots": (0, 0)},
}


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def ended(metrics, **fields):
    line = {"route": "/v1/do", "status": 200, "outcome": "stop", "total_ms": 500.0, **fields}
    metrics.ended(line, is_model_route=True)


def test_a_request_is_counted_by_its_completion_line():
    metrics = Metrics()
    ended(
        metrics,
        prompt_tokens=10,
        cached_tokens=4,
        output_tokens=5,
        ttft_ms=100.0,
        queue_ms=20.0,
    )
    found = samples(metrics.render(STATS, 3))
    assert found["mstar_requests_total", "/v1/do", "stop"] == 1
    assert found["mstar_prompt_tokens_total",] == 10
    assert found["mstar_cached_tokens_total",] == 4
    assert found["mstar_generation_tokens_total",] == 5
    assert found["mstar_e2e_request_latency_seconds_sum",] == 0.5
    assert found["mstar_time_to_first_token_seconds_sum",] == 0.1
    assert found["mstar_inter_token_latency_seconds_sum",] == pytest.approx(0.1)
    assert found["mstar_request_queue_time_seconds_sum",] == 0.02
    assert found["mstar_requests_open",] == 3


def test_sound_is_counted_in_seconds_and_in_times_of_them():
    metrics = Metrics()
    ended(metrics, audio_s=10.0)
    ended(metrics, audio_out_s=2.0, ttfa_ms=50.0)
    found = samples(metrics.render({}, 0))
    assert found["mstar_audio_seconds_total",] == 10
    assert found["mstar_audio_generated_seconds_total",] == 2
    assert found["mstar_rtf_sum",] == pytest.approx(0.05 + 0.25)
    assert found["mstar_time_to_first_audio_seconds_sum",] == 0.05


def test_a_failed_request_has_a_code_and_no_latency():
    metrics = Metrics()
    ended(metrics, status=429, outcome="rejected", code="overloaded")
    found = samples(metrics.render({}, 0))
    assert found["mstar_errors_total", "overloaded"] == 1
    assert found["mstar_e2e_request_latency_seconds_count",] == 0


def test_the_engine_is_told_from_its_statistics():
    found = samples(Metrics().render(STATS, 0))
    assert found["mstar_requests_running",] == 2
    assert found["mstar_requests_waiting",] == 1
    assert found["mstar_engine_restarts_total",] == 1
    assert found["mstar_engine_recomputed_total",] == 3
    assert found["mstar_engine_offloaded_total",] == 5
    assert found["mstar_resource_usage_ratio", "text.kv pages"] == 0.75
    assert found["mstar_resource_usage_ratio", "text.state slots"] == 0.0


@pytest.mark.parametrize("stats", [{}, {"running": None, "waiting": "many"}])
def test_statistics_that_are_not_there_read_0(stats):
    assert samples(Metrics().render(stats, 0))["mstar_requests_running",] == 0


def everything(metrics):
    """Every series that there can be of the shipped routes, with ten pools."""
    routes = {r.path for r in all_routes() if r.capability is not None}
    for route in sorted(routes | {"other"}):
        for outcome in OUTCOMES:
            line = {"route": route, "status": 200, "outcome": outcome, "total_ms": 1.0}
            metrics.ended(line, is_model_route=route != "other")
    for code in CODES:
        ended(metrics, route=sorted(routes)[0], code=code)
    held = {f"node.pool{i} pages": (1, 2) for i in range(10)}
    return metrics.render({**STATS, "held": held}, 0)


def test_all_series_there_can_be_are_at_most_200_without_buckets():
    found = samples(everything(Metrics()))
    assert len([at for at in found if not at[0].endswith("_bucket")]) <= 200


def test_a_path_that_nobody_declared_is_no_label(rig):
    server = rig()
    for path in ("/a", "/b", "/v1/models/x"):
        server.ask(path)
    server.ask("/a", method="BREW")
    text = server.ask("/metrics").body.decode()
    assert set(re.findall(r'route="([^"]*)"', text)) == {"other"}


def test_the_route_answers_in_prometheus_format(rig, standing_link):
    told = rig(link=standing_link(stats=STATS)).ask("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert samples(told.body)["mstar_requests_running",] == 2


def test_expositions_of_processes_are_summed_and_the_engine_counted_once():
    one, two = Metrics(), Metrics()
    ended(one, output_tokens=5, ttft_ms=100.0)
    ended(two, output_tokens=7, ttft_ms=300.0)
    ended(two, route="/v1/other", output_tokens=1)
    parts = [one.render(STATS, 1), two.render(STATS, 2)]
    merged = samples(merge(parts))
    assert merged["mstar_generation_tokens_total",] == 13
    assert merged["mstar_requests_open",] == 3
    assert merged["mstar_requests_running",] == 2
    assert merged["mstar_resource_usage_ratio", "text.kv pages"] == 0.75
    assert merged["mstar_time_to_first_token_seconds_sum",] == pytest.approx(0.4)
    assert merged["mstar_time_to_first_token_seconds_bucket", "0.1"] == 1
    assert merged["mstar_time_to_first_token_seconds_bucket", "+Inf"] == 2
    assert merged["mstar_requests_total", "/v1/other", "stop"] == 1
    assert set(merged) >= set(samples(parts[0])) | set(samples(parts[1]))


def test_an_exposition_alone_stays_as_it_is():
    metrics = Metrics()
    ended(metrics, output_tokens=5)
    text = metrics.render(STATS, 1)
    assert samples(merge([text])) == samples(text)


def test_the_page_about_metrics_is_what_the_registry_says(root):
    assert (root / "docs/metrics.md").read_text(encoding="utf-8") == metrics_reference()


def test_the_dashboard_asks_for_names_that_are_there(root):
    dashboard = json.loads((root / "docs/grafana.json").read_text(encoding="utf-8"))
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]
    names = {at[0] for at in samples(everything(Metrics()))}
    used = {name for expr in asked for name in re.findall(r"mstar_\w+", expr)}
    assert len(asked) >= 10
    assert used - names == set()
