"""Standing processes: what they log, count and leave behind; and as real ones, killed, watched and cancelled."""

from __future__ import annotations

import csv
import gc
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from colonnade.console.access import AccessFile
from colonnade.disk import writing
from colonnade.errors import FederationError, ProposalError, StudyError
from colonnade.federation import monitoring
from colonnade.federation.agent_store import AgentStore
from colonnade.federation.attempts import find_outcome
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.monitoring import AgentMetrics, HubMetrics
from colonnade.federation.processes import ChildProcess, ProcessLimits, end_by_force, is_alive, wait_for_end
from colonnade.memory import freeze_baseline, release_memory
from colonnade.privacy import Ledger
from colonnade.privacy.ledger.caps import ASKED_BY, RemainingBudget
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_file import bytes_by_way
from tests.support.errors import check_said, raises
from tests.support.ports import free_port
from tests.support.standing import ALIGNED, BUDGET, HUB, PARTIES, Standing, descendants, make, standing
from tests.support.studies import Trial, scatter
from tests.support.waiting import below, until
from tools.pages import ROOT

LOG = logging.getLogger("colonnade.federation.somewhere")


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
    monitoring.configure_logging("json", stream=written)
    monitoring.log_event(LOG, logging.INFO, "study began", study="ab12", attempt=1, members=("bank", "shop"))
    told = json.loads(written.getvalue())
    expected = {"level": "info", "where": "federation.somewhere", "what": "study began", "study": "ab12", "attempt": 1}
    assert told.items() >= (expected | {"members": ["bank", "shop"]}).items()
    monitoring.configure_logging("text", stream=written)
    monitoring.log_event(LOG, logging.DEBUG, "unsaid")
    monitoring.log_event(LOG, logging.WARNING, "gone", why="it left", study="ab12")
    assert written.getvalue().splitlines()[1].endswith('warning federation.somewhere: gone why="it left" study=ab12')
    monitoring.log_event(LOG, logging.INFO, "proposed", name="x\n2026 error: all is lost\x1b[2J" + "y" * 5000)
    *_, line = written.getvalue().splitlines()
    assert ("proposed" in line, "\x1b" in line, len(line) < 600) == (True, False, True), "of others: one short line"
    for name in ("token", "link", "key", "ids", "cell", "value"):  # what sounds like a secret
        with raises(ValueError, "VA164"):
            monitoring.log_event(LOG, logging.INFO, "made", **{name: "hush"})
    assert "hush" not in written.getvalue()


@pytest.mark.parametrize("log", [LOG, logging.getLogger("uvicorn.error")])
def test_an_error_is_logged_by_its_class_and_place_and_not_by_what_it_holds(log, written):
    monitoring.configure_logging("json", stream=written)
    try:
        int("a cell of somebody")
    except ValueError:
        log.exception("stopped\n")
    told = json.loads(written.getvalue())
    assert (told["what"], told["error"], told["at"].startswith(__name__)) == ("stopped", "ValueError", True)
    assert "somebody" not in written.getvalue()


def lines(metrics, whole=False):
    page, kind = metrics.page(whole=whole)
    assert kind.startswith("text/plain")
    return set(page.decode().splitlines())


