"""Synthetic people, from noisy marginals or a mixture: planned, fitted, drawn, saved, told about and refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade import ColonnadeError, Schema, Statement, Synthesizer
from colonnade.errors import DataError, StudyError
from colonnade.kinds.synthesis.population import Population, column_means, column_shares
from colonnade.kinds.synthesis.release_fit import fit_products
from colonnade.kinds.tables.layout import TableLayout
from colonnade.kinds.tables.release import MarginalsRelease
from colonnade.models.base import ParameterError
from colonnade.testing import seeded
from tests.kinds.synthesis.people import (
    BROAD,
    MIXTURE,
    QUICK,
    ROSTER,
    ROWS,
    SCHEMAS,
    WAYS,
    arrow,
    federation,
    flags,
    model,
    simulated,
    tables,
)
from tests.support.errors import refused
from tests.support.federations import federation as of_columns


def test_people_have_the_columns_types_and_dependences_of_the_schemas_and_rules():
    table, real = model("products").sample(ROWS), arrow()
    kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    assert list(kinds) == ["age", "rich", "bank.same", "spent", "tier", "shop.same", "only", "ill", "town"]
    assert kinds["age"] == pa.int64()
    assert (kinds["spent"], kinds["rich"]) == (pa.float64(), pa.bool_())
    for name, values in (("tier", ["none", "silver", "gold"]), ("only", ["x"]), ("town", ["a", "b"])):
        assert table[name].combine_chunks().dictionary.to_pylist() == values
    assert all(0 < table[name].null_count < ROWS for name in ("spent", "town"))
    age, ill, rich = table["age"].to_numpy(), flags(table, "ill"), flags(table, "rich")
    old, sick = real["bank"]["age"].to_numpy() > 60, flags(real["clinic"], "ill")
    assert abs(ill[age > 60].mean() - sick[old].mean()) < 0.06
    assert abs(ill[age <= 60].mean() - sick[~old].mean()) < 0.06
    assert (age < 16).sum() > 100
    assert not ((age < 16) & rich).any()
    first = model("products").sample(200)
    assert first.equals(model("products").sample(200))
    assert not first.equals(model("products").sample(200, seed=1))


def test_rules_of_schemas_and_of_the_study_both_hold():
    bank = Schema(dict(SCHEMAS["bank"].columns), impossible=["age > 70 and rich = true"])
    whole = of_columns(arrow(), SCHEMAS | {"bank": bank})
    rule = ['clinic.ill = true and shop.tier = "gold"']
    fitted = Synthesizer(impossible=rule, **BROAD, **QUICK).simulate(whole.tables(), whole.roster, seeded(4))
    table = fitted.sample(2_000)
    rich, gold = flags(table, "rich"), np.array(table["tier"].to_pylist()) == "gold"
    assert min(rich.sum(), gold.sum()) > 50
    assert not (rich & (table["age"].to_numpy() > 70)).any()
    assert not (gold & flags(table, "ill")).any()


def test_whoever_never_can_be_is_left_out_and_never_published():
    rule = ["bank.rich = true", "bank.rich = false and bank.age > 2"]
    fitted = simulated(seed=6, impossible=rule, size=400, **BROAD, **QUICK)
    drawn = fitted.population_.sample_table(400, 0)
    assert drawn.redrawn > 200
    assert 0 < drawn.dropped == 400 - drawn.table.num_rows
    assert not flags(drawn.table, "rich").any()
    assert f"{drawn.dropped:,} were left out" in fitted.published_files()["card.md"].decode()


def test_marginals_have_the_published_counts_and_their_noise():
    fitted, real = model("products"), arrow()
    one = fitted.marginal("shop.tier")
    truth = [real["shop"]["tier"].to_pylist().count(value) for value in ("none", "silver", "gold")]
    assert (one.labels, one.asked) == ((("none", "silver", "gold"),), True)
    assert (abs(one.counts - truth) < 6 * one.deviations).all()
    assert one.counts.sum() == pytest.approx(fitted.count_)
    two = fitted.marginal("clinic.ill", "bank.rich")
    ill, rich = flags(real["clinic"], "ill"), flags(real["bank"], "rich")
    truth = np.array([[((ill == i) & (rich == r)).sum() for r in (False, True)] for i in (False, True)])
    assert (abs(two.counts - truth) < 6 * two.deviations).all()
    assert (abs(two.fitted - truth) < 0.05 * ROWS).all()
    assert two.to_pandas().loc[("true", "false"), "count"] == two.counts[1, 0]
    guess = fitted.marginal("bank.rich", "shop.tier", "clinic.town")  # which was not asked for
    assert (guess.asked, guess.deviations) == (False, None)


def test_people_of_several_tables_are_matched_by_id_and_have_the_likelihood_of_their_codes():
    fitted, own = model("products"), arrow()
    found = fitted.log_likelihood(own, same_order=True)
    assert (np.isfinite(found) & (found < 0)).all()
    assert np.array_equal(fitted.log_likelihood(federation()), found)  # ids are in order
    turned = own | {"shop": own["shop"].take(np.arange(ROWS)[::-1])}
    assert not np.allclose(fitted.log_likelihood(turned, same_order=True), found)
    assert np.array_equal(fitted.log_likelihood(turned, id="id"), found)


@pytest.mark.parametrize("way", WAYS)
def test_a_saved_model_is_the_same_model(way, tmp_path):
    fitted = model(way)
    loaded = Synthesizer.load(fitted.save(tmp_path / "model.json"))
    assert loaded.sample(300).equals(fitted.sample(300))
    assert (loaded.summary(), repr(loaded)) == (fitted.summary(), repr(fitted))
    assert loaded.marginal("shop.spent").labels == fitted.marginal("shop.spent").labels
    assert loaded.published_files() == fitted.published_files()


@pytest.mark.parametrize(
    ("way", "part", "changed"),
    [
        ("products", "learned", {"names": ["bank.age"]}),
        ("products", "learned", {"sizes": [2, 2]}),
        ("products", "learned", {"asked": [[0]]}),
        ("products", "learned", {"asked": [[], [99]]}),
        ("products", "learned", {"asked": 3}),
        ("mixture", "parameters", {"components": 2}),
    ],
)
def test_a_damaged_model_is_refused(tmp_path, way, part, changed):
    path = model(way).save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {part: content[part] | changed}))
    refused(StudyError, "ST091", Synthesizer.load, path)


def test_fitting_in_threads_gives_what_is_planned():
    fitted = Synthesizer("clinic.ill", size=77, epsilon=20.0, rows_at_most=10_000, **QUICK).fit(federation(1000))
    assert abs(fitted.count_ - 1000) < 200
    assert fitted.sample().num_rows == 77
    assert 0.5 < fitted.population_.agreements[1].ratio < 1.5
    assert fitted.privacy_.rows[0].epsilon <= 20
    even = Synthesizer(bins=30, even_bins=3, components=5, epsilon={"analyst": 8.0}).fit(federation(200))
    assert len(even.marginal("bank.age").labels[0]) == 3


def test_the_release_is_one_event_within_the_budget_and_its_noise_that_of_the_least_exact_marginal():
    given = Synthesizer("clinic.ill", epsilon={"analyst": 1.0, "party": 2.0}, bins=6)
    task = given.plan(ROSTER)
    assert (len(task.events), task.label) == (1, task.names.index("clinic.ill"))
    assert "shop.only" not in task.names
    assert given.plan(replace(ROSTER, hidden=True)).hidden
    assert given.details(task, None).facts["marginals"] == {"0": 1, "1": 8, "2": 28, "3": 21}
    given = Synthesizer("clinic.ill", bins=6, components=2, **BROAD)
    people = given.simulate(tables(), ROSTER, seeded(3)).population_
    sets = [columns for order in range(4) for columns in people.release.sets(order)]
    worst = max(float(people.release.marginal(columns, people.layout.sizes)[1].max()) for columns in sets)
    assert given.plan(ROSTER).noise_std == pytest.approx(worst, rel=1e-12)
    assert 0.049 < given.plan(ROSTER).adjustable(ROWS).with_error(0.05).error <= 0.05


def test_bins_are_merged_to_even_ones_by_a_first_release():
    fitted = model("even bins")
    task = fitted.plan(ROSTER)
    assert (len(task.events), fitted.details(task, None).facts["stages"]) == (2, 2)
    assert fitted.outlook(ROSTER, task, ROWS) == fitted.outlook(ROSTER, task.stages[1], ROWS)
    spent = fitted.marginal("shop.spent")
    assert (len(spent.labels[0]), spent.labels[0][-1]) == (6, "(missing)")
    assert spent.counts[:-1].min() > 0.4 * spent.counts[:-1].max()
    counted = np.bincount(fitted.population_.layout.codes("shop", tables()["shop"])[:, 0], minlength=6)
    assert (abs(counted - spent.counts) < 6 * spent.deviations).all()


def test_parameters_may_be_of_numpy_and_several_tables_are_published_with_how_to_combine_them(tmp_path):
    edges = {"bank.age": np.array([0.0, 30.0, 60.0, 90.0]), "shop.spent": np.int64(3)}
    cut = simulated(400, **BROAD, components=np.int64(5), tables=np.int64(4), bins=edges)
    assert cut.marginal("bank.age").counts.shape == (3,)
    cut.publish(tmp_path)
    assert len({path.read_bytes() for path in tmp_path.glob("synthetic-*.parquet")}) == 4
    assert "## Intervals" in (tmp_path / "card.md").read_text()
    loaded = Synthesizer.load(cut.save(tmp_path / "model.json"))
    assert loaded.parameters_["bins"] == {"bank.age": [0.0, 30.0, 60.0, 90.0], "shop.spent": 3}
    refused(StudyError, "ST366", Synthesizer(epsilon=1.0, bins=np.array([1, 2])).plan, ROSTER)


# --- shares and means, and intervals from several tables


def test_shares_and_means_are_covered():
    given, layout = Synthesizer(epsilon=1.0, bins=6, rows_at_most=1000), TableLayout.of(SCHEMAS, 6)
    task, held = given.plan(ROSTER), tables(400)
    codes = np.hstack([layout.codes(party, held[party]) for party in SCHEMAS])
    places = {layout.names[column]: at for at, column in enumerate(layout.free)}
    covered, covered_means, fitted = [], [], None
    for k in range(60):
        release = MarginalsRelease.of(given.simulate_result(held, task, seeded(k)))
        fitted = fitted or fit_products(layout.sizes, release.count, release.parts, components=2, steps=2)
        people = Population(layout, release, fitted, ())
        for name, found in column_shares(people).items():
            true = np.bincount(codes[:, places[name]], minlength=len(found)) / 400
            covered += [each.low <= share <= each.high for each, share in zip(found.values(), true, strict=True)]
        for name, mean in column_means(people).items():
            middles = np.add(*layout.columns[layout.names.index(name)].bins.extremes) / 2
            there = codes[:, places[name]][codes[:, places[name]] < len(middles)]  # not missing
            covered_means.append(mean.low <= middles[there].mean() <= mean.high)
    assert 0.90 < np.mean(covered) < 0.99
    assert 0.90 < np.mean(covered_means) < 0.99


def test_a_model_has_shares_and_means_and_its_card_too():
    fitted = model("products")
    found, mean = fitted.marginals(), fitted.means()["shop.spent"]
    names = [f"{party}.{column}" for party, schema in SCHEMAS.items() for column in schema.names]
    assert list(found) == [name for name in names if name != "shop.only"]  # which has one value
    assert list(found["shop.tier"]) == ["none", "silver", "gold"]
    counts = fitted.marginal("shop.tier").counts
    np.testing.assert_allclose(list(found["shop.tier"].values()), counts / fitted.count_)
    layout = fitted.population_.layout
    spent = layout.codes("shop", tables()["shop"])[:, 0]
    middles = np.add(*layout.columns[layout.names.index("shop.spent")].bins.extremes) / 2
    assert abs(mean - middles[spent[spent < len(middles)]].mean()) < 6 * mean.deviation < 100
    assert f"| `shop.spent` | {mean:.4g} ± {2 * mean.deviation:.2g} |" in fitted.published_files()["card.md"].decode()
    mixed = model("mixture")  # learned in rounds: it has no error bars
    assert all(each.deviation is None for own in mixed.marginals().values() for each in own.values())
    assert all(each.deviation is None for each in mixed.means().values())


def share_of_the_ill(table):
    share = flags(table, "ill").mean()
    return share, share * (1 - share) / table.num_rows


def test_intervals_hold_the_truth_and_are_wider_than_the_usual_ones():
    found = model("products").interval(share_of_the_ill, tables=5)
    assert found.between > 0
    assert found.low < found.estimate < found.high
    assert abs(found.estimate - flags(arrow()["clinic"], "ill").mean()) < 6 * found.deviation
    assert found.high - found.low > 2 * 1.96 * np.sqrt(found.within)
    assert model("products").interval(share_of_the_ill, tables=5) == found
    refused(StudyError, "ST150", "tables", "4", model("products").interval, share_of_the_ill, tables=3)
    refused(StudyError, "ST379", model("mixture").interval, share_of_the_ill, tables=4)


# --- a release is kept whatever becomes of the fit, because it was paid for


def test_a_release_whose_fit_failed_is_saved_and_fitted_later(tmp_path):
    given = {"bins": 4, **BROAD}
    task = Synthesizer(**given).plan(ROSTER)
    failed = Synthesizer(components=10**13, **given).simulate(tables(400), ROSTER, seeded(1), task=task)
    assert "no model was fitted yet" in failed.in_short
    failed.parameters_["components"] = 400  # as many as a study may ask for, where another machine had no memory
    loaded = Synthesizer.load(failed.save(tmp_path / "model.json"))
    for call, *given in ((loaded.sample, 5), (loaded.publish, tmp_path), (loaded.summary,)):
        refused(StudyError, "ST347", "stopped by", "MemoryError", call, *given)
    assert loaded.population_.fitted == failed.population_.fitted
    refused(StudyError, "ST150", "components", loaded.refit, components=0)
    refused(StudyError, "ST347", loaded.interval, share_of_the_ill)
    assert loaded.parameters_["components"] == 400
    assert loaded.refit(components=5).sample(50).num_rows == 50
    assert loaded.components == loaded.parameters_["components"] == 5
    again = Synthesizer.load(loaded.save(tmp_path / "model.json"))
    assert again.sample(50).equals(loaded.sample(50))
    assert not again.refit(components=6).sample(50).equals(loaded.sample(50))
    refused(StudyError, "ST373", model("mixture").refit)


# --- what is refused

BY_STEPS = MIXTURE | {"inference": "variational"}


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
        ({"tables": 3}, "[ST349]"),
        ({"tables": 5, "size": 9}, "size"),
        ({"even_bins": 1}, "even_bins must be a whole number from 2"),
        ({"components": 0}, "components must be a whole number from 1"),
        ({"method": "magic"}, "method must be one of"),
        ({"noise": "laplace"}, "noise must be one of"),
        ({"rows_at_most": 0}, "rows_at_most must be a whole number"),
        ({"rows": 100}, 'rows is for method = "mixture" alone; leave it out'),
        ({"iterations": 5, "families": {"bank.age": "beta"}}, 'iterations, families are for method = "mixture" alone'),
        ({"clip": 1.0}, 'clip is for method = "mixture" alone'),
        ({"method": "mixture"}, 'method = "mixture" needs rows'),
        (MIXTURE | {"label": "clinic.ill"}, 'label is for method = "marginals" alone'),
        (MIXTURE | {"tables": 5}, 'tables is for method = "marginals" alone'),
        (MIXTURE | {"batch": 10}, 'batch is for inference = "variational" alone'),
        (BY_STEPS | {"batch": ROWS + 1}, "batch must be a whole number from 1 to 3000"),
        (BY_STEPS | {"clip": -1.0}, "clip must be a positive number"),
        (BY_STEPS | {"learning_rate": float("inf")}, "learning_rate must be a positive number"),
        (MIXTURE | {"inference": "guess"}, "inference must be one of"),
        (MIXTURE | {"families": {"bank.ages": "beta"}}, "families names 'bank.ages', which is no column of this"),
        (MIXTURE | {"families": {"shop.tier": "beta"}}, "families: shop: column 'tier' cannot be described by 'beta'"),
        (MIXTURE | {"families": "beta"}, "families must be a mapping"),
        (MIXTURE | {"iterations": 0}, "iterations must be a whole number from 1"),
        (MIXTURE | {"even_bins": 4}, 'even_bins is for method = "marginals" alone'),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(given, said):
    with pytest.raises(ColonnadeError) as caught:
        Synthesizer(**({"epsilon": 1.0} | given)).plan(ROSTER)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_calls_are_refused_in_one_sentence():
    fitted, fewer = model("products"), arrow() | {"shop": arrow()["shop"].slice(0, 5)}
    for said, call, *given in (
        ("n must be a whole number from 1", fitted.sample, 0),
        ("n must be a whole number from 1", fitted.sample, 2.5),
        ("marginal takes the names of columns", fitted.marginal),
        ("twice", fitted.marginal, "bank.age", "bank.age"),
        ("did you mean 'age'?", fitted.marginal, "bank.ag"),
        ("no table of shop, clinic", fitted.log_likelihood, {"bank": None}),
        ("takes a Federation, or a mapping", fitted.log_likelihood, 3),
    ):
        refused((StudyError, DataError), "ST*|DA*", said, call, *given)
    refused(StudyError, "ST*", "seed must be a whole number", fitted.sample, 5, seed=-1)
    refused(StudyError, "ST073", Synthesizer(epsilon=1.0).sample, 3)
    refused(DataError, "DA*", "different numbers of rows", fitted.log_likelihood, fewer, same_order=True)
    with pytest.raises(ParameterError):
        Synthesizer(epsilon=1.0).set_params(epsilons=2)


FEW = MIXTURE | {"rows": 60, "components": 2, "iterations": 2, "bins": 4}
STEPS = {"inference": "variational", "batch": 20}


def test_people_of_a_mixture_are_like_others_without_error_bars_and_it_finds_what_goes_together():
    mixed, other, people = model("mixture"), model("products").sample(10), federation()
    table = mixed.sample(400)
    assert (table.column_names, table.schema.types) == (other.column_names, other.schema.types)
    young, rich = table["age"].to_numpy() < 16, flags(table, "rich")
    assert young.any()
    assert not (young & rich).any()
    assert mixed.sample().num_rows == ROWS
    found = mixed.marginal("bank.rich", "shop.tier")
    assert (found.asked, found.deviations) == (False, None)
    assert found.counts.sum() == pytest.approx(ROWS)
    strong = dict(mixed.population_.strongest_pairs(4))
    assert max(strong.values()) > 0.3
    assert {"clinic.ill", "shop.same"} in [set(names) for names in strong]
    dull = simulated(bins=6, rows_at_most=10_000, **MIXTURE | {"components": 1})
    assert mixed.log_likelihood(people).mean() > dull.log_likelihood(people).mean() + 0.1


@pytest.mark.parametrize("more", [{}, STEPS | {"clipping": "joint"}], ids=["sums", "joint steps"])
def test_a_mixture_is_learned_in_threads_and_saved(more, tmp_path):
    people = federation(60)
    found = Synthesizer(**FEW | more).fit(people)
    assert found.sample(50).num_rows == 50
    assert np.isfinite(found.log_likelihood(people)).all()
    loaded = Synthesizer.load(found.save(tmp_path / "mixture.json"))
    assert loaded.published_files() == found.published_files()


def test_a_mixture_is_fitted_where_seats_check_each_other_and_says_what_nobody_proves():
    given = FEW | {"components": 3, "iterations": 1}
    fitted = Synthesizer(rows_at_most=10_000, **given).fit(federation(60, security="active"))
    assert fitted.sample(50).num_rows == 50
    said = " ".join(str(fitted.privacy_).split())
    assert "in all deviate from the protocol" in said
    assert "every owner keeps the bounds of the rows that it deals, which nobody proves" in said
    refused(
        StudyError, "ST155", "unproven", Synthesizer(**given).fit, federation(60, security="active", inputs="proven")
    )
    refused(StudyError, "ST082", 'method="mixture', Synthesizer(**MIXTURE).plan, replace(ROSTER, hidden=True))


def test_files_for_readers(tmp_path):
    fitted = model("products")
    names = ["synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md", "privacy.json"]
    assert [path.name for path in fitted.publish(tmp_path)] == names
    table = pyarrow.parquet.read_table(tmp_path / "synthetic.parquet")
    assert table.num_rows == round(fitted.count_)
    text = pyarrow.csv.read_csv(tmp_path / "synthetic.csv")
    assert (text.column_names, text.num_rows) == (table.column_names, table.num_rows)
    assert text["spent"].null_count == table["spent"].null_count
    assert "spent" in (tmp_path / "dictionary.md").read_text()
    assert Statement.from_dict(json.loads((tmp_path / "privacy.json").read_text())) == fitted.privacy_


SAID = {
    "products": [
        "how any two columns go together, and for learning to predict `clinic.ill`",
        "as evenly as the counts allow", "`tables = 20`", "Of a number only its bin was counted",
        "One noisy release, a mixture of products", "What it is good for", "What it is not good for", "analyst",
        "`bank.age` with `shop.spent`", "`bank.age < 16 and bank.rich = true`", "people were drawn again",
    ],
    "even bins": ["Two noisy releases: counts of narrow bins", "`tables = 20`"],
    "mixture": [
        "nothing here has an error bar", "takes columns as independent", "**Missing cells.** The table has none",
        "Noisy sums in rounds",
    ],
}  # fmt: skip
ABSENT = {
    "products": ["Two noisy releases", "Missing cells"],
    "even bins": ["One noisy release", "Missing cells"],
    "mixture": [
        "were not counted", "as the counts allow", "error bars of the published counts", "`tables", "its bin",
        "noisy release", "noisy counts about", "bin was counted", "published counts",
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_readers_are_told_what_is_so_and_nothing_else(way):
    fitted = model(way)
    files = {
        name: content.decode() for name, content in fitted.published_files().items() if name.endswith((".md", ".json"))
    }
    assert [text for text in SAID[way] if text not in files["card.md"]] == []
    assert [text for text in ABSENT[way] if text in files["card.md"]] == []
    columns = {column["name"]: column for column in json.loads(files["dictionary.json"])["columns"]}
    table = fitted.sample(500)
    assert list(columns) == table.column_names
    missing = table["spent"].null_count > 0
    assert missing == (way != "mixture")
    assert columns["spent"]["missing"] == ("an empty cell" if missing else "does not occur")
    if way == "mixture":
        assert "bins" not in files["dictionary.md"] + files["dictionary.json"]
    else:
        assert len(columns["age"]["bins"]) == (5 if way == "even bins" else 6)
