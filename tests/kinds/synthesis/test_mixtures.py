"""Synthetic people from a mixture that is learned in rounds, from chance or from marginals, as a model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from colonnade import Synthesizer
from colonnade.errors import StudyError
from colonnade.kinds.synthesis import beginning, mixing
from colonnade.kinds.tables.layout import Layout
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.people import MIXTURE, ROSTER, ROWS, SCHEMAS, federation, flags, model, simulated, tables
from tests.support.errors import raises, refused

FEW = MIXTURE | {"rows": 120, "components": 2, "iterations": 3, "bins": 6}
STEPS = {"inference": "variational", "batch": 30, "iterations": 4}
START = MIXTURE | {"start": "marginals", "epsilon": {"analyst": 2.0}}


def test_people_of_a_mixture_are_like_others_without_error_bars():
    mixed, other = model("mixture"), model("products").sample(10)
    table = mixed.sample(400)
    assert (table.column_names, table.schema.types) == (other.column_names, other.schema.types)
    young, rich = table["age"].to_numpy() < 16, flags(table, "rich")
    assert young.any()
    assert not (young & rich).any()
    assert mixed.sample().num_rows == ROWS
    found = mixed.marginal("bank.rich", "shop.tier")
    assert (found.asked, found.deviations) == (False, None)
    assert found.counts.sum() == pytest.approx(ROWS)


def test_a_mixture_finds_what_goes_together():
    mixed, people = model("mixture"), federation()
    strong = dict(mixed.population_.strongest(4))
    assert max(strong.values()) > 0.3
    assert {"clinic.ill", "shop.same"} in [set(names) for names in strong]
    dull = simulated(bins=6, rows_at_most=10_000, **MIXTURE | {"components": 1})
    assert mixed.log_likelihood(people).mean() > dull.log_likelihood(people).mean() + 0.1


def test_a_saved_mixture_is_the_same_mixture(tmp_path):
    mixed = model("mixture")
    path = mixed.save(tmp_path / "mixture.json")
    loaded = Synthesizer.load(path)
    assert loaded.sample(100).equals(mixed.sample(100))
    assert (loaded.published(), repr(loaded)) == (mixed.published(), repr(mixed))
    content = json.loads(path.read_text())
    content["parameters"]["components"] = 2
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Synthesizer.load(path)


@pytest.mark.parametrize(
    "more",
    [
        {},
        STEPS,
        STEPS | {"clipping": "joint"},
        STEPS | {"start": "marginals"},
        {"start": "marginals", "label": "clinic.ill", "focus": [("bank.age", "shop.tier")]},
    ],
    ids=["sums", "steps", "joint", "started steps", "started sums"],
)
def test_a_mixture_is_learned_in_threads_and_saved(more, tmp_path):
    people = federation(120)
    found = Synthesizer(**FEW | more).fit(people)
    assert found.sample(50).num_rows == 50
    assert np.isfinite(found.log_likelihood(people)).all()
    loaded = Synthesizer.load(found.save(tmp_path / "mixture.json"))
    assert (loaded.published(), loaded.start) == (found.published(), more.get("start", "none"))
    card = found.published()["card.md"].decode().replace("\n", " ")
    begun = "noisy counts were released for a start alone and are not kept"
    assert (begun in card) == ("start" in more) == ("no counts were published" not in card)


def test_a_mixture_is_fitted_where_seats_check_each_other_and_says_what_nobody_proves():
    given = FEW | {"components": 3, "iterations": 1}
    fitted = Synthesizer(rows_at_most=10_000, **given).fit(federation(120, security="active"))
    assert fitted.sample(50).num_rows == 50
    said = " ".join(str(fitted.privacy_).split())
    assert "in all deviate from the protocol" in said
    assert "every owner keeps the bounds of the rows that it deals, which nobody proves" in said
    refused(
        StudyError, "ST155", "unproven", Synthesizer(**given).fit, federation(120, security="active", inputs="proven")
    )
    refused(StudyError, "ST082", 'method="mixture', Synthesizer(**MIXTURE).plan, replace(ROSTER, hidden=True))


# --- a start from marginals


# By how many deviations of the noise it helps: 36, where many components are learned in a few rounds, and 6.
HELPED = [
    {"components": 8, "iterations": 3, "epsilon": {"analyst": 30.0}},
    {"inference": "variational", "batch": 100, "iterations": 50},
]


@pytest.mark.parametrize("more", HELPED, ids=["sums", "steps"])
def test_a_start_from_marginals_helps_and_costs_no_more(more):
    given, people, likely = {"bins": 6, "rows_at_most": 10_000} | START | more, federation(), []
    for start in ("marginals", "none"):
        found = simulated(seed=9, **given | {"start": start})
        assert 0.99 < found.privacy_.epsilon("analyst") / given["epsilon"]["analyst"] <= 1.0
        likely.append(found.log_likelihood(people).mean())
    assert likely[0] > likely[1]


def test_a_start_follows_from_the_marginals_alone_and_is_close_to_them():
    task, layout = Synthesizer(**START | {"bins": 6, "components": 20}).plan(ROSTER), Layout.of(SCHEMAS, 6)
    first, second = task.stages
    published = marginals.simulate(
        {party: layout.codes(party, own) for party, own in tables().items()}, first, seeded(3)
    )
    start = beginning.start_of(second, layout, published)
    assert start.shape == (20, task.parameters)
    assert np.array_equal(start, beginning.start_of(second, layout, published))
    rows = [tables()[party].unclipped().matrix() for party in SCHEMAS]
    mixture, by_chance = mixing.model_of(second), mixing.learner_of(second).parameters
    assert np.array_equal(mixing.learner_of(second, start).parameters, start)
    assert mixture.log_likelihood(rows, start).mean() > mixture.log_likelihood(rows, by_chance).mean() + 0.5


def test_a_start_is_a_parameter_and_stands_in_the_preflight():
    plain = Synthesizer(**MIXTURE)
    assert plain.get_params()["start"] == "none"
    begun = plain.set_params(start="marginals")
    assert Synthesizer(**begun.get_params()).start == "marginals"
    assert "start='marginals'" in repr(begun)
    given = Synthesizer(**START | {"label": "clinic.ill"})
    task = given.plan(ROSTER)
    found = given.details(task, None)
    assert found.brief[0].startswith("first, one release of the count, 8 columns, 28 pairs and 21 triples")
    assert found.brief[1].startswith("8 openings of sums for 3 components")
    assert found.facts["start"]["numbers"] == task.first.entries
    assert task.events[0].name == "marginals"
