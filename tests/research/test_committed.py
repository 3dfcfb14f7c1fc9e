"""The committed results keep what the documentation says of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from research.reproduce.exchanges import EPSILONS, OURS
from research.reproduce.required import verdicts
from research.reproduce.results import read_csv

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ONE_RELEASE, PURE, BATCHES = (
    "Colonnade, one release (Skellam)",
    "Colonnade, functional (pure epsilon)",
    "Colonnade, SQM by batches",
)
DP_SGD, PRINTED = "DP-SGD, trusted curator", "paper: functional mechanism"
DATA = {"Adult": ("Adult", {"0.1": 0.815, "1": 0.83}), "Dutch": ("Dutch census", {"0.1": 0.82, "1": 0.828})}


def accuracies(data):
    with (RESULTS / "reproduce-functional.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["part"] == "FM Table III" and line["data"] == data]
    return {(line["method"], line["at"]): (float(line["mean"]), int(line["runs"])) for line in lines}


@pytest.mark.parametrize(("data", "least"), DATA.values(), ids=DATA)
def test_one_release_is_as_accurate_as_is_said(data, least):
    found = accuracies(data)
    for epsilon, accuracy in least.items():
        mean, runs = found[ONE_RELEASE, epsilon]
        assert runs == 20
        assert mean >= accuracy


@pytest.mark.parametrize(("data", "_"), DATA.values(), ids=DATA)
def test_pure_epsilon_beats_what_the_paper_printed(data, _):
    found = accuracies(data)
    for epsilon in ("0.1", "1", "10"):
        assert found[PURE, epsilon][0] >= found[PRINTED, epsilon][0]


@pytest.mark.parametrize(("data", "_"), DATA.values(), ids=DATA)
def test_batches_are_within_a_point_of_a_trusted_curator_at_epsilon_one(data, _):
    found = accuracies(data)
    assert found[BATCHES, "1"][0] >= found[DP_SGD, "1"][0] - 0.01


def test_what_is_learned_over_noised_messages_keeps_what_is_asked_of_it():
    rows = read_csv(RESULTS / "reproduce-hdp.csv")
    ours = [row for row in rows if row.method == OURS]
    assert {row.runs for row in ours} == {10}
    assert {row.at for row in ours} == set(EPSILONS)
    judged = list(verdicts(rows))
    assert len(judged) == 11
    assert [verdict.what for verdict in judged if not verdict.kept] == []
