from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pyarrow as pa
import pytest

from colonnade import PCA, Federation, LinearRegression, Party, Schema, joint_scores, number
from colonnade.errors import BudgetError, ColonnadeError, PrivacyError, StudyError
from colonnade.models.charges import Charges, Total
from colonnade.privacy import Ledger, Observer, SkellamRelease, Statement, Trust
from colonnade.privacy.observers import COORDINATOR
from tests.support.errors import raises

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)


def parties(rows=60):
    rng = np.random.default_rng(5)
    ids = [f"p{k}" for k in range(rows)]
    return [
        Party(
            name,
            pa.table({"id": ids, **{f"{name}{k}": rng.uniform(-1, 1, rows) for k in range(2)}}),
            schema=Schema({f"{name}{k}": number(-1, 1) for k in range(2)}),
            id="id",
        )
        for name in ("bank", "shop", "clinic")
    ]


def release(noise=10**6, name="sums"):
    return SkellamRelease(
        name=name,
        shares=tuple((owner, noise // 3) for owner in TRUST.owners),
        dimension=4,
        l1=400,
        l2_squared=40_000,
        replace_l1=800,
        replace_l2_squared=160_000,
        theorem="moments-sensitivity",
    )


def spend(charges, events, *, sent=True, fail=False, name="a fit"):
    with charges.charged(name, events, TRUST) as told:
        if sent:
            told()
        if fail:
            raise ColonnadeError("it failed")


def charges_of(place, tmp_path, caps=None):
    return Charges(tmp_path / "ledger.db" if place == "ledger" else None, caps, 1e-5, TRUST)


both = pytest.mark.parametrize("place", ["memory", "ledger"])


@both
def test_several_fits_add_up_as_one_statement_of_all_their_events(place, tmp_path):
    charges = charges_of(place, tmp_path)
    assert str(charges.total()) == "nothing was revealed yet"
    assert charges.total().epsilon("bank") == 0
    for count in (1, 2, 3):
        spend(charges, [release()])
        one = Statement.of([release()] * count, TRUST, 1e-5)
        total = charges.total()
        assert total.computations == count
        for row in one.rows:
            if row.epsilon < np.inf:
                assert total.epsilon(row.observer) == pytest.approx(row.epsilon, rel=1e-9)
    text = str(total)
    assert "3 computations together" in text
    assert "add or remove one person" in text
    assert "<table>" in total._repr_html_()
    with raises(PrivacyError, "PR012", "bakery", "analyst", "bank", "clinic"):
        total.epsilon("bakery")


@both
def test_what_would_exceed_a_cap_is_refused_before_it_starts(place, tmp_path):
    once = Statement.of([release()], TRUST, 1e-5).epsilon("analyst")
    charges = charges_of(place, tmp_path, {"analyst": 1.2 * once})
    spend(charges, [release()])
    begun = False
    refused = raises(BudgetError, "BU001|BU002")
    with refused, charges.charged("a second fit", [release()], TRUST):
        begun = True
    assert not begun
    with raises(BudgetError, "BU001", "cross-validation"):
        charges.check("cross-validation", [release()], TRUST)
    charges.check("something smaller", [release(10**9)], TRUST)
    assert charges.total().computations == 1
    assert "under the caps, analyst has" in str(charges.total())


@both
def test_a_fit_that_failed_counts_once_a_share_has_left(place, tmp_path):
    charges = charges_of(place, tmp_path)
    with pytest.raises(ColonnadeError, match="it failed"):
        spend(charges, [release()], sent=False, fail=True)
    assert charges.total().computations == 0
    with pytest.raises(ColonnadeError, match="it failed"):
        spend(charges, [release()], fail=True)
    assert charges.total().computations == 1
    spend(charges, [])  # an alignment, which releases no numbers
    assert charges.total().computations == 1


def test_arrangements_with_and_without_a_committee_add_up():
    charges = Charges(None, None, 1e-5, TRUST)
    spend(charges, [release()])
    alone = charges.total().epsilon("analyst")
    apart = Trust(TRUST.owners, (), 0)
    with charges.charged("an exchange", [release(name="messages")], apart) as told:
        told()
    total = charges.total()
    assert total.epsilon("analyst") > alone
    # Where the number of rows is public in one of them, the analyst is held to replacing in both.
    assert total.epsilon("analyst") == pytest.approx(Statement.of([release()] * 2, apart, 1e-5).epsilon("analyst"))
    assert total.rows[0].adjacency.value == "replace one person"


def test_fits_of_a_federation_are_charged_to_its_ledger(tmp_path):
    book = tmp_path / "ledger.db"
    people = Federation(parties(), ledger=book, caps={"analyst": 3.0})
    first = PCA(1, epsilon=1.0, rows_at_most=100).fit(people)
    assert people.privacy_.epsilon("bank") == pytest.approx(first.privacy_.epsilon("bank"), rel=1e-9)
    second = LinearRegression(epsilon=1.0, rows_at_most=100).fit(people, "clinic.clinic1")
    whole = Statement.of([*first.privacy_.events, *second.privacy_.events], first.privacy_.trust, 1e-5)
    assert people.privacy_.epsilon("bank") == pytest.approx(whole.epsilon("bank"), rel=1e-9)
    assert [(entry.study, entry.state) for entry in Ledger(book).entries()] == [
        ("pca", "committed"),
        ("linear", "committed"),
    ]
    again = Federation(parties(), ledger=Ledger(book), caps={"analyst": 0.8})
    assert again.privacy_.epsilon("bank") == people.privacy_.epsilon("bank")
    with raises(BudgetError, "BU002", "pca"):
        PCA(1, epsilon=1.0, rows_at_most=100).fit(again)
    Ledger(book).verify()
    assert len(Ledger(book).entries()) == 2


def test_without_a_ledger_fits_of_this_process_add_up():
    people = Federation(parties())
    assert people.privacy_.computations == 0
    model = PCA(1, epsilon=1.0, rows_at_most=100).fit(people)
    model.fit(people)
    assert people.privacy_.computations == 2
    assert people.privacy_.epsilon("shop") > model.privacy_.epsilon("shop")
    assert isinstance(people.privacy_, Total)


def test_a_fit_that_is_refused_by_the_data_is_not_charged():
    people = Federation([*parties(60)[:2], parties(61)[2]])
    with pytest.raises(StudyError):
        PCA(1, epsilon=1.0, rows_at_most=100).fit(people)
    assert people.privacy_.computations == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ledger": 3}, ("ST074", "int")),
        ({"caps": {"bakery": 1.0}}, ("PR061", "bakery")),
        ({"caps": {}}, "PR063"),
        ({"delta": 0}, ("PR066", "0")),
    ],
)
def test_bad_ledgers_and_caps_are_refused(given, said):
    with raises(ColonnadeError, said):
        Federation(parties(), **given)


