"""Logs, metrics and traces of standing processes, what they leave behind, and what is shipped for operators."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import pytest

from colonnade.errors import StudyError
from colonnade.privacy.ledger.caps import Left
from colonnade.standing import logs, traces
from colonnade.standing.metrics import AgentMetrics, HubMetrics
from colonnade.tidy import settle, tidy
from tests.support.errors import raises
from tests.support.ports import free_port
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


# --- what is shipped for operators: units, a container, and a study as an ordinary user on a read-only root

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
USER = 10_001
ALONE = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 none {data}
{reachable}
cp -r {example} {data}/example && chown -R {user} {data}/example
mount -o remount,bind,ro /
! touch {python_home}/written 2> /dev/null
cd {data}/example
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all \
    env HOME={data} TMPDIR={data} PYTHONDONTWRITEBYTECODE=1 {python} -m colonnade run STUDY.toml --json
"""


def reachable(data):
    """Lines that let another user reach the interpreter, where it lies in a folder that is closed to others."""
    base = Path(sys.base_prefix).resolve()
    closed = [folder for folder in reversed(base.parents) if not folder.stat().st_mode & 0o001]
    if not closed:
        return ""
    lines = [f"mkdir {data}/base", f"mount --bind {base} {data}/base", f"mount -t tmpfs -o mode=755 none {closed[0]}"]
    return "\n".join([*lines, f"mkdir -p {base}", f"mount --bind {data}/base {base}"])


def run_alone(folder, data):
    """Run a study as an ordinary user, who can write to one folder."""
    script = ALONE.format(
        reachable=reachable(data), data=data, example=folder, user=USER, python=sys.executable, python_home=sys.prefix
    )
    return subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid_and_hardened(unit):
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    other = [line for line in checked.stderr.splitlines() if unit.name in line and "is not executable" not in line]
    assert not other, other
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "offline" in rated.stderr:
        pytest.skip("this systemd cannot rate a unit that is not loaded")
    assert rated.returncode == 0, rated.stdout[-400:]


def test_the_compose_file_runs_a_hub_and_three_parties_without_privileges():
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
    services = content["services"]
    assert set(services) == {"hub", "bank", "shop", "clinic"}
    expected = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    for service in services.values():
        assert service.items() >= expected.items()
        assert [mount.split(":")[1] for mount in service["volumes"]] == ["/data"]
    assert [name for name, service in services.items() if service.get("ports")] == ["hub"]
    image = (DEPLOY / "container" / "Containerfile").read_text().splitlines()
    assert {"USER 10001", 'ENTRYPOINT ["colonnade"]'} <= set(image)


@pytest.mark.system
def test_a_study_runs_as_an_ordinary_user_on_a_read_only_root(tmp_path):
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("only root can make a read-only root and become another user")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no mount namespaces here")
    folder = Path(shutil.copytree(DEPLOY.parent / "examples" / "three-organisations", tmp_path / "example"))
    for table in folder.glob("*/*.csv"):  # a few people: what is shown is that it runs
        head, *people = table.read_text().splitlines(keepends=True)
        table.write_text("".join([head, *sorted(people)[:400]]))
    study = folder / "STUDY.toml"
    study.write_text(re.sub(r"127\.0\.0\.1:[0-9]+", f"127.0.0.1:{free_port()}", study.read_text()))
    subprocess.run(
        [sys.executable, "-m", "colonnade", "init", "trial", "STUDY.toml"], cwd=folder, check=True, capture_output=True
    )
    with tempfile.TemporaryDirectory() as place:  # the folders above that of a test are closed to others
        os.chmod(place, 0o755)  # noqa: S103
        ran = run_alone(folder, Path(place))
    assert ran.returncode == 0, ran.stderr[-800:]
    assert '"status": "finished"' in ran.stdout or "report" in ran.stdout
