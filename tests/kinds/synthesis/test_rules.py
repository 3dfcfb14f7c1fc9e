"""What nobody can be: in the fit, in the drawn table, and refused where it makes no sense."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import Schema, Synthesizer, flag, number
from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fit import Zeros, fit
from colonnade.kinds.synthesis.mending import Made, Source, mended
from colonnade.models import Roster
from colonnade.randomness import Stream
from colonnade.tables.impossible import violations
from colonnade.tables.joint import Box, joint_rules
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.people import SCHEMAS
from tests.kinds.tables.releases import people, release, sets_of
from tests.support.federations import federation

EXAMPLE = Path(__file__).parents[3] / "examples" / "hospital"


PARTIES = ("hospital", "insurer", "pharmacy")


@pytest.fixture(scope="module")
def hospital() -> Synthesizer:
    """The example's study, simulated for the people whom all three know."""
    task = tomllib.loads((EXAMPLE / "synth.toml").read_text())["task"]
    held = {name: pyarrow.csv.read_csv(EXAMPLE / name / f"{name}.csv") for name in PARTIES}
    common = pa.array(sorted(set.intersection(*(set(table["person_id"].to_pylist()) for table in held.values()))))
    known = {name: table.filter(pa.compute.is_in(table["person_id"], common)) for name, table in held.items()}
    schemas = {name: Schema.load(EXAMPLE / "schemas" / f"{name}.toml") for name in PARTIES}
    whole = federation(known, schemas, id="person_id")
    given = {name: value for name, value in task.items() if name != "kind"}
    return Synthesizer(epsilon=2.0, **given).simulate(whole.tables(), whole.roster, seeded(11))


def test_rules_leave_single_columns_and_the_fit_as_they_are_and_the_card_says_so(hospital):
    people = hospital.population_
    for seed in range(3):
        drawn = people.drawn(hospital.usual_size, seed)
        assert drawn.dropped == 0
        assert drawn.redrawn < 0.01 * drawn.table.num_rows
        assert not violations(people.rules, drawn.table).any()
        codes = people.layout.codes_of(drawn.table)
        for column, size in enumerate(people.layout.sizes):
            counts = np.bincount(codes[:, column], minlength=size)
            assert (np.abs(counts - len(codes) * people.fitted.marginal((column,))) < 2).all()
    assert all(each.ratio < 1.2 for each in people.agreements)
    for name in ("insurer.plan", "hospital.age", "hospital.marital"):
        one = hospital.marginal(name)
        assert (np.abs(one.fitted - one.counts) < 4 * one.deviations).all()
    page, drawn = hospital.published()["card.md"].decode(), people.drawn(hospital.usual_size, 0)
    found = people.agreement_of(drawn.table)  # chi-squared of the published table
    assert sorted(found) == [1, 2, 3]
    assert all(f"| {value:.2f} |" in page for value in found.values())
    assert f"{drawn.redrawn:,} people were drawn again for that, or exchanged a value" in page
    assert found[1] < 1.5


def test_the_price_of_a_box_has_these_derivatives():
    rng = np.random.default_rng(2)
    sizes = (3, 4, 2)
    raw = [rng.random((5, size)) for size in sizes]
    chances = np.hstack([each / each.sum(axis=1, keepdims=True) for each in raw])
    marked = (np.array([True, False, True]), np.array([False, True]))
    zeros = Zeros(sizes, 100.0, [Box((0, 2), marked)])

    def price(at: np.ndarray) -> float:
        return 3 * 100.0 / 5 * float((at[:, [0, 2]].sum(axis=1) * at[:, 8]).sum())

    slopes = np.zeros_like(chances, dtype=np.float32)
    zeros.add(chances.astype(np.float32), slopes)
    for place in np.ndindex(*chances.shape):
        moved = chances.copy()
        moved[place] += 1e-3
        assert slopes[place] == pytest.approx((price(moved) - price(chances)) / 1e-3, rel=1e-4, abs=1e-3)


def test_a_fit_that_is_told_of_impossible_codes_has_almost_nobody_there():
    sizes = (4, 3, 5)
    codes = people(sizes, 6_000, 3)
    box = Box((0, 2), (np.array([True, True, False, False]), np.array([False, False, False, True, True])))
    codes = codes[~((codes[:, 0] < 2) & (codes[:, 2] > 2))]
    known = release(codes, sizes, sets_of(3, 2), 20.0, 4)

    def there(model) -> float:
        return len(codes) * float(model.marginal((0, 2))[np.ix_(*box.marked)].sum())

    told = fit(sizes, len(codes), known, components=20, impossible=[box])
    untold = fit(sizes, len(codes), known, components=20)
    assert there(told) < 2 < there(untold)


def test_mending_moves_cells_between_people_and_changes_no_single_column():
    schemas = {"a": Schema({"age": number(0, 90, whole=True)}), "b": Schema({"rich": flag()})}
    rules = joint_rules(schemas, ["a.age < 30 and b.rich = true"])
    rng = np.random.default_rng(5)
    table = pa.table({"age": rng.integers(0, 91, 600), "rich": rng.random(600) < 0.3})
    assert violations(rules, table).sum() > 20
    after = mended(Made(table), Source(lambda rows, stream: Made(table)), rules, Stream(bytes(32))).table
    assert not violations(rules, after).any()
    for name in table.column_names:
        assert sorted(after[name].to_pylist()) == sorted(table[name].to_pylist())


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["bank.age >= 0"], "leave nobody"),
        (["bank.rich = true", "bank.rich = false"], "leave nobody"),
        (["bank.age >= 0 and clinic.ill = true", "clinic.ill = false"], "leave nobody"),
        (["bank.age < 5 and bank.age > 10"], "'bank.age < 5 and bank.age > 10' can be met by nobody"),
        (["bank.age > 5 and bank.age < 6"], "can be met by nobody"),
        (["bank.age = 5 and bank.age != 5"], "can be met by nobody"),
        (["bank.same > 0.5 and bank.same <= 0.5"], "can be met by nobody"),
        (["bank.rich = true and bank.rich = false"], "can be met by nobody"),
        (["shop.spent = missing and shop.spent > 3"], "can be met by nobody"),
        (["bank.age > 5 and bank.age < 7"], None),
        (["bank.same > 0.5 and bank.same < 0.6"], None),
        (["shop.spent >= 0"], None),
        (["shop.spent != missing and shop.spent < 3"], None),
        (["bank.age = 5 and bank.age >= 5"], None),
        (["bank.rich != true and clinic.ill = false"], None),
    ],
)
def test_rules_that_leave_nobody_or_say_nothing_are_refused_and_others_planned(rules, said):
    given = Synthesizer(epsilon=1.0, impossible=rules)
    if said is None:
        assert given.plan(Roster.of(SCHEMAS)).entries > 1
        return
    with pytest.raises(StudyError) as caught:
        given.plan(Roster.of(SCHEMAS))
    assert said.replace("bank.", "") in str(caught.value).replace("bank.", "")
