"""The comparison of synthetic tables: public bins, scores, files of lines, and what is asked of the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import DatasetError, StudyError
from research.reproduce import synthesis
from research.reproduce.options import Options
from research.reproduce.results import CURATOR, NONE, PROVEN
from research.synthesis import command, table
from research.synthesis.layouts import DATA, bench
from research.synthesis.ours import WAYS, tables
from research.synthesis.scores import Score, ideal, scored
from tests.support.errors import raises, refused

COLUMNS = {"adult": 15, "credit-default": 24, "acs-income": 11}


def line(method: str, epsilon: float, seed: int = 0, *, auc: float = 0.9, model: str = "gradient boosting") -> Score:
    return Score("adult", method, epsilon, seed, model, 0.85, auc, 0.02)


def lines(**changes: float) -> list[Score]:
    """One seed of everything that is asked for."""
    models = ("gradient boosting", "logistic regression")
    found = [line("trained on real people", float("inf"), model=model) for model in models]
    methods = [way.name for way in WAYS] + ["aim"]
    return found + [
        line(method, epsilon, auc=changes.get(method, 0.9), model=model)
        for method in methods
        for epsilon in synthesis.EPSILONS
        for model in models
    ]


@pytest.mark.parametrize("name", DATA)
def test_three_parties_hold_all_columns_and_codes_fit_their_sizes(name: str, data_dir: Path) -> None:
    of = bench(name, data_dir, rows=500)
    assert len(of.train.parties) == 3
    assert len(of.names) == len(set(of.names)) == COLUMNS[name]
    assert of.codes.shape == (500, COLUMNS[name])
    assert (of.codes.max(axis=0) < of.sizes).all()
    assert of.names.index(of.label) >= 0
    assert max(of.sizes) <= 42


def test_edges_do_not_depend_on_the_rows_and_real_people_teach_more_than_shuffled_ones(data_dir: Path) -> None:
    few, of = (bench("adult", data_dir, rows=rows) for rows in (200, 1500))
    assert few.sizes == of.sizes
    assert few.codings["tax-office"].columns[0].labels[:3] == ("0", "1 to 999", "1000 to 1999")
    with raises(DatasetError, "DS018", "iris"):
        bench("iris", data_dir)
    best = {score.model: score for score in ideal(of)}
    assert best["gradient boosting"].two_way == 0
    assert best["gradient boosting"].auc > 0.85
    people = of.real[0]
    labels = np.random.default_rng(1).permutation(people["high-income"].to_numpy())
    shuffled = people.set_column(people.column_names.index("high-income"), "high-income", pa.array(labels))
    for score in scored(of, shuffled, "shuffled", 1.0, 0):
        assert score.auc < best[score.model].auc - 0.2
        assert score.two_way > 0.005


def test_tables_come_from_the_code_of_a_study(data_dir: Path) -> None:
    of = bench("acs-income", data_dir, rows=300)
    ((seed, made_up),) = tables(of, WAYS[2], 1.0, [3])
    assert (seed, made_up.column_names, made_up.num_rows) == (3, of.names, 300)
    assert next(tables(of, WAYS[2], 1.0, [3]))[1].equals(made_up)


def test_lines_are_kept_in_files_and_not_made_again(tmp_path: Path, data_dir: Path) -> None:
    path, broken = tmp_path / "few.csv", tmp_path / "broken.csv"
    for each in (line("aim", 1.0), line("aim", 0.3, seed=2)):
        table.add(path, [each])
    assert table.read(path) == [line("aim", 1.0), line("aim", 0.3, seed=2)]
    broken.write_text("a,b\n1,2\n", encoding="utf-8")
    refused(StudyError, "ST618", table.read, broken)
    refused(StudyError, "ST617", table.read, tmp_path / "nowhere.csv")
    path = table.add(tmp_path / "scores.csv", lines())
    rows = list(synthesis.synthesis(Options(runs=1, quick=True, folder=data_dir, peers=path)))
    assert {row.measure for row in rows} == {"accuracy", "AUC", "two-way error"}
    assert {row.promise for row in rows} == {PROVEN, CURATOR, NONE}
    assert {row.at for row in rows} == set(synthesis.EPSILONS)
    assert {row.mean for row in rows if row.measure == "AUC"} == {0.9}


def test_tables_of_peers_are_decoded_and_scored(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.coded("acs-income", tmp_path, data_dir)
    about = json.loads((tmp_path / "acs-income.json").read_text(encoding="utf-8"))
    codes = np.loadtxt(tmp_path / "acs-income.csv", delimiter=",", skiprows=1, dtype=np.int64)[:3000]
    assert (codes.max(axis=0) < list(about["sizes"].values())).all()
    made = tmp_path / "made.npz"
    told = {"data": "acs-income", "method": "mst", "epsilon": 1.0, "seed": 4}
    np.savez_compressed(made, codes=codes.astype(np.uint16), about=json.dumps(told))
    command.peers(tmp_path / "scores.csv", [made], data_dir)
    found = table.read(tmp_path / "scores.csv")
    assert [score.model for score in found] == ["gradient boosting", "logistic regression"]
    assert all((score.method, score.seed) == ("mst", 4) and score.auc > 0.75 for score in found)
    assert "two-way error" in capsys.readouterr().out
    np.savez_compressed(made, other=codes)
    with raises(StudyError, "ST616"):
        command.peers(tmp_path / "scores.csv", [made], data_dir)


def test_what_is_asked_is_judged_by_the_means() -> None:
    rows = list(synthesis._rows("adult", lines(**{"aim": 0.95})))
    verdicts = synthesis.verdicts(rows)
    kept = {asked: answer for asked, _, answer in verdicts}
    assert kept["adult, Colonnade, promised to the analyst, epsilon 1: boosting's AUC at least 0.9"] == "yes"
    assert kept["adult, Colonnade, promised to the analyst, epsilon 1: boosting's accuracy at least 0.852"] == "no"
    assert kept["adult, epsilon 1: boosting's AUC above AIM's"] == "no"
    assert sum("above AIM's" in asked for asked in kept) == 2 * len(synthesis.EPSILONS)
    without = [each for each in lines() if each.method != "aim"]
    verdicts = synthesis.verdicts(list(synthesis._rows("adult", without)))
    assert [answer for asked, _, answer in verdicts if "above AIM's" in asked] == ["open"] * 6


@pytest.mark.slow
def test_it_is_measured_from_nothing(data_dir: Path) -> None:
    rows = list(synthesis.synthesis(Options(runs=1, quick=True, folder=data_dir)))
    ours = [row for row in rows if row.method == WAYS[0].name and row.measure == "AUC"]
    assert len(ours) == 4
    assert all(row.mean > 0.7 for row in ours)
