"""Synthetic people from noisy marginals: planned, fitted, drawn, saved, kept whatever a fit becomes, and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

from colonnade import ColonnadeError, Schema, Synthesizer
from colonnade.errors import DataError, StudyError
from colonnade.kinds.synthesis.fitting import Unfitted
from colonnade.kinds.synthesis.population import Population
from colonnade.kinds.synthesis.shares import means, shares
from colonnade.kinds.synthesis.tree import fit_tree
from colonnade.kinds.tables.layout import Layout
from colonnade.kinds.tables.release import Release
from colonnade.models.conventions import ParameterError
from colonnade.tables import read_table
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.people import (
    BROAD,
    MIXTURE,
    QUICK,
    ROSTER,
    ROWS,
    SCHEMAS,
    arrow,
    federation,
    flags,
    model,
    simulated,
    tables,
)
from tests.support.errors import raises, refused
from tests.support.federations import federation as of_columns


def test_people_have_the_columns_types_and_dependences_of_the_schemas_and_rules():
    table, real = model("products").sample(ROWS), arrow()
    kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    assert list(kinds) == ["age", "rich", "bank.same", "spent", "tier", "shop.same", "only", "ill", "town"]
    assert kinds["age"] == pa.int64()
    assert {kinds["spent"], kinds["bank.same"]} == {pa.float64()}
    assert {kinds["rich"], kinds["ill"], kinds["shop.same"]} == {pa.bool_()}
    for name, values in (("tier", ["none", "silver", "gold"]), ("only", ["x"]), ("town", ["a", "b"])):
        assert table[name].combine_chunks().dictionary.to_pylist() == values
    assert all(0 < table[name].null_count < ROWS for name in ("spent", "town"))
    assert table["tier"].null_count == 0
    assert set(table["only"].to_pylist()) == {"x"}
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
    drawn = fitted.population_.drawn(400, 0)
    assert drawn.redrawn > 200
    assert 0 < drawn.dropped == 400 - drawn.table.num_rows
    assert not flags(drawn.table, "rich").any()
    assert f"{drawn.dropped:,} were left out" in fitted.published()["card.md"].decode()


def test_marginals_have_the_published_counts_and_their_noise():
    fitted, real = model("products"), arrow()
    one = fitted.marginal("shop.tier")
    truth = [real["shop"]["tier"].to_pylist().count(value) for value in ("none", "silver", "gold")]
    assert (one.labels, one.asked) == ((("none", "silver", "gold"),), True)
    assert (abs(one.counts - truth) < 6 * one.deviations).all()
    assert one.counts.sum() == pytest.approx(fitted.count_)
    two, turned = fitted.marginal("clinic.ill", "bank.rich"), fitted.marginal("bank.rich", "clinic.ill")
    assert np.allclose([two.counts, two.fitted], [turned.counts.T, turned.fitted.T])
    ill, rich = flags(real["clinic"], "ill"), flags(real["bank"], "rich")
    truth = np.array([[((ill == i) & (rich == r)).sum() for r in (False, True)] for i in (False, True)])
    assert (abs(two.counts - truth) < 6 * two.deviations).all()
    assert (abs(two.fitted - truth) < 0.05 * ROWS).all()
    assert fitted.marginal("clinic.ill", "bank.age", "shop.tier").asked
    frame = two.to_pandas()
    assert list(frame.columns) == ["count", "fitted", "deviation"]
    assert frame.loc[("true", "false"), "count"] == two.counts[1, 0]
    guess = fitted.marginal("bank.rich", "shop.tier", "clinic.town")  # which was not asked for
    assert (guess.asked, guess.deviations) == (False, None)
    assert guess.counts.sum() == pytest.approx(fitted.count_)


def test_people_of_several_tables_are_matched_by_id_and_have_the_likelihood_of_their_codes():
    fitted, own = model("products"), arrow()
    found = fitted.log_likelihood(own, same_order=True)
    assert found.shape == (ROWS,)
    assert (np.isfinite(found) & (found < 0)).all()
    assert np.array_equal(fitted.log_likelihood(federation()), found)  # ids are in order
    turned = own | {"shop": own["shop"].take(np.arange(ROWS)[::-1])}
    assert not np.allclose(fitted.log_likelihood(turned, same_order=True), found)
    assert np.array_equal(fitted.log_likelihood(turned, id="id"), found)
    read = {name: read_table(turned[name], SCHEMAS[name], id="id") for name in turned}
    assert np.array_equal(fitted.log_likelihood(read), found)
    strangers = own["shop"].set_column(0, "id", pa.array([f"q{k}" for k in range(ROWS)]))
    refused(DataError, "DA063", fitted.log_likelihood, turned)
    refused(DataError, "DA065", fitted.log_likelihood, own | {"shop": strangers}, id="id")


@pytest.mark.parametrize("way", ["products", "tree", "even bins"])
def test_a_saved_model_is_the_same_model(way, tmp_path):
    fitted = model(way)
    path = fitted.save(tmp_path / "model.json")
    assert json.loads(path.read_text())["kind"] == "synthetic"
    loaded = Synthesizer.load(path)
    assert loaded.sample(300).equals(fitted.sample(300))
    assert (loaded.summary(), repr(loaded)) == (fitted.summary(), repr(fitted))
    assert np.array_equal(loaded.marginal("bank.age").counts, fitted.marginal("bank.age").counts)
    assert loaded.marginal("shop.spent").labels == fitted.marginal("shop.spent").labels
    assert loaded.published() == fitted.published()


@pytest.mark.parametrize(
    ("what", "value"),
    [("names", ["bank.age"]), ("sizes", [2, 2]), ("asked", [[0]]), ("asked", [[], [99]]), ("asked", 3)],
)
def test_a_damaged_model_is_refused(tmp_path, what, value):
    path = model("tree").save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    content["learned"][what] = value
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Synthesizer.load(path)


def test_fitting_in_threads_gives_what_is_planned():
    fitted = Synthesizer("clinic.ill", size=77, epsilon=20.0, rows_at_most=10_000, **QUICK).fit(federation(1000))
    assert abs(fitted.count_ - 1000) < 200
    assert fitted.sample().num_rows == 77
    assert "77 made-up people" in fitted.in_short
    assert 0.5 < fitted.population_.agreements[1].ratio < 1.5
    assert fitted.privacy_.rows[0].epsilon <= 20
    even = Synthesizer(bins=30, even_bins=3, components=5, epsilon={"analyst": 8.0}).fit(federation(200))
    assert len(even.marginal("bank.age").labels[0]) == 3


def test_the_release_is_one_event_within_the_budget_and_its_noise_that_of_the_least_exact_marginal():
    given = Synthesizer("clinic.ill", epsilon={"analyst": 1.0, "party": 2.0}, bins=6)
    task = given.plan(ROSTER)
    assert (len(task.events), task.label) == (1, task.names.index("clinic.ill"))
    assert "shop.only" not in task.names
    assert sum(len(block.columns) == 3 for block in task.asked) == 21
    told = Synthesizer("clinic.ill", epsilon=1.0).details(task, None)
    assert told.facts["marginals"] == {"0": 1, "1": 8, "2": 28, "3": 21}
    assert "28 pairs and 21 triples with the label" in told.brief[0]
    tree = Synthesizer("clinic.ill", model="tree", bins=6, **BROAD)
    people = model("tree").population_
    sets = [columns for order in range(4) for columns in people.release.sets(order)]
    worst = max(float(people.release.marginal(columns, people.layout.sizes)[1].max()) for columns in sets)
    assert tree.plan(ROSTER).noise_std == pytest.approx(worst, rel=1e-12)
    assert 0.049 < tree.plan(ROSTER).adjustable(ROWS).with_error(0.05).error <= 0.05


def test_bins_are_merged_to_even_ones_by_a_first_release():
    fitted = model("even bins")
    task = fitted.plan(ROSTER)
    assert (len(task.events), fitted.details(task, None).facts["stages"]) == (2, 2)
    spent = fitted.marginal("shop.spent")
    assert (len(spent.labels[0]), spent.labels[0][-1]) == (6, "(missing)")
    assert spent.counts[:-1].min() > 0.4 * spent.counts[:-1].max()
    assert fitted.marginal("shop.tier").labels == (("none", "silver", "gold"),)
    counted = np.bincount(fitted.population_.layout.codes("shop", tables()["shop"])[:, 0], minlength=6)
    assert (abs(counted - spent.counts) < 6 * spent.deviations).all()


def test_parameters_may_be_numbers_and_arrays_of_numpy(tmp_path):
    given = {"components": 10, "tables": 1, "bins": 4}
    plain, same = (simulated(400, **BROAD, **each) for each in (given, {k: np.int64(v) for k, v in given.items()}))
    for each in (same, Synthesizer.load(same.save(tmp_path / "model.json"))):
        assert each.sample(40).equals(plain.sample(40))
    edges = {"bank.age": np.array([0.0, 30.0, 60.0, 90.0]), "shop.spent": np.int64(3)}
    cut = simulated(400, **BROAD, components=5, bins=edges)
    assert cut.marginal("bank.age").counts.shape == (3,)
    loaded = Synthesizer.load(cut.save(tmp_path / "model.json"))
    assert loaded.parameters_["bins"] == {"bank.age": [0.0, 30.0, 60.0, 90.0], "shop.spent": 3}
    with raises(StudyError, "ST366"):
        Synthesizer(epsilon=1.0, bins=np.array([1, 2])).plan(ROSTER)


# --- shares and means, and intervals from several tables


def test_shares_and_means_are_covered():
    given, layout = Synthesizer(epsilon=1.0, bins=6, model="tree", rows_at_most=1000), Layout.of(SCHEMAS, 6)
    task, held = given.plan(ROSTER), tables(400)
    codes = np.hstack([layout.codes(party, held[party]) for party in SCHEMAS])
    places = {layout.names[column]: at for at, column in enumerate(layout.free)}
    covered, covered_means, fitted = [], [], None
    for k in range(80):
        release = Release.of(given.simulated(held, task, seeded(k)))
        fitted = fitted or fit_tree(layout.sizes, release.count, release.parts)
        people = Population(layout, release, fitted, ())
        for name, found in shares(people).items():
            true = np.bincount(codes[:, places[name]], minlength=len(found)) / 400
            covered += [each.low <= share <= each.high for each, share in zip(found.values(), true, strict=True)]
        for name, mean in means(people).items():
            middles = np.add(*layout.columns[layout.names.index(name)].bins.extremes) / 2
            there = codes[:, places[name]][codes[:, places[name]] < len(middles)]  # not missing
            covered_means.append(mean.low <= middles[there].mean() <= mean.high)
    assert 0.90 < np.mean(covered) < 0.99
    assert 0.90 < np.mean(covered_means) < 0.99


def test_a_model_has_shares_and_means_and_its_card_too():
    fitted = model("tree")
    found, mean = fitted.marginals(), fitted.means()["shop.spent"]
    names = [f"{party}.{column}" for party, schema in SCHEMAS.items() for column in schema.names]
    assert list(found) == [name for name in names if name != "shop.only"]  # which has one value
    assert list(found["shop.tier"]) == ["none", "silver", "gold"]
    assert found["shop.tier"]["gold"].clear
    assert sum(found["shop.tier"].values()) == pytest.approx(1)
    counts = fitted.marginal("shop.tier").counts
    np.testing.assert_allclose(list(found["shop.tier"].values()), counts / fitted.count_)
    layout = fitted.population_.layout
    spent = layout.codes("shop", tables()["shop"])[:, 0]
    middles = np.add(*layout.columns[layout.names.index("shop.spent")].bins.extremes) / 2
    assert abs(mean - middles[spent[spent < len(middles)]].mean()) < 6 * mean.deviation < 100
    assert set(fitted.means()) == {"bank.age", "bank.same", "shop.spent"}
    assert f"| `shop.spent` | {mean:.4g} ± {2 * mean.deviation:.2g} |" in fitted.published()["card.md"].decode()
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
    for way in ("tree", "mixture"):
        refused(StudyError, "ST379", model(way).interval, share_of_the_ill, tables=4)


# --- a release is kept whatever becomes of the fit, because it was paid for


uninstalled = pytest.mark.skipif(find_spec("mbi") is not None, reason="private-pgm is installed")


@uninstalled
def test_a_release_whose_fit_failed_is_saved_and_fitted_later(tmp_path):
    given = {"bins": 4, **BROAD}
    task = Synthesizer(**given).plan(ROSTER)
    failed = Synthesizer(model="pgm", **given).simulate(tables(400), ROSTER, seeded(1), task=task)
    assert "no model was fitted yet" in failed.in_short
    loaded = Synthesizer.load(failed.save(tmp_path / "model.json"))
    refused(StudyError, "ST377", loaded.sample, 5)
    refused(StudyError, "ST377", loaded.publish, tmp_path)
    refused(StudyError, "ST377", loaded.summary)
    refused(StudyError, "ST352", loaded.refit)
    assert isinstance(loaded.population_.fitted, Unfitted)
    assert loaded.refit("tree").sample(50).num_rows == 50
    assert loaded.model == loaded.parameters_["model"] == "tree"
    refused(StudyError, "ST348", "model", loaded.refit, "forest")
    refused(StudyError, "ST356", "components", loaded.refit, "tree", components=4)
    again = Synthesizer.load(loaded.save(tmp_path / "model.json"))
    assert again.sample(50).equals(loaded.sample(50))
    assert again.refit("products", components=5).sample(50).num_rows == 50
    assert (again.parameters_["model"], again.parameters_["tables"]) == ("products", loaded.parameters_["tables"])
    assert again.marginal("shop.tier").counts.tolist() == loaded.marginal("shop.tier").counts.tolist()


@pytest.mark.system
def test_an_unsuitable_private_pgm_is_refused_before_anything_is_spent(tmp_path):
    (tmp_path / "mbi.py").write_text("")  # a module of that name which has nothing of private-pgm
    program = (
        "from colonnade import Schema, Synthesizer, flag\n"
        "from colonnade.models import Roster\n"
        "schemas = {'a': Schema({'x': flag()}), 'b': Schema({'y': flag()})}\n"
        "try:\n"
        "    Synthesizer(epsilon=1.0, model='pgm').plan(Roster.of(schemas))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    path = [str(tmp_path), *(each for each in sys.path if each)]
    environment = {"PYTHONPATH": ":".join(path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=1200
    )
    assert done.stdout.startswith("StudyError private-pgm does not work as it is installed")


# --- what is refused

START = MIXTURE | {"start": "marginals", "epsilon": {"analyst": 2.0}}
STEPS = MIXTURE | {"inference": "variational"}


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
        ({"tables": 5, "model": "tree"}, "tables"),
        ({"tables": 5, "size": 9}, "size"),
        ({"even_bins": 1}, "even_bins must be a whole number from 2"),
        ({"components": 0}, "components must be a whole number from 1"),
        ({"components": 10, "model": "tree"}, "components is for model"),
        ({"model": "forest"}, "model must be one of"),
        ({"method": "magic"}, "method must be one of"),
        ({"noise": "laplace"}, "noise must be one of"),
        ({"rows_at_most": 0}, "rows_at_most must be a whole number"),
        ({"rows": 100}, 'rows is for method = "mixture" alone; leave it out'),
        ({"iterations": 5, "families": {"bank.age": "beta"}}, 'iterations, families are for method = "mixture" alone'),
        ({"clip": 1.0}, 'clip is for method = "mixture" alone'),
        ({"method": "mixture"}, 'method = "mixture" needs rows'),
        (MIXTURE | {"label": "clinic.ill"}, 'label is for method = "marginals" or start = "marginals" alone'),
        (MIXTURE | {"tables": 5}, 'tables is for method = "marginals" alone'),
        (MIXTURE | {"model": "tree"}, 'model is for method = "marginals" alone'),
        (MIXTURE | {"batch": 10}, 'batch is for inference = "variational" alone'),
        (STEPS | {"batch": ROWS + 1}, "batch must be a whole number from 1 to 3000"),
        (STEPS | {"clip": -1.0}, "clip must be a positive number"),
        (STEPS | {"learning_rate": float("inf")}, "learning_rate must be a positive number"),
        (MIXTURE | {"inference": "guess"}, "inference must be one of"),
        (MIXTURE | {"families": {"bank.ages": "beta"}}, "families names 'bank.ages', which is no column of this"),
        (MIXTURE | {"families": {"shop.tier": "beta"}}, "families: shop: column 'tier' cannot be described by 'beta'"),
        (MIXTURE | {"families": "beta"}, "families must be a mapping"),
        (MIXTURE | {"iterations": 0}, "iterations must be a whole number from 1"),
        ({"start": "marginals"}, 'start is for method = "mixture" alone; leave it out'),
        (MIXTURE | {"start": "marginal"}, "start must be one of 'none', 'marginals', not 'marginal'"),
        (START | {"even_bins": 4}, 'even_bins is for method = "marginals" alone'),
        (START | {"model": "tree"}, 'model is for method = "marginals" alone'),
        (START | {"label": "clinic.well"}, "label names 'clinic.well', and clinic has no such column"),
        (START | {"focus": [("bank.age", "bank.age")]}, "focus pairs 'bank.age' with itself"),
        (START | {"rows": None}, 'method = "mixture" needs rows'),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(given, said):
    with pytest.raises(ColonnadeError) as caught:
        Synthesizer(**({"epsilon": 1.0} | given)).plan(ROSTER)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_calls_are_refused_in_one_sentence():
    fitted, fewer = model("products"), arrow() | {"shop": arrow()["shop"].slice(0, 5)}
    refused(StudyError, "ST150", "n must be a whole number from 1", fitted.sample, 0)
    refused(StudyError, "ST150", "n must be a whole number from 1", fitted.sample, 2.5)
    refused(StudyError, "ST*", "seed must be a whole number", fitted.sample, 5, seed=-1)
    refused(StudyError, "ST*", "marginal takes the names of columns", fitted.marginal)
    refused(StudyError, "ST*", "twice", fitted.marginal, "bank.age", "bank.age")
    refused(StudyError, "ST*", "did you mean 'age'?", fitted.marginal, "bank.ag")
    refused(DataError, "DA*", "no table of shop, clinic", fitted.log_likelihood, {"bank": None})
    refused(DataError, "DA*", "takes a Federation, or a mapping", fitted.log_likelihood, 3)
    refused(DataError, "DA*", "different numbers of rows", fitted.log_likelihood, fewer, same_order=True)
    refused(StudyError, "ST073", Synthesizer(epsilon=1.0).sample, 3)
    with pytest.raises(ParameterError):
        Synthesizer(epsilon=1.0).set_params(epsilons=2)
    if find_spec("mbi") is None:
        refused(StudyError, "ST352", Synthesizer(epsilon=1.0, model="pgm").plan, ROSTER)
    else:
        assert Synthesizer(epsilon=1.0, model="pgm").plan(ROSTER).events