def test_metrics_are_told_in_the_format_of_prometheus():
    pytest.importorskip("prometheus_client")
    metrics, hub = AgentMetrics(), HubMetrics()
    metrics.connected.set(1)
    metrics.count_studies({"waiting": 2, "done": 5})
    metrics.count_studies({"done": 6})
    metrics.attempts.labels("finished").inc()
    caps = [("analyst", 3.0, None, 1.5), ("coordinator", 1.0, 30, 0.75), ("coordinator", 2.0, 30, 0.75)]
    metrics.show_left(RemainingBudget(who, epsilon, 1e-6, days, spent) for who, epsilon, days, spent in caps)
    metrics.assessment_seconds.observe(0.2)
    metrics.scores.inc(3)
    private = "analyst|epsilon|scores|bytes_total"  # names of observers, and what grows with rows
    assert not any(re.search(private, line) for line in lines(metrics)), "whoever asks without a token"
    assert lines(metrics, whole=True) - lines(metrics) >= {
        "colonnade_scores_total 3.0",
        'colonnade_epsilon_left{days="0",observer="analyst"} 1.5',
        'colonnade_epsilon_left{days="30",observer="coordinator"} 0.25',
    }
    assert lines(metrics) >= {
        "colonnade_connected 1.0",
        'colonnade_studies{state="done"} 6.0',
        'colonnade_studies{state="waiting"} 0.0',
        'colonnade_attempts_total{ended="finished"} 1.0',
        'colonnade_attempts_total{ended="lost"} 0.0',
    }
    for carried, refused in ((1000, {"identity": 2}), (1500, {"identity": 2, "question": 1})):
        hub.count_traffic(carried, refused)  # since its start
    assert lines(hub, whole=True) - lines(hub) == {
        "# HELP colonnade_relayed_bytes_total Bytes passed on between participants",
        "# TYPE colonnade_relayed_bytes_total counter",
        "colonnade_relayed_bytes_total 1500.0",
        *(line for line in lines(hub, whole=True) if "relayed_bytes_created" in line),
    }
    assert lines(hub) >= {
        'colonnade_refused_total{why="identity"} 2.0',
        'colonnade_refused_total{why="question"} 1.0',
    }


@pytest.mark.parametrize("store", [AgentStore, AccessFile])
def test_the_folder_of_a_standing_process_is_for_nobody_else_to_read(tmp_path, store):
    (tmp_path / "agent").mkdir(mode=0o755)
    store(tmp_path / "agent")
    assert (tmp_path / "agent").stat().st_mode & 0o777 == 0o700


