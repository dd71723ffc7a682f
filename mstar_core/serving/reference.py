"""The pages that are written from what is there: ``docs/metrics.md`` and ``docs/errors.md``."""

from __future__ import annotations

from mstar_core.serving.errors import CODES
from mstar_core.serving.metrics import Metrics

METRICS_HEAD = """# Metrics

`GET /metrics` answers in Prometheus' text format. This page is written from the registry
(`mstar_core/serving/reference.py`); a test compares the two. A dashboard for Grafana is
`docs/grafana.json`.

A request is observed once, at its end, so a token costs nothing here; for the same reason
`mstar_inter_token_latency_seconds` has one value per request, its mean. Labels come from closed
sets: paths of the route table (`other` for what is no route of the model), outcomes, codes, pools
of the engine. All there can be are at most 200 series, buckets not counted. What the engine says is
as of its last heartbeat. With several API processes, one answers for all: counts and times are
summed, and the engine is counted once.

| name | kind | labels | what it is |
|---|---|---|---|
"""
ERRORS_HEAD = """# Errors

Every answer that is no success has this body, and an error inside a stream is an event with the
same, behind which the connection ends without `[DONE]`:

```json
{"error": {"message": "…", "type": "…", "param": null, "code": "…"}}
```

`code` is stable: none is renamed. `message` is for people and may change; `param` names the field,
where one field is at fault. Every answer has `x-request-id` (yours, where it is sane), under which
the log has more. `429` and `503` have `Retry-After` in seconds where the server can tell.

| code | status | type | when |
|---|---|---|---|
"""
WHEN = {
    "invalid_json": "the body is not JSON, or not UTF-8",
    "invalid_value": "a field has a value that is not allowed",
    "missing_field": "a field is missing that the route needs",
    "unsupported_field": "a field of the API that this server does not have; never ignored",
    "unknown_field": "a field that nobody knows, under `server.strict`",
    "limit_exceeded": "the request asks for more than a limit allows any request",
    "context_length_exceeded": "prompt and answer together do not fit the model's context",
    "empty_prompt": "there is nothing to answer",
    "invalid_audio": "the sound cannot be read",
    "audio_too_long": "longer than the model hears, or than `limits.max_audio_seconds`",
    "media_not_allowed": "sound by URL, where that is off, or from a host that is not listed",
    "invalid_host": "without keys: `Host` is no name of this server",
    "origin_not_allowed": "without keys: a page of another origin, which is not listed",
    "invalid_api_key": "no key, or one that is not known",
    "route_not_found": "no route has this path",
    "route_not_offered": "the model that is served cannot do this",
    "model_not_found": "`model` is not the one that is served",
    "request_not_found": "nothing to cancel: no open request of this key has the id",
    "method_not_allowed": "the path takes other methods; see `Allow`",
    "request_timeout": "the body, or the whole request, took too long",
    "body_too_large": "the body is larger than `limits.max_body_bytes`",
    "unsupported_media_type": "the body's `Content-Type` is not the route's",
    "rate_limit_exceeded": "this key has too many open requests, or began too many this minute",
    "overloaded": "open requests, or those that wait in the engine, are all the server takes",
    "cancelled": "the request was cancelled",
    "client_too_slow": "the client did not read what waited for it",
    "request_failed": "the model failed on this request; others go on",
    "internal_error": "a bug of the server; its log has the traceback",
    "not_ready": "the server is starting, or starts its engine again; see `/ready`",
    "draining": "the server is about to end",
    "engine_restarted": "the engine ended while it worked on this request; send it again",
}
"""Code → when it is given."""


def metrics_reference() -> str:
    """The page of metrics."""
    rows = []
    for metric in sorted(Metrics().registry.collect(), key=lambda metric: metric.name):
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = ", ".join(f"`{name}`" for name in _LABELS.get(metric.name, ()))
        rows.append(f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |\n")
    return METRICS_HEAD + "".join(rows)


def errors_reference() -> str:
    """The page of errors."""
    rows = [f"| `{c}` | {s} | `{t}` | {WHEN[c]} |\n" for c, (s, t) in CODES.items()]
    return ERRORS_HEAD + "".join(rows)


_LABELS = {
    "mstar_requests": ("route", "outcome"),
    "mstar_errors": ("code",),
    "mstar_build_info": ("version",),
    "mstar_resource_usage_ratio": ("resource",),
}
