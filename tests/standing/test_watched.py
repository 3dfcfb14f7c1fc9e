"""What a running agent and a running hub tell those who watch them: every metric that the page names, and spans."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from colonnade.errors import FederationError
from colonnade.standing.line import Line
from colonnade.study.policy import PartyConfig
from tests.support.standing import HUB, PARTIES, Standing, standing, until
from tools.pages import ROOT

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")
_ROW = re.compile(r"^\| (`(?:colonnade|process)_[^|]*) \| ([a-z, ]+) \|", re.MULTILINE)
Samples = dict[str, float]


def names(where: str) -> set[str]:
    """The metrics that the page for operators names for an agent or for a hub, without their labels."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    rows = [(name.strip("`").partition("{")[0], places.split(", ")) for name, places in _ROW.findall(page)]
    assert len(rows) == 13
    return {name.rstrip("*") for name, places in rows if where in places}


def samples(found: Standing, name: str) -> Samples:
    """What a process exports now."""
    port = found.ports["hub console" if name == HUB else name]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    told = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in told}


def check_names(found: Samples, where: str, other: str) -> None:
    """Every name has a sample, and none is there that only the other kind of process counts."""
    assert all(any(sample.startswith(name) for sample in found) for name in names(where)), (sorted(found), where)
    beyond = names(other) - names(where)
    assert beyond
    assert not any(sample.startswith(name) for sample in found for name in beyond)


def spans(text: str) -> list[dict[str, object]]:
    """The spans that a process has printed among other lines, each as an object over several lines."""
    return [json.loads(block) for block in re.findall(r"^\{$.*?^\}$", text, re.MULTILINE | re.DOTALL)]


def test_every_metric_of_the_page_has_a_sample_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with standing(tmp_path / "f", start=(HUB, "bank"), small=True, console=True, cap=2.0) as found:
        study = found.propose()
        found.wait("bank", study, "waiting")
        with Line(found.members(), found.identity) as line, pytest.raises(FederationError):
            line.result(study)
        of_hub = until(
            lambda: now if (now := samples(found, HUB))['colonnade_refused_total{why="question"}'] else None,
            "the hub to count a refusal",
        )
        of_agent = samples(found, "bank")
        check_names(of_agent, "agent", "hub")
        check_names(of_hub, "hub", "agent")
        assert of_agent["colonnade_connected"] == 1
        assert of_agent['colonnade_studies{state="waiting"}'] == 1
        assert of_agent['colonnade_studies{state="done"}'] == 0
        assert of_agent["colonnade_assessment_seconds_count"] == 1
        assert of_agent['colonnade_epsilon_left{days="0",observer="analyst"}'] == 2
        assert of_agent['colonnade_sent_bytes_total{way="direct"}'] == 0
        assert of_hub['colonnade_studies{state="open"}'] == 1
        assert of_hub["colonnade_members_present"] >= 1
        found.office("bank").decline(study, "eva", "not now")
        assert samples(found, "bank")['colonnade_studies{state="waiting"}'] == 0
        found.stop("bank")
        (check,) = spans(found.log("bank"))
    assert check["name"] == "check"
    assert check["attributes"] == {"colonnade.study": study[:8], "colonnade.state": "waiting"}


@pytest.mark.slow
def test_a_study_that_ran_is_counted_and_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    how = {"small": True, "console": True, "approval": "auto-within-budget"}
    with standing(tmp_path / "f", **how) as found:
        study = found.propose()
        found.wait_all(study, "done")
        ended = 'colonnade_attempts_total{ended="finished"}'
        told = {name: until(lambda name=name: _with(samples(found, name), ended), name) for name in PARTIES}
        left = told["shop"]['colonnade_epsilon_left{days="0",observer="analyst"}']
        config = PartyConfig.load(found.file("shop"))
        assert left == min(cap.left for cap in config.book().left(config.caps) if cap.who == "analyst") < 3.0
        assert not any("waiting" in sample and value for sample, value in told["shop"].items())
        until(lambda: _with(samples(found, HUB), ended), "the hub to count its attempt")
        until(lambda: samples(found, HUB)["colonnade_relayed_bytes_total"] > 0, "the hub to count what it carried")
        found.stop("shop")
        made = spans(found.of("shop").joinpath("process.log").read_text(encoding="utf-8"))
    by_name = {str(span["name"]): span for span in made}
    assert by_name["attempt"]["attributes"]["colonnade.status"] == "finished"  # type: ignore[index]
    assert by_name["attempt"]["attributes"]["colonnade.study"] == study[:8]  # type: ignore[index]
    inside = [span for span in made if span["parent_id"] is not None]
    assert inside
    assert {span["parent_id"] for span in inside} == {by_name["attempt"]["context"]["span_id"]}  # type: ignore[index]
    assert "check" in by_name


def test_an_exporter_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with standing(tmp_path / "f", start=("bank",), small=True) as found:
        until(lambda: found.running["bank"].poll(), "the agent to end")
        said = found.log("bank")
    assert "no exporter of traces is called 'carrier-pigeon' here" in said
    assert "Traceback" not in said


def _with(found: Samples, name: str) -> Samples | None:
    return found if found.get(name) == 1 else None