def test_without_the_packages_nothing_is_counted_or_traced_and_a_wish_for_it_is_answered(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics = AgentMetrics()
    metrics.connected.set(1)
    metrics.count_studies({"done": 1})
    metrics.show_left([RemainingBudget("analyst", 1.0, 1e-6, None, 0.0)])
    assert b"colonnade[console]" in metrics.page()[0] == metrics.page(whole=True)[0]
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monitoring.trace_check("ab", 0.1, "waiting")
    monitoring.trace_attempt({}, "ab", 1)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    monitoring.configure_tracing()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with raises(StudyError, "ST549"):
        monitoring.configure_tracing()


def test_an_exporter_that_is_not_there_is_named(tmp_path, monkeypatch, in_this_process, written):
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    code, _, said = in_this_process("federation", "agent", make(tmp_path / "f").file("bank"))
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
    monitoring.trace_attempt({**moments, "status": "finished", "rounds": 9, "phases": phases}, "ab12cd34ef", 2)
    monitoring.trace_check("ab12cd34ef", 0.5, "waiting")
    monitoring.trace_attempt({"started": "?"}, "ab", 1)  # a record that was cut short tells nothing
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
        release_memory()
        assert early() is not None, "a look takes long as long as nothing is left out of it"
        freeze_baseline()
        assert early() is None
        held = gc.get_freeze_count()
        assert held > 1000
        late = [weakref.ref(Link()) for _ in range(10)]
        release_memory()
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
    base, reachable = Path(sys.base_prefix).resolve(), ""
    closed = [above for above in reversed(base.parents) if not above.stat().st_mode & 0o001]
    with tempfile.TemporaryDirectory() as data:  # the folders above that of a test are closed to others
        os.chmod(data, 0o755)  # noqa: S103
        if closed:  # let another user reach the interpreter, where it lies in a folder that is closed to others
            reachable = f"mkdir {data}/base\nmount --bind {base} {data}/base\n"
            reachable += f"mount -t tmpfs -o mode=755 none {closed[0]}\n"
            reachable += f"mkdir -p {base}\nmount --bind {data}/base {base}"
        script = ALONE.format(
            reachable=reachable, data=data, example=folder, user=USER, python=sys.executable, python_home=sys.prefix
        )
        ran = subprocess.run(["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-800:]
    assert '"status": "finished"' in ran.stdout or "report" in ran.stdout


TRIES = 5
PATIENCE = 120.0

# --- child processes


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A coordinator's command that waits for parties which never come."""
    trial = Trial(tmp_path_factory.mktemp("trial") / "study", 50)
    key = trial.folder / "coordinator" / "coordinator.key"
    return ["coordinator", str(trial.file), "--key", str(key), "--pipe", "--while-open", "--out"]


def listening(folder: Path) -> bool:
    path = folder / "events.jsonl"
    return path.exists() and '"connected"' in path.read_text()


@pytest.mark.system
@pytest.mark.parametrize("how", ["forked", "spawned"])
def test_a_child_that_is_stopped_says_so_and_one_that_takes_too_long_is_ended(
    waiting: list[str], tmp_path: Path, how: str
) -> None:
    forks, slow = ForkServer() if how == "forked" else None, tmp_path / "slow"
    try:
        child = ChildProcess.start([*waiting, str(tmp_path)], tmp_path, ProcessLimits(4 * 10**9, 600), forks)
        until(lambda: listening(tmp_path), "it listens")
        assert is_alive(tmp_path)
        with raises(ProposalError, "OF005"):
            ChildProcess.start(["--version"], tmp_path)
        assert child.stop() == 130
        assert not is_alive(tmp_path)
        ended, said = find_outcome(tmp_path, 130)
        assert ended == "lost"
        check_said(said, "CO041")
        slow.mkdir()
        late = ChildProcess.start([*waiting, str(slow)], slow, ProcessLimits(seconds=0.5), forks)
        until(lambda: late.poll() is not None, "it was ended")
        assert late.overran
    finally:
        if forks is not None:
            forks.close()


@pytest.mark.system
@pytest.mark.parametrize("how", ["None", "ForkServer()"])
def test_a_child_ends_when_its_parent_is_killed(waiting: list[str], tmp_path: Path, how: str) -> None:
    script = f"""
import time
from pathlib import Path
from colonnade.federation.processes import ChildProcess
from colonnade.study.fork_server import ForkServer
child = ChildProcess.start({[*waiting, str(tmp_path)]!r}, Path({str(tmp_path)!r}), forks={how})
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: listening(tmp_path), "it listens")
    finally:
        parent.kill()
        parent.wait()
    assert wait_for_end(tmp_path, PATIENCE)
    assert find_outcome(tmp_path, None)[0] == "lost"


@pytest.mark.system
def test_a_child_that_does_not_end_is_killed_by_the_next_parent(tmp_path: Path) -> None:
    """Standard input stays open in this test's hands, as if the child had not noticed that its parent is gone."""
    holding = f"""
import fcntl, os, time
file = open({str(tmp_path / "alive")!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print("held", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE) as started:
        assert started.stdout.readline() == b"held\n"
        assert is_alive(tmp_path)
        assert not wait_for_end(tmp_path, 0.1)
        end_by_force(tmp_path)
        assert started.wait(timeout=PATIENCE) == -9
    assert not is_alive(tmp_path)


# --- a federation that is watched


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A hub with everything for those who watch it; agents are started by tests."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_TRACES_EXPORTER", "console")
        hub = f'health = "127.0.0.1:{port}"\ndial = false\n'
        folder = tmp_path_factory.mktemp("watched") / "f"
        with standing(folder, start=(HUB,), console=True, cap=2.0, hub=hub) as found:
            found.ports["health"] = port
            for party in ("bank", "shop"):
                port = free_port()
                with open(found.file(party), "a", encoding="utf-8") as file:
                    file.write(f'\n[network]\nlisten = "127.0.0.1:{port}-{port + 9}"\n')
            yield found


def start(found: Standing, *names: str) -> None:
    found.start(*(name for name in names if name not in found.running))


def named(where: str) -> set[str]:
    """The metrics that the page for operators names for an agent or for a hub, without their labels."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (`(?:colonnade|process)_[^|]*) \| ([a-z, ]+) \|", page, re.MULTILINE)
    rows = [(name.strip("`").partition("{")[0], places.split(", ")) for name, places in found]
    assert len(rows) == 13
    return {name.rstrip("*") for name, places in rows if where in places}


def samples(found: Standing, name: str, token: str | None = None) -> dict[str, float]:
    port = found.ports["hub console" if name == HUB else name]
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers, timeout=60)
    lines = answer.raise_for_status().text.splitlines()
    told = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in told}


