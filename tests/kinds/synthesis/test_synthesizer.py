"""The model of synthetic people: planned, fitted, drawn, saved, and every refusal."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

from colonnade import ColonnadeError, Federation, Party, Schema, Statement, Synthesizer, category, flag, number
from colonnade.errors import DataError, StudyError
from colonnade.kinds.synthesis import beginning, mixing
from colonnade.kinds.tables.layout import Layout
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.models import Roster
from colonnade.models.conventions import ParameterError
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

ROWS = 3_000
SCHEMAS = {
    "bank": Schema({"age": number(0, 90, whole=True), "rich": flag(), "same": number(0, 1)}),
    "shop": Schema(
        {
            "spent": number(0, 1000, transform="log1p", missing="none"),
            "tier": category(["none", "silver", "gold"]),
            "same": flag(),
            "only": category(["x"]),
        }
    ),
    "clinic": Schema({"ill": flag(), "town": category(["a", "b"], missing="none")}),
}
BROAD = {"epsilon": 20.0, "rows_at_most": 10_000}
QUICK = {"components": 20, "bins": 6}


def tables(rows: int = ROWS, seed: int = 5) -> dict[str, pa.Table]:
    """Made-up people whose columns depend on each other across the parties."""
    rng = np.random.default_rng(seed)
    ids = [f"p{k:06}" for k in range(rows)]
    age, rich = rng.integers(0, 91, rows), rng.random(rows) < 0.4
    ill = rng.random(rows) < 0.1 + 0.6 * (age > 60)
    spent = np.round(np.exp(rng.normal(3 + 2 * rich, 0.6)), 2).clip(0, 1000)
    tier = np.array(["none", "silver", "gold"])[rich.astype(int) + (rng.random(rows) < 0.3)]
    town = np.where(rng.random(rows) < 0.2, None, np.where(rng.random(rows) < 0.7, "a", "b"))
    return {
        "bank": pa.table({"id": ids, "age": age, "rich": rich, "same": rng.random(rows)}),
        "shop": pa.table(
            {
                "id": ids,
                "spent": pa.array(spent, mask=rng.random(rows) < 0.1),
                "tier": tier,
                "same": ill,
                "only": ["x"] * rows,
            }
        ),
        "clinic": pa.table({"id": ids, "ill": ill, "town": pa.array(town.tolist(), pa.string())}),
    }


def federation(rows: int = ROWS) -> Federation:
    return Federation([Party(name, table, schema=SCHEMAS[name], id="id") for name, table in tables(rows).items()])


@pytest.fixture(scope="module")
def people() -> Federation:
    return federation()


@pytest.fixture(scope="module")
def model(people) -> Synthesizer:
    given = Synthesizer(
        "clinic.ill",
        focus=[("bank.age", "shop.spent")],
        impossible=["bank.age < 16 and bank.rich = true"],
        **BROAD,
        **QUICK,
    )
    return given.simulate(people.tables(), people.roster, seeded(3))


@pytest.fixture(scope="module")
def roster() -> Roster:
    return Roster.of(SCHEMAS)


def test_columns_types_and_categories_are_those_of_the_schemas(model):
    table = model.sample(500)
    assert table.num_rows == 500
    assert table.column_names == ["age", "rich", "bank.same", "spent", "tier", "shop.same", "only", "ill", "town"]
    kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    assert kinds["age"] == pa.int64()
    assert kinds["spent"] == kinds["bank.same"] == pa.float64()
    assert kinds["rich"] == kinds["ill"] == kinds["shop.same"] == pa.bool_()
    for name, values in (("tier", ["none", "silver", "gold"]), ("only", ["x"]), ("town", ["a", "b"])):
        assert table[name].combine_chunks().dictionary.to_pylist() == values
    assert 0 < table["spent"].null_count < 500
    assert 0 < table["town"].null_count < 500
    assert set(table["only"].to_pylist()) == {"x"}
    assert table["tier"].null_count == 0


def test_the_same_seed_gives_the_same_people_and_another_one_others(model):
    first = model.sample(200)
    assert first.equals(model.sample(200))
    assert not first.equals(model.sample(200, seed=1))


def test_what_depends_on_each_other_does_so_in_the_table(model, people):
    table = model.sample(ROWS)
    age, ill = table["age"].to_numpy(), table["ill"].to_numpy(zero_copy_only=False)
    real = tables()
    old, sick = real["bank"]["age"].to_numpy() > 60, real["clinic"]["ill"].to_numpy(zero_copy_only=False)
    assert abs(ill[age > 60].mean() - sick[old].mean()) < 0.06
    assert abs(ill[age <= 60].mean() - sick[~old].mean()) < 0.06
    assert abs(table.num_rows - ROWS) < 1


def test_nobody_who_cannot_be_is_drawn(model):
    table = model.sample(2_000)
    young, rich = table["age"].to_numpy() < 16, table["rich"].to_numpy(zero_copy_only=False)
    assert young.sum() > 100
    assert not (young & rich).any()


def test_rules_of_schemas_and_of_the_study_both_hold(people):
    schema = Schema(dict(SCHEMAS["bank"].columns), impossible=["age > 70 and rich = true"])
    parties = [Party("bank", tables()["bank"], schema=schema, id="id"), *list(federation().parties.values())[1:]]
    whole = Federation(parties)
    rule = ['clinic.ill = true and shop.tier = "gold"']
    fitted = Synthesizer(impossible=rule, **BROAD, **QUICK).simulate(whole.tables(), whole.roster, seeded(4))
    table = fitted.sample(2_000)
    rich = table["rich"].to_numpy(zero_copy_only=False)
    gold = np.array(table["tier"].to_pylist()) == "gold"
    assert rich.sum() > 100
    assert gold.sum() > 50
    assert not (rich & (table["age"].to_numpy() > 70)).any()
    assert not (gold & table["ill"].to_numpy(zero_copy_only=False)).any()


def test_whoever_never_can_be_is_left_out_and_never_published(people):
    rule = ["bank.rich = true", "bank.rich = false and bank.age > 2"]
    fitted = Synthesizer(impossible=rule, size=400, **BROAD, **QUICK)
    fitted.simulate(people.tables(), people.roster, seeded(6))
    drawn = fitted.population_.drawn(400, 0)
    assert drawn.redrawn > 200
    assert drawn.dropped > 0
    assert drawn.table.num_rows == 400 - drawn.dropped
    assert not drawn.table["rich"].to_numpy(zero_copy_only=False).any()
    assert f"{drawn.dropped:,} were left out" in fitted.published()["card.md"].decode()


def test_marginals_have_the_published_counts_and_their_noise(model):
    real = tables()
    one = model.marginal("shop.tier")
    truth = [real["shop"]["tier"].to_pylist().count(value) for value in ("none", "silver", "gold")]
    assert one.labels == (("none", "silver", "gold"),)
    assert one.asked
    assert (abs(one.counts - truth) < 6 * one.deviations).all()
    assert one.counts.sum() == pytest.approx(model.count_)
    two = model.marginal("clinic.ill", "bank.rich")
    turned = model.marginal("bank.rich", "clinic.ill")
    assert np.allclose(two.counts, turned.counts.T)
    assert np.allclose(two.fitted, turned.fitted.T)
    ill = real["clinic"]["ill"].to_numpy(zero_copy_only=False)
    rich = real["bank"]["rich"].to_numpy(zero_copy_only=False)
    truth = np.array([[((ill == i) & (rich == r)).sum() for r in (False, True)] for i in (False, True)])
    assert (abs(two.counts - truth) < 6 * two.deviations).all()
    assert (abs(two.fitted - truth) < 0.05 * ROWS).all()
    assert model.marginal("clinic.ill", "bank.age", "shop.tier").asked
    frame = two.to_pandas()
    assert list(frame.columns) == ["count", "fitted", "deviation"]
    assert frame.loc[("true", "false"), "count"] == two.counts[1, 0]


def test_a_marginal_that_was_not_asked_for_has_no_error_bar(model):
    guess = model.marginal("bank.rich", "shop.tier", "clinic.town")
    assert not guess.asked
    assert guess.deviations is None
    assert guess.counts.sum() == pytest.approx(model.count_)


def test_likelihood_is_that_of_the_codes(model, people):
    found = model.log_likelihood(people)
    assert found.shape == (ROWS,)
    assert np.isfinite(found).all()
    assert (found < 0).all()
    rows = {name: table.slice(0, 3) for name, table in tables().items()}
    assert np.allclose(model.log_likelihood(rows, id="id"), found[:3])
    mixed = rows | {"clinic": tables(seed=9)["clinic"].slice(0, 3)}
    assert not np.allclose(model.log_likelihood(mixed, id="id"), found[:3])


def test_a_tree_is_fitted_saved_and_drawn_from(people, tmp_path):
    tree = Synthesizer(model="tree", bins=6, **BROAD).simulate(people.tables(), people.roster, seeded(7))
    assert tree.sample(300).num_rows == 300
    loaded = Synthesizer.load(tree.save(tmp_path / "tree.json"))
    assert loaded.sample(300).equals(tree.sample(300))


def test_a_saved_model_is_the_same_model(model, tmp_path):
    path = model.save(tmp_path / "model.json")
    assert json.loads(path.read_text())["kind"] == "synthetic"
    loaded = Synthesizer.load(path)
    assert loaded.sample(100).equals(model.sample(100))
    assert loaded.summary() == model.summary()
    assert repr(loaded) == repr(model)
    assert np.array_equal(loaded.marginal("bank.age").counts, model.marginal("bank.age").counts)
    assert loaded.published() == model.published()


@pytest.mark.parametrize(
    ("what", "value"),
    [("names", ["bank.age"]), ("sizes", [2, 2]), ("asked", [[0]]), ("asked", [[], [99]]), ("asked", 3)],
)
def test_a_damaged_model_is_refused(model, tmp_path, what, value):
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    content["learned"][what] = value
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Synthesizer.load(path)


def test_files_for_readers(model, tmp_path):
    written = model.publish(tmp_path)
    assert [path.name for path in written] == [
        "synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md", "privacy.json",
    ]  # fmt: skip
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "synthetic.parquet")
    assert table.num_rows == round(model.count_)
    assert table.schema.types == model.sample(10).schema.types
    text = pyarrow.csv.read_csv(tmp_path / "synthetic.csv")
    assert text.column_names == table.column_names
    assert text.num_rows == table.num_rows
    assert text["spent"].null_count == table["spent"].null_count
    held = json.loads((tmp_path / "dictionary.json").read_text())
    assert [column["name"] for column in held["columns"]] == table.column_names
    page = (tmp_path / "card.md").read_text()
    for said in ("What it is good for", "What it is not good for", "`clinic.ill`", "`bank.age` with `shop.spent`",
                 "analyst", "`bank.age < 16 and bank.rich = true`", "people were drawn again"):  # fmt: skip
        assert said in page
    assert "spent" in (tmp_path / "dictionary.md").read_text()
    assert Statement.from_dict(json.loads((tmp_path / "privacy.json").read_text())) == model.privacy_


def test_size_says_how_many_people_are_drawn(people):
    fitted = Synthesizer(size=77, **BROAD, **QUICK).simulate(people.tables(), people.roster, seeded(8))
    assert fitted.sample().num_rows == 77
    assert "77 made-up people" in fitted.in_short


def test_fitting_in_threads_gives_what_is_planned(people):
    fitted = Synthesizer("clinic.ill", **BROAD, **QUICK).fit(people)
    assert abs(fitted.count_ - ROWS) < 200
    assert 0.5 < fitted.population_.agreements[1].ratio < 1.5
    assert fitted.privacy_.rows[0].epsilon <= 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"label": "clinic.il"}, "label names 'clinic.il', and clinic has no such column; did you mean 'ill'?"),
        ({"label": "nobody.ill"}, "label names 'nobody.ill', which is not party.column"),
        ({"label": "shop.only"}, "has only one value"),
        ({"focus": [("bank.age", "shop.tiers")]}, "focus names 'shop.tiers', and shop has no such column"),
        ({"focus": [("bank.age", "bank.age")]}, "focus pairs 'bank.age' with itself"),
        ({"focus": [("bank.age",)]}, "focus lists pairs"),
        ({"focus": "bank.age"}, "focus must be a list of pairs"),
        ({"focus": [("bank.age", "shop.tier"), ("shop.tier", "bank.age")]}, "twice"),
        ({"bins": {"shop.tier": 4}}, "shop: bins of column 'tier': it is a category"),
        ({"bins": {"shop.tear": 4}}, "bins names 'shop.tear', which is no column of this study; did you mean"),
        ({"bins": {"bank.age": [0, 50, 30, 90]}}, "bank: bins of column 'age'"),
        ({"bins": "many"}, "bins must be a number, or a mapping"),
        ({"bins": True}, "bins must be a number, or a mapping"),
        ({"impossible": ["bank.age <"]}, "impossible: 'bank.age <' cannot be read"),
        ({"impossible": ["bank.ages < 3"]}, "there is no column 'bank.ages'; did you mean 'bank.age'?"),
        ({"impossible": "bank.age < 3"}, "impossible must be a list"),
        ({"size": 0}, "size must be a whole number from 1"),
        ({"tables": 0}, "tables must be a whole number from 1"),
        ({"even_bins": 1}, "even_bins must be a whole number from 2"),
        ({"components": 0}, "components must be a whole number from 1"),
        ({"components": 10, "model": "tree"}, "components is for model"),
        ({"model": "forest"}, "model must be one of"),
        ({"method": "magic"}, "method must be one of"),
        ({"noise": "laplace"}, "noise must be one of"),
        ({"rows_at_most": 0}, "rows_at_most must be a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(roster, given, said):
    with pytest.raises(ColonnadeError) as caught:
        Synthesizer(**({"epsilon": 1.0} | given)).plan(roster)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.sample(0), "n must be a whole number from 1"),
        (lambda m: m.sample(2.5), "n must be a whole number from 1"),
        (lambda m: m.sample(5, seed=-1), "seed must be a whole number"),
        (lambda m: m.marginal(), "marginal takes the names of columns"),
        (lambda m: m.marginal("bank.age", "bank.age"), "twice"),
        (lambda m: m.marginal("bank.ag"), "did you mean 'age'?"),
        (lambda m: m.log_likelihood({"bank": None}), "no table of shop, clinic"),
        (lambda m: m.log_likelihood(3), "takes a Federation, or a mapping"),
        (
            lambda m: m.log_likelihood(tables() | {"shop": tables()["shop"].slice(0, 5)}, same_order=True),
            "different numbers of rows",
        ),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(model, call, said):
    with pytest.raises((StudyError, DataError)) as caught:
        call(model)
    assert said in str(caught.value)


def test_an_unfitted_model_says_so():
    with raises(StudyError, "ST073"):
        Synthesizer(epsilon=1.0).sample(3)
    with pytest.raises(ParameterError):
        Synthesizer(epsilon=1.0).set_params(epsilons=2)


def test_the_release_is_one_event_within_the_budget(roster):
    task = Synthesizer("clinic.ill", epsilon={"analyst": 1.0, "party": 2.0}, bins=6).plan(roster)
    assert len(task.events) == 1
    assert task.label == task.names.index("clinic.ill")
    assert "shop.only" not in task.names
    assert sum(len(block.columns) == 3 for block in task.asked) == 21
    told = Synthesizer("clinic.ill", epsilon=1.0).details(task, None)
    assert told.facts["marginals"] == {"0": 1, "1": 8, "2": 28, "3": 21}
    assert "28 pairs and 21 triples with the label" in told.brief[0]


# --- a mixture, learned in rounds

MIXTURE = {"method": "mixture", "rows": ROWS, "components": 3, "iterations": 8, "epsilon": {"analyst": 5.0}}


@pytest.fixture(scope="module")
def mixed(people) -> Synthesizer:
    rule = ["bank.age < 16 and bank.rich = true"]
    given = Synthesizer(impossible=rule, bins=6, rows_at_most=10_000, **MIXTURE)
    return given.simulate(people.tables(), people.roster, seeded(9))


def test_people_of_a_mixture_have_the_columns_and_types_of_the_schemas(mixed, model):
    table = mixed.sample(400)
    assert table.schema.types == model.sample(10).schema.types
    assert table.column_names == model.sample(10).column_names
    young, rich = table["age"].to_numpy() < 16, table["rich"].to_numpy(zero_copy_only=False)
    assert young.any()
    assert not (young & rich).any()
    assert mixed.sample().num_rows == ROWS


def test_a_mixture_finds_what_goes_together(mixed, people):
    strong = dict(mixed.population_.strongest(4))
    assert max(strong.values()) > 0.3
    assert {"clinic.ill", "shop.same"} in [set(names) for names in strong]
    dull = Synthesizer(bins=6, rows_at_most=10_000, **MIXTURE | {"components": 1})
    dull.simulate(people.tables(), people.roster, seeded(9))
    assert mixed.log_likelihood(people).mean() > dull.log_likelihood(people).mean() + 0.1


def test_marginals_of_a_mixture_have_no_error_bars(mixed):
    found = mixed.marginal("bank.rich", "shop.tier")
    assert not found.asked
    assert found.counts.sum() == pytest.approx(ROWS)
    assert found.deviations is None


def test_the_card_of_a_mixture_says_nothing_about_counts(mixed):
    published = {
        name: content.decode() for name, content in mixed.published().items() if name.endswith((".md", ".json"))
    }
    card = published["card.md"].replace("\n", " ")
    assert "nothing here has an error bar" in card
    for false in (
        "bin was counted",
        "were not counted",
        "published counts",
        "tables = 20",
        "as the counts allow",
        "by chance",
    ):
        assert false not in card
    assert "bins" not in published["dictionary.md"] + published["dictionary.json"]
    assert {column["missing"] for column in json.loads(published["dictionary.json"])["columns"]} == {"does not occur"}


def test_a_saved_mixture_is_the_same_mixture(mixed, tmp_path):
    path = mixed.save(tmp_path / "mixture.json")
    loaded = Synthesizer.load(path)
    assert loaded.sample(100).equals(mixed.sample(100))
    assert loaded.published() == mixed.published()
    assert repr(loaded) == repr(mixed)
    content = json.loads(path.read_text())
    content["parameters"]["components"] = 2
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Synthesizer.load(path)


STEPS = {"inference": "variational", "batch": 30, "iterations": 4}


@pytest.mark.parametrize("more", [{}, STEPS, STEPS | {"clipping": "joint"}])
def test_a_mixture_is_learned_in_threads_as_planned(more):
    rows = 120
    found = Synthesizer(bins=6, **MIXTURE | {"rows": rows, "components": 2, "iterations": 3} | more).fit(
        federation(rows)
    )
    assert found.sample(50).num_rows == 50
    assert np.isfinite(found.log_likelihood(federation(rows))).all()


# --- a mixture that starts from marginals

START = MIXTURE | {"start": "marginals", "epsilon": {"analyst": 2.0}}


# By how many deviations of the noise it helps: 36, where many components are learned in a few rounds, and 6.
HELPED = [
    {"components": 8, "iterations": 3, "epsilon": {"analyst": 30.0}},
    {"inference": "variational", "batch": 100, "iterations": 50},
]


@pytest.mark.parametrize("more", HELPED)
def test_a_start_from_marginals_helps_and_costs_no_more(people, more):
    given = {"bins": 6, "rows_at_most": 10_000} | START | more
    begun, chance = Synthesizer(**given), Synthesizer(**given | {"start": "none"})
    for each in (begun, chance):
        each.simulate(people.tables(), people.roster, seeded(9))
        figure = each.privacy_.epsilon("analyst") / given["epsilon"]["analyst"]
        assert 0.99 < figure <= 1.0
    assert begun.log_likelihood(people).mean() > chance.log_likelihood(people).mean()
    assert begun.sample(20).schema == chance.sample(20).schema


def test_a_start_follows_from_the_marginals_alone_and_is_close_to_them(people, roster):
    task = Synthesizer(**START | {"bins": 6, "components": 20}).plan(roster)
    first, second = task.stages
    layout = Layout.of(SCHEMAS, 6)
    codes = {party: layout.codes(party, table) for party, table in people.tables().items()}
    published = marginals.simulate(codes, first, seeded(3))
    start = beginning.start_of(second, layout, published)
    assert start.shape == (20, task.parameters)
    assert np.array_equal(start, beginning.start_of(second, layout, published))
    rows = [people.tables()[party].unclipped().matrix() for party in SCHEMAS]
    model = mixing.model_of(second)
    by_chance = mixing.learner_of(second).parameters
    assert np.array_equal(mixing.learner_of(second, start).parameters, start)
    assert model.log_likelihood(rows, start).mean() > model.log_likelihood(rows, by_chance).mean() + 0.5


@pytest.mark.parametrize("more", [STEPS, {"label": "clinic.ill", "focus": [("bank.age", "shop.tier")]}])
def test_a_started_mixture_is_learned_in_threads_and_saved(more, tmp_path):
    rows = 120
    given = START | {"rows": rows, "components": 2, "iterations": 3} | more
    found = Synthesizer(bins=4, **given).fit(federation(rows))
    assert found.sample(50).num_rows == 50
    assert np.isfinite(found.log_likelihood(federation(rows))).all()
    loaded = Synthesizer.load(found.save(tmp_path / "started.json"))
    assert loaded.published() == found.published()
    assert loaded.start == "marginals"
    card = found.published()["card.md"].decode().replace("\n", " ")
    assert "noisy counts were released for a start alone and are not kept" in card
    assert "no counts were published" not in card


def test_a_start_is_a_parameter_that_can_be_set_and_copied():
    plain = Synthesizer(**MIXTURE)
    assert plain.get_params()["start"] == "none"
    begun = plain.set_params(start="marginals")
    assert Synthesizer(**begun.get_params()).start == "marginals"
    assert "start='marginals'" in repr(begun)


def test_a_preflight_says_what_is_released_before_the_rounds(roster):
    given = Synthesizer(**START | {"label": "clinic.ill"})
    task = given.plan(roster)
    found = given.details(task, None)
    assert found.brief[0].startswith("first, one release of the count, 8 columns, 28 pairs and 21 triples")
    assert found.brief[1].startswith("8 openings of sums for 3 components")
    assert found.facts["start"]["numbers"] == task.first.entries
    assert [event.name for event in task.events[:1]] == ["marginals"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start": "marginals"}, 'start is for method = "mixture" alone; leave it out'),
        (MIXTURE | {"start": "marginal"}, "start must be one of 'none', 'marginals', not 'marginal'"),
        (START | {"even_bins": 4}, 'even_bins is for method = "marginals" alone'),
        (START | {"model": "tree"}, 'model is for method = "marginals" alone'),
        (START | {"tables": 5}, 'tables is for method = "marginals" alone'),
        (START | {"label": "clinic.well"}, "label names 'clinic.well', and clinic has no such column"),
        (START | {"focus": [("bank.age", "bank.age")]}, "focus pairs 'bank.age' with itself"),
        (START | {"rows": None}, 'method = "mixture" needs rows'),
    ],
)
def test_a_start_that_cannot_be_is_refused(roster, given, said):
    with pytest.raises(ColonnadeError) as caught:
        Synthesizer(**({"epsilon": 1.0} | given)).plan(roster)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": 100}, 'rows is for method = "mixture" alone; leave it out'),
        ({"iterations": 5, "families": {"bank.age": "beta"}}, 'iterations, families are for method = "mixture" alone'),
        ({"clip": 1.0}, 'clip is for method = "mixture" alone'),
        ({"method": "mixture"}, 'method = "mixture" needs rows'),
        (MIXTURE | {"label": "clinic.ill"}, 'label is for method = "marginals" or start = "marginals" alone'),
        (MIXTURE | {"tables": 5}, 'tables is for method = "marginals" alone'),
        (MIXTURE | {"model": "tree"}, 'model is for method = "marginals" alone'),
        (MIXTURE | {"batch": 10}, 'batch is for inference = "variational" alone'),
        (MIXTURE | {"inference": "variational", "batch": ROWS + 1}, "batch must be a whole number from 1 to 3000"),
        (MIXTURE | {"inference": "variational", "clip": -1.0}, "clip must be a positive number"),
        (
            MIXTURE | {"inference": "variational", "learning_rate": float("inf")},
            "learning_rate must be a positive number",
        ),
        (MIXTURE | {"inference": "guess"}, "inference must be one of"),
        (
            MIXTURE | {"families": {"bank.ages": "beta"}},
            "families names 'bank.ages', which is no column of this study; did",
        ),
        (MIXTURE | {"families": {"shop.tier": "beta"}}, "families: shop: column 'tier' cannot be described by 'beta'"),
        (MIXTURE | {"families": "beta"}, "families must be a mapping"),
        (MIXTURE | {"iterations": 0}, "iterations must be a whole number from 1"),
    ],
)
def test_what_does_not_belong_to_the_method_is_refused(roster, given, said):
    with pytest.raises(ColonnadeError) as caught:
        Synthesizer(**({"epsilon": 1.0} | given)).plan(roster)
    assert said in str(caught.value)


def test_a_mixture_is_fitted_where_seats_check_each_other_and_says_what_nobody_proves():
    parties = list(federation(120).parties.values())
    given = MIXTURE | {"rows": 120, "iterations": 1}
    fitted = Synthesizer(bins=6, rows_at_most=10_000, **given).fit(Federation(parties, security="active"))
    assert fitted.sample(50).num_rows == 50
    said = " ".join(str(fitted.privacy_).split())
    assert "in all deviate from the protocol" in said
    assert "every owner keeps the bounds of the rows that it deals, which nobody proves" in said
    with raises(StudyError, "ST155", "unproven"):
        Synthesizer(**given).fit(Federation(parties, security="active", inputs="proven"))


def test_a_mixture_is_refused_after_a_hidden_alignment(roster):
    with raises(StudyError, "ST082", 'method="mixture'):
        Synthesizer(**MIXTURE).plan(replace(roster, hidden=True))


# --- several tables


def test_intervals_hold_the_truth_and_are_wider_than_the_usual_ones(model):
    real = tables()["clinic"]["ill"].to_numpy(zero_copy_only=False).mean()

    def ill(table):
        share = table["ill"].to_numpy(zero_copy_only=False).mean()
        return share, share * (1 - share) / table.num_rows

    found = model.interval(ill, tables=5)
    assert found.between > 0
    assert found.low < found.estimate < found.high
    assert abs(found.estimate - real) < 6 * found.deviation
    assert found.high - found.low > 2 * 1.96 * np.sqrt(found.within)
    assert model.interval(ill, tables=5) == found
    with raises(StudyError, "ST150", "tables", "4"):
        model.interval(ill, tables=3)


def test_several_tables_are_published_with_how_to_combine_them(people, tmp_path):
    fitted = Synthesizer(tables=4, **BROAD, **QUICK).simulate(people.tables(), people.roster, seeded(3))
    names = [path.name for path in fitted.publish(tmp_path)]
    assert names[:8] == [f"synthetic-{k}.{end}" for k in range(1, 5) for end in ("parquet", "csv")]
    held = {(tmp_path / f"synthetic-{k}.parquet").read_bytes() for k in range(1, 5)}
    assert len(held) == 4
    assert "## Intervals" in (tmp_path / "card.md").read_text()


def test_a_tree_and_a_mixture_have_no_several_tables(people, mixed, roster):
    tree = Synthesizer(model="tree", bins=6, **BROAD).simulate(people.tables(), people.roster, seeded(7))
    for each in (tree, mixed):
        with raises(StudyError, "ST379"):
            each.interval(lambda table: (0.0, 1.0), tables=4)
    refused = {
        ("ST349", "4"): {"tables": 3},
        ("ST356", "tables", "products"): {"tables": 5, "model": "tree"},
        ("ST356", "size", "1"): {"tables": 5, "size": 9},
    }
    for said, wrong in refused.items():
        with raises(StudyError, said):
            Synthesizer(epsilon=1.0, **wrong).plan(roster)


def test_a_graphical_model_needs_its_package(roster):
    if find_spec("mbi") is None:
        with raises(StudyError, "ST352"):
            Synthesizer(epsilon=1.0, model="pgm").plan(roster)
    else:
        assert Synthesizer(epsilon=1.0, model="pgm").plan(roster).events


# --- even bins, from a first release


def test_bins_are_merged_to_even_ones_by_a_first_release(people, tmp_path):
    fitted = Synthesizer("clinic.ill", bins=40, even_bins=5, components=20, **BROAD)
    task = fitted.plan(people.roster)
    assert len(task.events) == 2
    assert fitted.details(task, None).facts["stages"] == 2
    fitted.simulate(people.tables(), people.roster, seeded(3), task=task)
    spent = fitted.marginal("shop.spent")
    assert len(spent.labels[0]) == 6
    assert spent.labels[0][-1] == "(missing)"
    assert spent.counts[:-1].min() > 0.4 * spent.counts[:-1].max()
    assert fitted.marginal("shop.tier").labels == (("none", "silver", "gold"),)
    layout, real = fitted.population_.layout, people.tables()["shop"]
    counted = np.bincount(layout.codes("shop", real)[:, 0], minlength=6)
    assert (abs(counted - spent.counts) < 6 * spent.deviations).all()
    loaded = Synthesizer.load(fitted.save(tmp_path / "even.json"))
    assert loaded.sample(100).equals(fitted.sample(100))
    assert loaded.marginal("shop.spent").labels == spent.labels


def test_even_bins_are_found_in_threads_too():
    people = federation(200)
    fitted = Synthesizer(bins=30, even_bins=3, components=5, epsilon={"analyst": 8.0}).fit(people)
    assert len(fitted.marginal("bank.age").labels[0]) == 3
