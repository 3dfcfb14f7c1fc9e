"""What standing processes say of themselves: lines of a log, metrics for Prometheus, and spans for OpenTelemetry.

None of them holds a cell, a key, a link or a token, nor the name of a person or a column.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Any, Literal, TextIO, get_args

from colonnade.errors import StudyError
from colonnade.federation import agent_store, proposal_store
from colonnade.federation.statements import AttemptEnd
from colonnade.privacy.ledger.caps import RemainingBudget
from colonnade.sanitize import sanitize

LogStyle = Literal["text", "json"]
_FACTS_FIELD = "colonnade_facts"
_NEVER = frozenset({"cell", "cells", "id", "ids", "key", "link", "password", "row", "rows", "secret", "token", "value"})
_LONGEST = 300


def log_event(log: logging.Logger, level: int, what: str, **facts: Any) -> None:
    """Log one event; facts are plain values, and none of what nobody may read."""
    if secret := _NEVER & facts.keys():
        raise ValueError(f"{', '.join(sorted(secret))} must not be logged [VA164]")
    log.log(level, what, extra={_FACTS_FIELD: facts})


def configure_logging(style: LogStyle = "text", level: str = "info", stream: TextIO | None = None) -> logging.Handler:
    """Send what Colonnade logs to a stream, by default standard error; returns the handler.

    What the server of the console has to complain about goes there too, in the same form.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_EventFormatter(style))
    for name, least in (("colonnade", level.upper()), ("uvicorn", "WARNING")):
        found = logging.getLogger(name)
        for former in list(found.handlers):
            found.removeHandler(former)
        found.addHandler(handler)
        found.setLevel(least)
        found.propagate = False
    return handler


class _EventFormatter(logging.Formatter):
    """Time, level, where, what, and the facts: as one object a line, or as text.

    ``2026-01-31T12:00:00.000+00:00 info agent: study began study=ab12 attempt=1``.
    """

    def __init__(self, style: LogStyle) -> None:
        super().__init__()
        self._as_json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = _record_fields(record)
        facts = {name: _plain_value(value) for name, value in getattr(record, _FACTS_FIELD, {}).items()}
        if self._as_json:
            return json.dumps(told | facts, ensure_ascii=False)
        named = "".join(f" {name}={_quote(value)}" for name, value in facts.items())
        return f"{told['time']} {told['level']} {told['where']}: {told['what']}{named}"


def _record_fields(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    where = record.name.removeprefix("colonnade.")
    told = {
        "time": at,
        "level": record.levelname.lower(),
        "where": where,
        "what": sanitize(record.getMessage().strip()),
    }
    # A traceback shows lines of code and no values, and only where an error was not foreseen.
    if record.exc_info and record.exc_info[0] is not None:
        told["error"] = record.exc_info[0].__name__
        last = record.exc_info[2]
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is not None:
            told["at"] = f"{last.tb_frame.f_globals.get('__name__', '?')}:{last.tb_lineno}"
    return told


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_value(each) for each in value]
    return sanitize(value, _LONGEST)


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (not text or " " in text) else text


PREFIX = "colonnade"
_WHY_REFUSED = ("identity", "resource_exhausted", "not_found", "aborted", "invalid_argument", "question")


class _NoMetric:
    """A metric where nothing is counted."""

    def _ignore(self, *_: object) -> _NoMetric:
        return self

    labels = set = inc = observe = clear = _ignore


class ProcessMetrics:
    """What agents and hubs both count: proposals by state, and attempts by how they ended."""

    states: Sequence[str]

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError:
            self._prometheus: Any = None
        else:
            self._prometheus = prometheus_client
            self._registry, self._private = prometheus_client.CollectorRegistry(), prometheus_client.CollectorRegistry()
            prometheus_client.ProcessCollector(registry=self._registry)
        self._studies = self._metric("Gauge", "studies", "Proposals by state", "state")
        self.attempts = self._counter("attempts", "Attempts by how they ended", "ended", get_args(AttemptEnd))

    def _metric(self, kind: str, name: str, what: str, *labels: str, private: bool = False, **settings: Any) -> Any:
        """A metric of one of the kinds of Prometheus; a private one is for those who show a token."""
        if self._prometheus is None:
            return _NoMetric()
        make = getattr(self._prometheus, kind)
        registry = self._private if private else self._registry
        return make(name, what, labels, namespace=PREFIX, registry=registry, **settings)

    def _counter(self, name: str, what: str, label: str, values: Iterable[str], *, private: bool = False) -> Any:
        """A metric that only grows, by the values of one label."""
        made = self._metric("Counter", name, what, label, private=private)
        for value in values:
            made.labels(value)
        return made

    def count_studies(self, by_state: Mapping[str, int]) -> None:
        """How many proposals are in which state; states that are not named have none."""
        for state in self.states:
            self._studies.labels(state).set(by_state.get(state, 0))

    def page(self, *, whole: bool = False) -> tuple[bytes, str]:
        """The metrics as text, and its content type; the whole page is for those who show a token.

        Bytes and scores grow with the rows of a study, and what is left of caps names observers.
        """
        if self._prometheus is None:
            return b"# pip install 'colonnade[console]' to count\n", "text/plain; charset=utf-8"
        shown = (self._registry, self._private) if whole else (self._registry,)
        return b"".join(map(self._prometheus.generate_latest, shown)), str(self._prometheus.CONTENT_TYPE_LATEST)