def test_joint_scores_are_charged_too():
    people = Federation(parties())
    model = LinearRegression(epsilon=1.0, rows_at_most=100).fit(people, "clinic.clinic1")
    joint_scores(model, people, to="bank", epsilon=1.0)
    assert people.privacy_.computations == 2
    assert people.privacy_.epsilon("bank") > model.privacy_.epsilon("bank")
    joint_scores(model, people, to="shop", exact=True)
    assert people.privacy_.epsilon("shop") == float("inf")
    assert people.privacy_.epsilon("bank") < float("inf")
    assert any(row.reason for row in people.privacy_.rows if row.who == "shop")


@pytest.fixture(scope="module")
def told():
    """What a fit by a committee, scores by levels and noisy scores told of the same people."""
    people = Federation(parties())
    model = LinearRegression(epsilon=1.0, rows_at_most=100).fit(people, "clinic.clinic1")
    joint_scores(model, people, to="bank", epsilon=2.0, answers="levels")
    joint_scores(model, people, to="shop", epsilon=1.0, answers="noise")
    fit, levels, noisy = people.charges.told
    assert (fit.trust.threshold, levels.trust.threshold, noisy.trust.threshold) == (1, 0, 1)
    return [fit, levels, noisy]


def charged(place, tmp_path, computations):
    charges = charges_of(place, tmp_path)
    for each in computations:
        with charges.charged("a computation", each.events, each.trust) as sent:
            sent()
    return charges.total()


@both
@pytest.mark.parametrize("order", [*permutations(range(3)), (0, 1), (1, 2), (2, 1), (1,), (2,), (0,)])
def test_who_holds_every_share_of_one_computation_has_no_guarantee_in_all(place, order, told, tmp_path):
    done = [told[number] for number in order]
    total = charged(place, tmp_path, done)
    alone = [Statement.of(each.events, each.trust, 1e-5) for each in done]
    everybody = (*TRUST.owners, COORDINATOR)
    groups = [Observer.coalition(*names) for size in range(1, 5) for names in combinations(everybody, size)]
    for who in [Observer.analyst(), *groups]:
        figures = [one.epsilon(who) for one in alone]
        whole = total.epsilon(who.label)
        assert whole >= max(figures) * (1 - 1e-9)
        assert (whole == float("inf")) == (float("inf") in figures)
        assert total.epsilon(who) == whole
    shown = {row.observer: row for row in total.rows}
    assert set(groups[:10]) <= set(shown)  # alone and in pairs, as in the statement of a single computation
    for who, row in shown.items():
        assert row.epsilon == total.epsilon(who)
        assert (row.status == "no guarantee") == (row.epsilon == float("inf")) == bool(row.reason)
    pair = shown[Observer.parse("bank+shop")]
    if order != (1,):
        assert pair.reason.startswith("bank and shop together hold 2 of 3 shares")
    else:
        assert pair.status == "proven"


def test_caps_of_a_kind_say_that_they_count_groups_within_the_thresholds(told):
    charges = Charges(None, {"pair": 50.0}, 1e-5, TRUST)
    for each in told:
        with charges.charged("a computation", each.events, each.trust) as sent:
            sent()
    total = charges.total()
    assert total.epsilon("bank+shop") == float("inf")
    lines = [line for line in total._assumptions if "bank+shop has" in line]
    assert lines
    assert all(line.endswith("left within the threshold of each computation") for line in lines)


def test_a_budget_that_cannot_be_spent_is_said_by_the_statement(tmp_path):
    people = Federation(parties())
    model = PCA(1, epsilon={"analyst": 200.0}, rows_at_most=100).fit(people)
    said = [line for line in model.privacy_.assumptions if "more noise than this budget asks for" in line]
    assert len(said) == 1
    assert said[0].startswith("analyst learns epsilon 7")
    assert "of 200 allowed (no epsilon above 7" in said[0]
    model.save(tmp_path / "model.json")
    assert PCA.load(tmp_path / "model.json").privacy_.assumptions == model.privacy_.assumptions
    linear = LinearRegression(epsilon=9.0, rows_at_most=100).fit(people, "clinic.clinic1")
    assert "more noise" not in str(linear.privacy_)
    told = joint_scores(linear, people, to="bank", epsilon=200.0, answers="levels")
    assert "bank learns epsilon 40.0000 of 200 allowed: there is more noise" in " ".join(told.privacy_.assumptions)