def token(found: Standing, name: str) -> str:
    """What the owner of a process shows for the whole page."""
    file = found.of(name) / ("hub" if name == HUB else "agent") / "metrics.token"
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text().strip()


def spans(text: str) -> list[dict[str, object]]:
    """The spans that a process has printed among other lines, each as an object over several lines."""
    return [json.loads(block) for block in re.findall(r"^\{$.*?^\}$", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.system
def test_the_health_check_of_the_compose_file_knows_a_hub_that_serves(watched: Standing) -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((ROOT / "deploy" / "container" / "compose.yaml").read_text())
    _, _, flag, script = content["services"]["hub"]["healthcheck"]["test"]
    assert "127.0.0.1:9301" in script

    def healthy(port: int) -> bool:
        check = [sys.executable, flag, script.replace("127.0.0.1:9301", f"127.0.0.1:{port}")]
        return not subprocess.run(check, capture_output=True, check=False).returncode

    assert not healthy(free_port()), "nobody serves there"
    until(lambda: healthy(watched.ports["health"]), "the hub to be healthy")


@pytest.mark.system
def test_every_metric_of_the_page_has_a_sample_where_it_belongs(watched: Standing) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    start(watched, "bank")
    study = watched.propose()
    watched.wait("bank", study, "waiting")
    with FederationClient(watched.members(), watched.identity()) as line, pytest.raises(FederationError):
        line.result(study)
    refused = 'colonnade_refused_total{why="question"}'
    until(lambda: samples(watched, HUB)[refused], "the hub to count a refusal")
    assert not any("observer" in sample for sample in samples(watched, "bank")), "any user of this machine asks so"
    assert not any("bytes_total" in sample for name in (HUB, "bank") for sample in samples(watched, name))
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        samples(watched, "bank", "0" * 64)
    told = {where: samples(watched, name, token(watched, name)) for where, name in (("hub", HUB), ("agent", "bank"))}
    for where, other in (("hub", "agent"), ("agent", "hub")):
        found, beyond = told[where], named(other) - named(where)
        assert all(any(sample.startswith(name) for sample in found) for name in named(where)), (sorted(found), where)
        assert not any(sample.startswith(name) for sample in found for name in beyond)
    expected = {
        "colonnade_connected": 1,
        'colonnade_studies{state="waiting"}': 1,
        'colonnade_studies{state="done"}': 0,
        "colonnade_assessment_seconds_count": 1,
        'colonnade_epsilon_left{days="0",observer="analyst"}': 2,
        'colonnade_sent_bytes_total{way="direct"}': 0,
    }
    assert {name: told["agent"][name] for name in expected} == expected
    assert (told["hub"]['colonnade_studies{state="open"}'], told["hub"]["colonnade_members_present"] >= 1) == (1, True)
    watched.store("bank").decline(study, "eva", "not now")
    assert samples(watched, "bank")['colonnade_studies{state="waiting"}'] == 0
    watched.stop("bank")
    (check,) = spans(watched.log("bank"))
    shown = {"colonnade.study": study[:8], "colonnade.state": "waiting"}
    assert (check["name"], check["attributes"]) == ("check", shown)


@pytest.mark.system
def test_a_check_that_was_killed_is_made_again(watched: Standing) -> None:
    """A machine that kills the check of a proposal says nothing about the study."""
    start(watched, "bank")
    proposed = watched.propose(watched.study_named("killed check"))
    # One is the server from which others are forked; it is killed too.
    until(lambda: len(watched.children("bank")) > 1 or watched.state("bank", proposed) == "waiting", "a check")
    for pid in watched.children("bank"):
        os.kill(pid, signal.SIGKILL)
    found = watched.wait("bank", proposed, "waiting", "refused")
    assert (found.state, (found.assessment or {})["refused"]) == ("waiting", None)


@pytest.mark.system
def test_a_study_whose_participants_connect_to_each_other_is_counted_and_traced(watched: Standing) -> None:
    """Agents pass on what the study file and their party files say of links."""
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    study = watched.propose(watched.study_named("direct", more='\n[coordinator]\nlinks = "direct"\n'))
    start(watched, *PARTIES)  # those who were away when it was proposed hear of it now
    watched.wait_all(study, "waiting")
    watched.approve(study)
    watched.wait_all(study, "done")
    record = watched.store("bank").attempts(study)[0].folder / "run.json"
    (relayed_by,) = watched.of(HUB).glob(f"hub/attempts/{study}/*/run.json")
    run, coordinator = (json.loads(path.read_text(encoding="utf-8")) for path in (record, relayed_by))
    assert {(way["way"], way["why"]) for peer, way in coordinator["links"].items() if peer != "clinic"} == {
        ("hub", "this participant does not dial, and the other has not dialled")
    }
    assert {peer: way["way"] for peer, way in run["links"].items()} == {
        "shop": "direct", "clinic": "direct", "coordinator": "hub"
    }  # fmt: skip
    sent, relayed = bytes_by_way(run)
    assert sent == run["links"]["shop"]["direct_sent"] + run["links"]["clinic"]["direct_sent"] > 0
    assert relayed > 0
    for name in (*PARTIES, HUB):
        ended = 'colonnade_attempts_total{ended="finished"}'
        until(lambda name=name, ended=ended: samples(watched, name).get(ended) == 1, f"{name} to count its attempt")
    until(
        lambda: samples(watched, HUB, token(watched, HUB))["colonnade_relayed_bytes_total"] > 0,
        "the hub to count what it carried",
    )
    left, config = samples(watched, "shop", token(watched, "shop")), watched.config("shop")
    least = min(cap.remaining for cap in config.open_ledger().remaining(config.caps) if cap.who == "analyst")
    assert left['colonnade_epsilon_left{days="0",observer="analyst"}'] == least < 2.0
    watched.stop("shop")
    made = spans(watched.log("shop"))
    (whole,) = (span for span in made if span["name"] == "attempt")
    assert whole["attributes"]["colonnade.status"] == "finished"  # type: ignore[index]
    assert {span["parent_id"] for span in made} == {None, whole["context"]["span_id"]}  # type: ignore[index]


@pytest.mark.system
def test_an_agent_removes_tables_that_nobody_uses(watched: Standing) -> None:
    bank = watched.of("bank")
    if "bank" in watched.running:
        watched.stop("bank")
    left, used = (bank / f".colonnade-spool.{name}.new" for name in ("abcdefgh", "stuvwxyz"))
    for folder in (left, used):
        folder.mkdir()
    with writing.lock_folder(used):  # as the head of another attempt does
        watched.start("bank")
        until(lambda: not left.exists(), "the table that was left is gone")
        watched.stop("bank")
    assert used.exists()


# --- attempts that are lost, and studies that do not run


@pytest.mark.slow
def test_killed_in_the_middle_and_tried_again(tmp_path: Path) -> None:
    """A second attempt by itself: what had left is counted twice, the alignment is used again, there is one result."""
    with standing(tmp_path / "f", approval="auto-within-budget", cap=60.0) as three:
        for who in ("bank", HUB):
            for number in range(TRIES):  # a kill may come too late, when the result is there already
                before = {name: len(three.ledger(name)) for name in PARTIES}
                study = three.propose(three.study_named(f"{who} dies {number}", more=ALIGNED))
                until(lambda study=study: three.happened("bank", study, "first share"), "shares leave")
                three.kill(who)
                three.start(who)
                three.wait_all(study, "done")
                assert three.told()[study]["state"] == "done"
                holders = three.finished(study)
                assert len({attempt for _, attempt in holders}) == 1, "one result"
                for name in PARTIES:
                    # What left is counted: an attempt whose first share was noted has an entry that stays.
                    attempts = three.store(name).attempts(study)
                    noted = sum(three.happened(name, study, "first share", attempt.number) for attempt in attempts)
                    states = three.ledger(name)[before[name] :]
                    assert sum(state in ("sent", "committed") for state in states) >= noted, (name, states, noted)
                    assert states.count("committed") <= 1
                    until(lambda name=name, study=study: three.store(name).report(study), f"{name} has a report")
                if holders[0][1] == 2:
                    break
            else:
                pytest.fail(f"{TRIES} kills came too late")
            assert three.ledger("bank")[before["bank"] :] == ["sent", "committed"]
            book, by = three.config("bank").open_ledger(), (three.config("bank").policy_approver,)
            assert {entry.approvers for entry in book.entries()} == {by}
            notes = {change.study for change, _ in book.lines() if "aligned" in change.study}
            assert notes, "alignments are noted"
            assert {note.partition(ASKED_BY)[2] for note in notes} == {"ana"}
            assert all(three.happened(name, study, "alignment used again", 2) for name in PARTIES)


# --- studies in lanes: workers of everybody who meet in lanes at a standing hub

PCA = 'kind = "pca"\nn_components = 1\n'
TASK = """\
kind = "polynomial"
expressions = ["1", "bank.first * shop.second", "bank.first^2"]
rounding = "nearest"
gamma = 64
"""
OF_HUB = "overdue = 20\nstudies_per_party = 2\nlanes = 2\n\n[hub.compute]\nworkers = 8\n"
OF_AGENT = """\
studies_at_once = 2

[network]
listen = "127.0.0.1:20000-29999"

[compute]
workers = 2
"""


class InLanes:
    """A federation whose studies are in lanes, and what they must come to."""

    def __init__(self, three: Standing) -> None:
        self.three = three
        text = three.study.read_text().replace(PCA, TASK).replace(BUDGET, "{ analyst = 4.0 }")
        three.study.write_text(f"{text}{ALIGNED}\n[lanes]\npartitions = 4\n")
        tables = {}
        for place, name in enumerate(PARTIES):
            table = three.of(name) / f"{name}.csv"
            scatter(table, place)
            three.change(name, 'tasks = ["pca"]', 'tasks = ["polynomial"]')
            three.change(name, "{ analyst = 3.0, coordinator = 3.0, party = 3.0 }", "{ analyst = 1000.0 }")
            with open(table) as file:
                tables[name] = {row["person_id"]: row for row in csv.DictReader(file)}
        common = set.intersection(*(set(table) for table in tables.values()))
        bank, shop = (tables[name] for name in ("bank", "shop"))
        self.common = len(common)
        products = sum(float(bank[one]["first"]) * float(shop[one]["second"]) for one in common)
        self.expected = [self.common, products, sum(float(bank[one]["first"]) ** 2 for one in common)]

    def proposed(self, name: str, links: str = "hub") -> str:
        """The study under another name, proposed to all; nobody has to be asked."""
        return self.three.propose(self.three.study_named(name, more=f'\n[coordinator]\nlinks = "{links}"\n'))

    def held_up(self, name: str, *studies: str) -> tuple[list[str], int, list[int]]:
        """Studies of which the first cannot end, since a worker of a party stands still in a lane.

        Returns the studies, the party's head, and its workers, of whom that is the first.
        """
        for number in range(TRIES):  # this process may be too late to hold it up
            found = [self.proposed(f"{study} {number}") for study in studies]
            until(lambda found=found: self.three.happened(name, found[0], "all workers ready"), "workers")
            attempt = self.three.of(name) / "agent" / "studies" / found[0] / "attempts" / "1"
            head = int((attempt / "alive").read_text())
            workers = [pid for forks in descendants(head) for pid in descendants(forks)]  # below the one that forks
            for worker in workers[:1]:
                os.kill(worker, signal.SIGSTOP)
            until(lambda found=found: self.runs_or_is_done(name, found[0]), "lanes")
            if len(workers) == 2 and self.three.state(name, found[0]) == "running":
                return found, head, workers
            for study in found:
                self.done(study)
        pytest.fail(f"{TRIES} studies ended too early")

    def runs_or_is_done(self, name: str, study: str) -> bool:
        """Whether a party's worker has done a lane; then each of its workers has had one."""
        progress = self.three.store(name).progress(study)
        in_a_lane = progress is not None and progress.phase == "lanes" and progress.done > 0
        return in_a_lane or self.three.state(name, study) == "done"

    def done(self, study: str, attempt: int = 1) -> dict[str, dict[str, Any]]:
        """What everybody recorded of a study that has ended well, with the result that it must have."""
        places = {HUB: self.three.of(HUB) / "hub" / "attempts" / study / str(attempt)}
        self.three.wait_all(study, "done")
        for name in PARTIES:
            places[name] = self.three.store(name).attempts(study)[attempt - 1].folder
        until(lambda: all((place / "run.json").exists() for place in places.values()), "all have a record")
        learned = [json.loads((place / "model.json").read_text())["learned"] for place in places.values()]
        assert all(each["values"] == learned[0]["values"] for each in learned)
        (said,) = {(place / "privacy.json").read_text() for place in places.values()}  # which all of them sign
        assert json.loads(said).get("attempts", {"number": 1})["number"] == attempt
        rounding = self.common / 64
        for value, expected, deviation in zip(
            learned[0]["values"], self.expected, learned[0]["deviations"], strict=True
        ):
            assert abs(value - expected) < 6 * deviation + rounding
        return {name: json.loads((place / "run.json").read_text()) for name, place in places.items()}

    def paid(self, study: str, *states: str) -> None:
        """Wait until every ledger has these entries of a study: one an attempt."""
        for name in PARTIES:
            book, digest = Ledger(self.three.of(name) / "ledger.sqlite"), self.three.store(name).entry(study).digest
            until(
                lambda book=book, digest=digest: states == tuple(e.state for e in book.entries() if e.digest == digest),
                f"{name} to have {states}",
            )

    def left_behind(self) -> list[Path]:
        return below(self.three.folder, "*colonnade-spool*", "run-*.arrow")


def gone(*pids: int) -> bool:
    alive = []
    for pid in pids:
        with suppress(OSError):
            alive.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z")
    return not any(alive)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InLanes]:
    how = {"approval": "auto-within-budget", "hub": OF_HUB, "agent": OF_AGENT}
    with standing(tmp_path_factory.mktemp("lanes") / "f", start=(HUB,), **how) as three:
        found = InLanes(three)
        three.start(*PARTIES)
        yield found


@pytest.mark.system
def test_two_studies_at_once_and_a_worker_that_is_killed(lanes: InLanes) -> None:
    (first, second), _, (victim, _) = lanes.held_up("shop", "first", "second")
    until(lambda: lanes.runs_or_is_done("shop", second), "the other runs")
    assert lanes.three.state("shop", first) == "running"
    with suppress(ProcessLookupError):  # on a slow machine its head may have lost patience with it
        os.kill(victim, signal.SIGKILL)
    for name, found in lanes.done(first).items():
        said = found["lanes"]
        assert (said["partitions"], said["done"], said["workers"]) == (4, 4, 2), name  # the hub has two lanes for it
        assert said["attempts"] > 4, name
        assert (found["room"], found["attempt"]) == (f"{first}.1", 1)
        assert bool(said["replaced_workers"]) == (name == "shop")
        assert found["alignment"]["matched"] == lanes.common
    assert {found["lanes"]["done"] for found in lanes.done(second).values()} == {4}
    lanes.paid(first, "committed")
    lanes.paid(second, "committed")
    until(lambda: not lanes.left_behind(), "no table is left")


@pytest.mark.system
def test_a_head_that_is_killed_takes_its_workers_along_and_the_next_attempt_is_exact(lanes: InLanes) -> None:
    (study,), head, workers = lanes.held_up("bank", "third")
    (left,) = lanes.three.of("bank").glob(".colonnade-spool.*")
    os.kill(head, signal.SIGKILL)
    os.kill(workers[0], signal.SIGCONT)
    until(lambda: gone(*workers), "its workers end with it")
    until(lambda: not left.exists(), "the agent removes the table that it left")
    facts = lanes.done(study, attempt=2)
    assert {(found["lanes"]["attempts"], found["room"]) for found in facts.values()} == {(4, f"{study}.2")}
    lanes.paid(study, "sent", "committed")
    assert not lanes.left_behind()


@pytest.mark.system
def test_workers_connect_to_each_other_where_the_study_says_so(lanes: InLanes) -> None:
    facts = lanes.done(lanes.proposed("linked", "direct"))
    for name in PARTIES:
        ways = facts[name]["lanes"]["links"]
        assert ways.keys() == {*PARTIES, HUB} - {name}
        assert all(way["direct_sent"] > 0 for way in ways.values())  # perhaps not in every lane
