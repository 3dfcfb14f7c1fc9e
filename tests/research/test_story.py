"""Two organisations' own files: what the committed figures say, and the same in small on made-up people."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from colonnade import Federation, LogisticRegression, Party, joint_scores
from colonnade.study import Study
from colonnade.tables.people import population
from research.datasets.catalog import Layout
from research.datasets.named import load_dataset
from research.story import (
    ALONE,
    BESIDE,
    BOOSTED,
    CLEAR,
    EXACT,
    LEVELS,
    NOISE,
    OWN,
    People,
    gain,
    markdown,
    means,
    measure,
    read,
    write_files,
)

from .test_committed import RESULTS


@pytest.fixture(scope="module")
def committed():
    return read(RESULTS / "story.csv")


def test_at_epsilon_three_what_was_told_lifts_the_banks_own_boosted_model(committed):
    found = means(committed)
    for data in ("adult", "credit-default"):
        rows = [row for row in committed if row.data == data]
        for model in (1.0, 3.0):
            more, deviation = gain(rows, "bank", BESIDE, BOOSTED, 3.0, model)
            assert more > max(0.01, 4 * deviation)
            for other in (ALONE, BOOSTED):
                assert found[data, "bank", model, BESIDE, 3.0][0] > found[data, "bank", 0.0, other, 0.0][0]
            assert found[data, "bank", model, BESIDE, 3.0][0] > found[data, "bank", model, LEVELS, 3.0][0]


def test_who_has_no_labels_gets_scores_near_what_labels_would_give(committed):
    found = means(committed)
    assert found["adult", "employer", 3.0, LEVELS, 3.0][0] > found["adult", "employer", 0.0, BOOSTED, 0.0][0] + 0.04
    bureau = [found["credit-default", "bureau", 0.0, how, 0.0][0] for how in (ALONE, BOOSTED)]
    assert bureau[0] < found["credit-default", "bureau", 3.0, LEVELS, 3.0][0] < bureau[1]
    assert found["credit-default", "bank", 3.0, BESIDE, 3.0][0] < bureau[0]


def test_the_story_tells_the_committed_figures(committed):
    found, text = means(committed), (RESULTS.parents[1] / "docs" / "tutorials" / "story.md").read_text(encoding="utf-8")
    for data, title, parties in (
        ("adult", "Adult", ("bank", "employer")),
        ("credit-default", "credit default", ("bank", "bureau")),
    ):
        for to in parties:
            keys = [
                (0.0, ALONE, 0.0),
                (0.0, BOOSTED, 0.0),
                (3.0, OWN, 0.0),
                *((3.0, LEVELS, e) for e in (1.0, 3.0, 8.0)),
                *([(3.0, BESIDE, 3.0)] if to == "bank" else []),
                (3.0, NOISE, 3.0),
                (3.0, EXACT, 0.0),
            ]
            cells = [f"{found[data, to, *key][0]:.3f}" for key in keys]
            cells[6:6] = [] if to == "bank" else ["no labels"]
            cells[6] = f"**{cells[6]}**" if to == "bank" else cells[6]
            assert f"| {to} ({title}) | {' | '.join(cells)} |" in text


def test_nothing_that_is_heard_makes_scores_worse_than_own_columns(committed):
    found = means(committed)
    for data, to, model, how, epsilon in found:
        if how in (LEVELS, NOISE):
            own = found[data, to, model, OWN, 0.0][0]
            assert found[data, to, model, how, epsilon][0] > own - 0.002, (data, to, how, epsilon)


def test_the_committed_page_is_that_of_the_committed_figures(committed):
    assert (RESULTS / "story.md").read_text(encoding="utf-8") == markdown(committed)
    assert len({row.seed for row in committed}) == 5
    assert {row.how for row in committed} == {ALONE, BOOSTED, OWN, LEVELS, BESIDE, NOISE, EXACT, CLEAR}


@pytest.fixture(scope="module")
def small():
    made = population(100)
    held = {name: dict(schema.columns) for name, schema in made.schemas.items()}
    layout = Layout("made up", {"bank": held["bank"], "shop": held["shop"] | held["clinic"]}, "bank.default")
    return load_dataset("population", rows=2500, layout=layout)


def test_the_figures_can_be_made_again_in_small(small):
    rows = list(measure("people", small, range(1), epsilons=(3.0,)))
    assert {row.how for row in rows} == {ALONE, BOOSTED, OWN, LEVELS, BESIDE, NOISE, EXACT, CLEAR}
    assert all(0.4 < row.auc <= 1 for row in rows if row.how != CLEAR)
    assert markdown(rows).count("| levels, epsilon 3 |") == 3  # area, log-loss, slope


def test_the_files_are_those_of_two_organisations(small, tmp_path):
    people = People(small, seed=1)
    written = write_files(people, tmp_path)
    assert all(path.exists() for path in written)
    ids = {}
    for part in ("known", "new"):
        for name in ("bank", "shop"):
            with (tmp_path / name / f"{part}.csv").open(encoding="utf-8") as file:
                table = list(csv.DictReader(file))
            ids[name, part] = [row["person_id"] for row in table]
            assert ("default" in table[0]) == (name == "bank" and part == "known")
    assert not set(ids["bank", "known"]) & set(ids["bank", "new"])
    for part in ("known", "new"):
        both = set(ids["bank", part]) & set(ids["shop", part])
        assert 0.8 < len(both) / len(ids["bank", part]) < 1
        assert ids["bank", part] != sorted(ids["bank", part])
    assert Study.load(tmp_path / "fit.toml").content.task.kind == "logistic"


def test_from_these_files_to_scores(small, tmp_path):
    people = People(small, seed=2)
    write_files(people, tmp_path)

    def federation(part, schemas):
        parties = [
            Party(name, tmp_path / name / f"{part}.csv", schema=schema, id="person_id")
            for name, schema in schemas.items()
        ]
        return Federation(parties).align(on="person_id", mode="helper")

    model = LogisticRegression(label="bank.default", epsilon=3.0, method="one-shot")
    model.fit(federation("known", people.schemas))
    new = people.schemas | {"bank": people.schemas["bank"].without("default")}
    told = joint_scores(model, federation("new", new), to="bank", epsilon=3.0)
    assert told.scores.shape == told.own_scores.shape == (len(told.ids), 1)
    assert told.privacy_.epsilon("bank") <= 3.0
    assert np.allclose(told.probabilities.sum(axis=1), 1)
