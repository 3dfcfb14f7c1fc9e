"""A release is kept whatever becomes of the fit, because it was paid for; and what is given may be numpy's."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Federation, Party, Schema, Synthesizer, category, flag, number
from colonnade.errors import DataError, StudyError
from colonnade.kinds.synthesis.fitting import Unfitted
from colonnade.tables import read_table
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

ROWS = 800
SCHEMAS = {
    "bank": Schema({"age": number(0, 90, whole=True), "rich": flag()}),
    "shop": Schema({"tier": category(["none", "silver", "gold"]), "spent": number(0, 100)}),
}
BROAD = {"epsilon": 20.0, "rows_at_most": 10_000}
uninstalled = pytest.mark.skipif(find_spec("mbi") is not None, reason="private-pgm is installed")


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(8)
    ids = [f"p{k}" for k in range(ROWS)]
    rich = rng.random(ROWS) < 0.4
    tier = np.array(["none", "silver", "gold"])[rich.astype(int) + (rng.random(ROWS) < 0.3)]
    return {
        "bank": pa.table({"id": ids, "age": rng.integers(0, 91, ROWS), "rich": rich}),
        "shop": pa.table({"id": ids, "tier": tier, "spent": rng.random(ROWS) * 100}),
    }


@pytest.fixture(scope="module")
def whole() -> Federation:
    return Federation([Party(name, table, schema=SCHEMAS[name], id="id") for name, table in tables().items()])


@pytest.fixture(scope="module")
def model(whole) -> Synthesizer:
    return Synthesizer(bins=4, components=10, **BROAD).simulate(whole.tables(), whole.roster, seeded(1))


@uninstalled
def test_a_release_whose_fit_failed_is_saved_and_fitted_later(whole, tmp_path):
    task = Synthesizer(bins=4, **BROAD).plan(whole.roster)
    failed = Synthesizer(bins=4, model="pgm", **BROAD).simulate(whole.tables(), whole.roster, seeded(1), task=task)
    assert "no model was fitted yet" in failed.in_short
    loaded = Synthesizer.load(failed.save(tmp_path / "model.json"))
    for use in (lambda: loaded.sample(5), lambda: loaded.publish(tmp_path), loaded.summary):
        with raises(StudyError, "ST377"):
            use()
    with raises(StudyError, "ST352"):
        loaded.refit()
    assert isinstance(loaded.population_.fitted, Unfitted)
    assert loaded.refit("tree").sample(50).num_rows == 50
    assert loaded.model == loaded.parameters_["model"] == "tree"
    again = Synthesizer.load(loaded.save(tmp_path / "model.json"))
    assert again.sample(50).equals(loaded.sample(50))
    assert again.refit("products", components=5).sample(50).num_rows == 50
    assert again.marginal("shop.tier").counts.tolist() == loaded.marginal("shop.tier").counts.tolist()


def test_refit_refuses_what_a_study_would(model):
    with raises(StudyError, "ST348", "model"):
        model.refit("forest")
    with raises(StudyError, "ST356", "components"):
        model.refit("tree", components=4)
    assert model.parameters_["model"] == "products"
    assert model.sample(20).num_rows == 20


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


def test_parameters_may_be_numbers_and_arrays_of_numpy(whole, model, tmp_path):
    given = {"components": np.int64(10), "tables": np.int64(1), "bins": np.int64(4)}
    same = Synthesizer(**BROAD, **given).simulate(whole.tables(), whole.roster, seeded(1))
    assert same.sample(40).equals(model.sample(40))
    assert Synthesizer.load(same.save(tmp_path / "model.json")).sample(40).equals(model.sample(40))
    edges = {"bank.age": np.array([0.0, 30.0, 60.0, 90.0]), "shop.spent": np.int64(3)}
    cut = Synthesizer(**BROAD, components=5, bins=edges).simulate(whole.tables(), whole.roster, seeded(1))
    assert cut.marginal("bank.age").counts.shape == (3,)
    loaded = Synthesizer.load(cut.save(tmp_path / "model.json"))
    assert loaded.parameters_["bins"] == {"bank.age": [0.0, 30.0, 60.0, 90.0], "shop.spent": 3}
    with raises(StudyError, "ST366"):
        Synthesizer(epsilon=1.0, bins=np.array([1, 2])).plan(whole.roster)


def test_people_of_several_tables_are_matched_by_id(whole, model):
    own = tables()
    found = model.log_likelihood(own, same_order=True)
    turned = own | {"shop": own["shop"].take(np.arange(ROWS)[::-1])}
    assert not np.allclose(model.log_likelihood(turned, same_order=True), found)
    with raises(DataError, "DA063"):
        model.log_likelihood(turned)
    assert np.array_equal(model.log_likelihood(turned, id="id"), found)
    read = {name: read_table(turned[name], SCHEMAS[name], id="id") for name in turned}
    assert np.array_equal(model.log_likelihood(read), found)
    order = np.argsort(np.array(own["bank"]["id"].to_pylist()))
    assert np.array_equal(model.log_likelihood(whole), found[order])
    strangers = own["shop"].set_column(0, "id", pa.array([f"q{k}" for k in range(ROWS)]))
    with raises(DataError, "DA065"):
        model.log_likelihood(own | {"shop": strangers}, id="id")


def test_the_noise_of_a_plan_is_that_of_the_least_exact_marginal(whole):
    given = Synthesizer("bank.rich", bins=7, **BROAD)
    task = given.plan(whole.roster)
    known = given.simulate(whole.tables(), whole.roster, seeded(2), task=task)
    people = known.population_
    worst = max(
        float(people.release.marginal(columns, people.layout.sizes)[1].max())
        for order in (0, 1, 2, 3)
        for columns in people.release.sets(order)
    )
    assert task.noise_std == pytest.approx(worst, rel=1e-12)
    priced = task.adjustable(ROWS).with_error(0.05)
    assert 0.049 < priced.error <= 0.05
