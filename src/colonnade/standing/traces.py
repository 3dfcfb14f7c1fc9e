"""Spans of checks, of attempts and of their phases, for OpenTelemetry; without the extra ``traces`` there are none.

Where they go is said as for any program with OpenTelemetry, by ``OTEL_TRACES_EXPORTER`` and ``OTEL_EXPORTER_*``. A
span has the first digits of a study's id, its attempt, states and counts, never data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from colonnade.errors import StudyError
from colonnade.harmless import harmless

SCOPE = "colonnade"
_EXPORTER, _EXPORTERS = "OTEL_TRACES_EXPORTER", "opentelemetry_traces_exporter"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP = {"grpc": ("otlp_proto_grpc", "otlp_proto_http"), "http/protobuf": ("otlp_proto_http",)}


def configure() -> None:
    """Send spans where the environment says; an error if it names what is not installed, nothing if it says nothing."""
    said = os.environ.get(_EXPORTER) or ("otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none")
    wanted = [name.strip() for name in said.split(",") if name.strip() not in ("", "none")]
    if not wanted:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise StudyError(
            f"the environment asks for traces ({_EXPORTER}), which need pip install 'colonnade[traces]' [ST549]"
        ) from None
    service = os.environ.get("OTEL_SERVICE_NAME", SCOPE)
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    for name in wanted:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)


def past_check(study: str, seconds: float, state: str) -> None:
    """The span of a check that has ended just now."""
    tracer = _tracer()
    if tracer is not None:
        ended = time.time_ns()
        facts = _named({"study": study[:8], "state": state})
        tracer.start_span("check", start_time=ended - int(seconds * 1e9), attributes=facts).end(ended)


def past_attempt(run: Mapping[str, Any], study: str, attempt: int) -> None:
    """The spans of an attempt that has ended, one for it and one for each phase, from its ``run.json``."""
    tracer = _tracer()
    began, ended = _nanoseconds(run.get("started")), _nanoseconds(run.get("ended"))
    if tracer is None or began is None or ended is None:
        return
    from opentelemetry.trace import set_span_in_context

    facts = {"study": study[:8], "attempt": attempt, "status": str(run.get("status")), "rounds": run.get("rounds", 0)}
    whole = tracer.start_span("attempt", start_time=began, attributes=_named(facts))
    context, at = set_span_in_context(whole), began
    for name, phase in run.get("phases", {}).items():
        seconds = phase.get("wall", 0.0) if isinstance(phase, Mapping) else 0.0
        inner = tracer.start_span(str(name), context, start_time=at, attributes=_named({"seconds": seconds}))
        at = min(ended, at + int(seconds * 1e9))
        inner.end(at)
    whole.end(ended)


def _exporter(name: str) -> Any:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    for called in _OTLP.get(protocol, (name,)) if name == "otlp" else (name,):
        for found in entry_points(group=_EXPORTERS, name=called):
            return found.load()()
    raise StudyError(
        f"no exporter of traces is called {harmless(name, 40)!r} here: install its package (for otlp, pip install "
        f"opentelemetry-exporter-otlp) or change {_EXPORTER} [ST550]"
    )


def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer(SCOPE)


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{SCOPE}.{name}": value for name, value in facts.items() if isinstance(value, str | int | float | bool)}


def _nanoseconds(at: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1e9)
    except (TypeError, ValueError):
        return None
