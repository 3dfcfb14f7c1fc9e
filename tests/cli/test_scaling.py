"""``colonnade bench`` and what ``plan --cost`` and ``privacy`` say about workers, hubs and lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.cli.scaling import bytes_a_second, clock, fit
from colonnade.errors import StorageError, StudyError
from colonnade.study.scale import BUILT_IN, Measured, measure
from tests.support.errors import refused
from tests.support.studies import check_words, edit

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_bench_measures_and_plan_uses_it(colonnade, study, tmp_path, monkeypatch):
    mine = replace(BUILT_IN, made="2026-01-01", quick=True)
    monkeypatch.setattr(measure, "measure", lambda *_: mine)
    monkeypatch.chdir(tmp_path)
    said = colonnade("bench", "--quick", "--json")
    found = Measured.load(tmp_path / "colonnade-bench.json")
    assert found.to_dict() | {"file": "colonnade-bench.json"} == said
    assert "is there already" in colonnade("bench", "--quick", code=StudyError.exit_code)
    monkeypatch.setattr(measure, "measure", None)  # what cannot be written is not measured
    text = colonnade("bench", "--out", "nowhere/x.json", code=StorageError.exit_code)
    assert "nowhere/x.json cannot be written: there is no folder nowhere" in text
    planned = colonnade("plan", study, "--cost", "--bench", "colonnade-bench.json", "--json")
    assert planned["constants"] == found.to_dict()


def test_plan_says_what_a_run_takes(colonnade, study):
    text = colonnade("plan", study, "--workers", 64, "--hubs", 4, "--bandwidth", "10Gbit", "--rows-given", 10**9)
    lines = "1,000,000,000 in every table (parquet)", "2,048 (chosen for this estimate)", "lines of 10 Gbit/s each way"
    check_words(text, *lines, "built-in constants of another machine", "the bottleneck: processor of the hubs")
    said = colonnade("plan", study, "--cost", "--rows-given", 5000, "--partitions", 16, "--json")
    assert (said["estimate"]["partitions"], said["rows"], said["constants_from"]) == (16, 5000, BUILT_IN.source)
    assert [party["name"] for party in said["estimate"]["parties"]] == ["bank", "shop", "clinic", "coordinator"]
    assert {"seconds", "bytes_sent", "worker_memory", "disk", "core_hours"} <= said["estimate"]["parties"][0].keys()


def test_links_are_those_of_the_study_or_as_asked(colonnade, study):
    asked = ("plan", study, "--workers", 4, "--rows-given", 10**7, "--json")
    through, direct = colonnade(*asked), colonnade(*asked, "--links", "direct")
    assert (through["fleet"]["links"], direct["fleet"]["links"]) == ("hub", "direct")
    assert direct["estimate"]["hub"]["bytes_passed"] < through["estimate"]["hub"]["bytes_passed"] / 100
    assert direct["estimate"]["seconds"] < through["estimate"]["seconds"]
    edit(study, ("[coordinator]\n", '[coordinator]\nlinks = "direct"\n'))
    assert colonnade(*asked)["estimate"] == direct["estimate"]


def test_plan_without_lanes_and_on_one_machine(colonnade, study):
    text = colonnade("plan", study, "--cost", "--one-machine", "--table", "csv", "--round-trip", 20)
    alone = "none: one process for each participant does everything"
    check_words(text, alone, "on one machine with 2 processors", "(csv)")
    messages = EXAMPLES / "private-regression" / "MESSAGES.toml"  # a kind that is no sum
    found = colonnade("plan", messages, "--workers", 4, "--json")["estimate"]
    assert found["partitions"] == 1
    assert all(party["phases"]["dealing"] == 0 for party in found["parties"])
    assert found["bytes_total"] > 0


def test_pre_flight_says_it_too_if_asked(colonnade, study):
    assert "ESTIMATES" not in colonnade("privacy", study)
    assert "ESTIMATES" in colonnade("privacy", study, "--workers", 8)
    said = colonnade("privacy", study, "--rows", 4000, "--hubs", 2, "--json")["scale"]
    assert (said["fleet"]["hubs"], said["rows"]) == (2, 4000)
    assert "scale" not in colonnade("privacy", study, "--json")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cost", "--epsilon"], "one question at a time"),
        ([], "one question at a time"),
        (["--rows", "--workers", "2"], "are about --cost"),
        (["--cost", "--error", "0.1"], "does not depend on its noise"),
        (["--cost", "--bandwidth", "fast"], "is written like 10Gbit"),
        (["--cost", "--partitions", "7"], "power of two"),
        (["--cost", "--bench", "nowhere.json"], "cannot be used as constants"),
    ],
)
def test_wrong_questions_are_one_sentence(colonnade, study, options, sentence):
    assert sentence in colonnade("plan", study, *options, code=StudyError.exit_code)


def test_what_is_typed_and_shown_in_words_and_partitions_that_fit():
    typed = {"10Gbit": 1.25e9, "100 Mbit/s": 12.5e6, "1.5Gbitps": 1.875e8, "50MB/s": 50e6}
    assert {text: bytes_a_second(text) for text in typed} == typed
    for wrong in ("", "10", "10 Gbyte", "-1Gbit", "0Gbit", "1e3bit"):
        refused(StudyError, (), bytes_a_second, wrong)
    assert [clock(t) for t in (0.25, 41, 720, 12_240)] == ["0.25 s", "41 s", "12 min", "3.4 h"]
    asked = ((2_000_000, 1), (100, 4), (10**9, 1), (10**9, 64), (10**5, 100), (10**12, 10**5))
    assert [fit(rows, workers) for rows, workers in asked] == [1, 16, 2048, 2048, 512, 1 << 16]