class AgentMetrics(ProcessMetrics):
    """The metrics of an agent."""

    states = agent_store.STATES

    def __init__(self) -> None:
        super().__init__()
        self.connected = self._metric("Gauge", "connected", "1 while the hub can be reached")
        self.assessment_seconds = self._metric(
            "Histogram",
            "assessment_seconds",
            "How long it took to check a proposal",
            buckets=(0.1, 0.3, 1, 3, 10, 30, 100),
        )
        what = "What is left of a cap, by observer and by days (0: for ever)"
        self._left = self._metric("Gauge", "epsilon_left", what, "observer", "days", private=True)
        what = "Scores that were told to this party, or that it answered"
        self.scores = self._metric("Counter", "scores", what, private=True)
        ways, what = ("direct", "hub"), "Sealed bytes that studies sent, by way"
        self.sent = self._counter("sent_bytes", what, "way", ways, private=True)

    def show_left(self, caps: Iterable[RemainingBudget]) -> None:
        """What is left of each cap; where several hold for one observer, of the one that leaves least."""
        found: dict[tuple[str, str], float] = {}
        for cap in caps:
            key = cap.who, f"{cap.days or 0:g}"
            found[key] = min(cap.remaining, found.get(key, cap.remaining))
        self._left.clear()
        for labels, epsilon in found.items():
            self._left.labels(*labels).set(epsilon)


class HubMetrics(ProcessMetrics):
    """The metrics of a hub."""

    states = proposal_store.STATES

    def __init__(self) -> None:
        super().__init__()
        self.members = self._metric("Gauge", "members_present", "Members that are connected to the hub")
        self.open_studies = self._metric("Gauge", "open_studies", "Studies that run through the hub now")
        self.lanes = self._metric("Gauge", "lanes", "Lanes of studies that are open at the hub now")
        self._relayed = self._metric("Counter", "relayed_bytes", "Bytes passed on between participants", private=True)
        self._refused = self._counter("refused", "Calls that were refused, by why", "why", _WHY_REFUSED)
        self._relayed_so_far, self._refused_so_far = 0, dict[str, int]()

    def count_traffic(self, relayed: int, refused: Mapping[str, int]) -> None:
        """How many bytes were passed on, and how many calls refused, by why; both since the start."""
        self._relayed.inc(relayed - self._relayed_so_far)
        for why, number in refused.items():
            self._refused.labels(why).inc(number - self._refused_so_far.get(why, 0))
        self._relayed_so_far, self._refused_so_far = relayed, dict(refused)


_EXPORTER, _EXPORTERS = "OTEL_TRACES_EXPORTER", "opentelemetry_traces_exporter"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP = {"grpc": ("otlp_proto_grpc", "otlp_proto_http"), "http/protobuf": ("otlp_proto_http",)}


def configure_tracing() -> None:
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
    service = os.environ.get("OTEL_SERVICE_NAME", PREFIX)
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    for name in wanted:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)


def trace_check(study: str, seconds: float, state: str) -> None:
    """The span of a check that has ended just now."""
    tracer = _tracer()
    if tracer is not None:
        ended = time.time_ns()
        facts = _span_attributes({"study": study[:8], "state": state})
        tracer.start_span("check", start_time=ended - int(seconds * 1e9), attributes=facts).end(ended)


def trace_attempt(run: Mapping[str, Any], study: str, attempt: int) -> None:
    """The spans of an attempt that has ended, one for it and one for each phase, from its ``run.json``."""
    tracer = _tracer()
    began, ended = _nanoseconds(run.get("started")), _nanoseconds(run.get("ended"))
    if tracer is None or began is None or ended is None:
        return
    from opentelemetry.trace import set_span_in_context

    facts = {"study": study[:8], "attempt": attempt, "status": str(run.get("status")), "rounds": run.get("rounds", 0)}
    whole = tracer.start_span("attempt", start_time=began, attributes=_span_attributes(facts))
    context, at = set_span_in_context(whole), began
    for name, phase in run.get("phases", {}).items():
        seconds = phase.get("wall", 0.0) if isinstance(phase, Mapping) else 0.0
        inner = tracer.start_span(str(name), context, start_time=at, attributes=_span_attributes({"seconds": seconds}))
        at = min(ended, at + int(seconds * 1e9))
        inner.end(at)
    whole.end(ended)


def _exporter(name: str) -> Any:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    for called in _OTLP.get(protocol, (name,)) if name == "otlp" else (name,):
        for found in entry_points(group=_EXPORTERS, name=called):
            return found.load()()
    raise StudyError(
        f"no exporter of traces is called {sanitize(name, 40)!r} here: install its package (for otlp, pip install "
        f"opentelemetry-exporter-otlp) or change {_EXPORTER} [ST550]"
    )


def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer(PREFIX)


def _span_attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{PREFIX}.{name}": value for name, value in facts.items() if isinstance(value, str | int | float | bool)}


def _nanoseconds(at: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1e9)
    except (TypeError, ValueError):
        return None
