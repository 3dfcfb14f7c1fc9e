"""Logs, metrics and traces of standing processes: what they say, what they never say, and what they leave behind."""

from __future__ import annotations

import gc
import io
import json
import logging
import sys
import weakref

import pytest

from colonnade.errors import StudyError
from colonnade.privacy.ledger.caps import Left
from colonnade.standing import logs, traces
from colonnade.standing.metrics import AgentMetrics, HubMetrics
from colonnade.tidy import settle, tidy
from tests.support.errors import raises
from tests.support.standing import make

LOG = logging.getLogger("colonnade.standing.somewhere")


@pytest.fixture
def written():
    loggers = [logging.getLogger(name) for name in ("colonnade", "uvicorn")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    yield io.StringIO()
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers = handlers
        each.setLevel(level)
        each.propagate = propagate


def test_a_line_has_a_sentence_and_facts_as_json_or_as_text(written):
    logs.configure("json", stream=written)
    logs.note(LOG, logging.INFO, "study began", study="ab12", attempt=1, members=("bank", "shop"))
    told = json.loads(written.getvalue())
    expected = {"level": "info", "where": "standing.somewhere", "what": "study began", "study": "ab12", "attempt": 1}
    assert told.items() >= (expected | {"members": ["bank", "shop"]}).items()
    logs.configure("text", stream=written)
    logs.note(LOG, logging.DEBUG, "unsaid")
    logs.note(LOG, logging.WARNING, "gone", why="it left", study="ab12")
    assert written.getvalue().splitlines()[1].endswith('warning standing.somewhere: gone why="it left" study=ab12')
    logs.note(LOG, logging.INFO, "proposed", name="x\n2026 error: all is lost\x1b[2J" + "y" * 5000)
    *_, line = written.getvalue().splitlines()
    assert ("proposed" in line, "\x1b" in line, len(line) < 600) == (True, False, True), "of others: one short line"
    for name in ("token", "link", "key", "ids", "cell", "value"):  # what sounds like a secret
        with raises(ValueError, "VA164"):
            logs.note(LOG, logging.INFO, "made", **{name: "hush"})
    assert "hush" not in written.getvalue()


@pytest.mark.parametrize("log", [LOG, logging.getLogger("uvicorn.error")])
def test_an_error_is_logged_by_its_class_and_place_and_not_by_what_it_holds(log, written):
    logs.configure("json", stream=written)
    try:
        int("a cell of somebody")
    except ValueError:
        log.exception("stopped\n")
    told = json.loads(written.getvalue())
    assert (told["what"], told["error"], told["at"].startswith(__name__)) == ("stopped", "ValueError", True)
    assert "somebody" not in written.getvalue()


def lines(metrics):
    page, kind = metrics.page()
    assert kind.startswith("text/plain")
    return set(page.decode().splitlines())


def test_metrics_are_told_in_the_format_of_prometheus():
    pytest.importorskip("prometheus_client")
    metrics, hub = AgentMetrics(), HubMetrics()
    metrics.connected(True)
    metrics.studies({"waiting": 2, "done": 5})
    metrics.studies({"done": 6})
    metrics.attempt("finished")
    caps = [("analyst", 3.0, None, 1.5), ("coordinator", 1.0, 30, 0.75), ("coordinator", 2.0, 30, 0.75)]
    metrics.left(Left(who, epsilon, 1e-6, days, spent) for who, epsilon, days, spent in caps)
    metrics.assessed(0.2)
    metrics.scored(3)
    assert lines(metrics) >= {
        "colonnade_connected 1.0",
        'colonnade_studies{state="done"} 6.0',
        'colonnade_studies{state="waiting"} 0.0',
        'colonnade_epsilon_left{days="0",observer="analyst"} 1.5',
        'colonnade_epsilon_left{days="30",observer="coordinator"} 0.25',
        'colonnade_attempts_total{ended="finished"} 1.0',
        'colonnade_attempts_total{ended="lost"} 0.0',
        "colonnade_scores_total 3.0",
    }
    for carried, refused in ((1000, {"identity": 2}), (1500, {"identity": 2, "question": 1})):
        hub.relayed(carried)  # since its start
        hub.refused(refused)
    assert lines(hub) >= {
        "colonnade_relayed_bytes_total 1500.0",
        'colonnade_refused_total{why="identity"} 2.0',
        'colonnade_refused_total{why="question"} 1.0',
    }


def test_without_the_packages_nothing_is_counted_or_traced_and_a_wish_for_it_is_answered(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics = AgentMetrics()
    metrics.connected(True)
    metrics.studies({"done": 1})
    metrics.left([Left("analyst", 1.0, 1e-6, None, 0.0)])
    assert not metrics.counts
    assert b"colonnade[console]" in metrics.page()[0]
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    traces.past_check("ab", 0.1, "waiting")
    traces.past_attempt({}, "ab", 1)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    traces.configure()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with raises(StudyError, "ST549"):
        traces.configure()


def test_an_exporter_that_is_not_there_is_named(tmp_path, monkeypatch, in_this_process, written):
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    code, _, said = in_this_process("agent", make(tmp_path / "f").file("bank"))
    assert code
    assert "no exporter of traces is called 'carrier-pigeon' here" in said
    assert "Traceback" not in said


def test_spans_of_an_attempt_follow_from_its_record(monkeypatch):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processors = pytest.importorskip("opentelemetry.sdk.trace.export")
    kept, provider = export.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(processors.SimpleSpanProcessor(kept))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    moments = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:05+00:00"}
    phases = {"deal": {"wall": 1.5}, "open": {"wall": 2.0}}
    traces.past_attempt({**moments, "status": "finished", "rounds": 9, "phases": phases}, "ab12cd34ef", 2)
    traces.past_check("ab12cd34ef", 0.5, "waiting")
    traces.past_attempt({"started": "?"}, "ab", 1)  # a record that was cut short tells nothing
    deal, opened, whole, check = kept.get_finished_spans()
    assert (deal.name, opened.name, whole.name) == ("deal", "open", "attempt")
    assert deal.parent.span_id == opened.parent.span_id == whole.context.span_id
    assert [span.end_time - span.start_time for span in (deal, check)] == [1_500_000_000, 500_000_000]
    assert dict(whole.attributes)["colonnade.study"] == "ab12cd34"
    assert dict(check.attributes) == {"colonnade.study": "ab12cd34", "colonnade.state": "waiting"}


class Link:
    """Refers to itself, as a connection does that has ended."""

    def __init__(self):
        self.itself = self


def test_circles_go_after_a_study_in_a_process_that_has_settled():
    gc.disable()
    gc.unfreeze()
    try:
        early = weakref.ref(Link())
        tidy()
        assert early() is not None, "a look takes long as long as nothing is left out of it"
        settle()
        assert early() is None
        held = gc.get_freeze_count()
        assert held > 1000
        late = [weakref.ref(Link()) for _ in range(10)]
        tidy()
        assert not any(each() for each in late)
        assert len(gc.get_objects()) < held
    finally:
        gc.unfreeze()
        gc.enable()
