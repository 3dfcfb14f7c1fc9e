"""What fits of one federation told in all: added up in memory or in a ledger, held to caps, and said."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from colonnade import PCA, Federation, LinearRegression, joint_scores
from colonnade.errors import BudgetError, ColonnadeError, PrivacyError, StudyError
from colonnade.models.charges import Charges
from colonnade.privacy import Ledger, Observer, SkellamRelease, Statement, Trust
from colonnade.privacy.observers import COORDINATOR
from tests.support.errors import raises
from tests.support.federations import federation, numbers

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
SCHEMAS = {name: numbers([f"{name}0", f"{name}1"]) for name in TRUST.owners}
both = pytest.mark.parametrize("place", ["memory", "ledger"])


def people(*rows: int, **how) -> Federation:
    rng = np.random.default_rng(5)
    counts = dict(zip(SCHEMAS, rows or (60, 60, 60), strict=True))
    held = {name: dict.fromkeys(SCHEMAS[name].names, rng.uniform(-1, 1, count)) for name, count in counts.items()}
    return federation(held, SCHEMAS, **how)


def pca(epsilon=1.0):
    return PCA(1, epsilon=epsilon, rows_at_most=100)


def linear(group, epsilon=1.0):
    return LinearRegression(epsilon=epsilon, rows_at_most=100).fit(group, "clinic.clinic1")


def release(noise=10**6, name="sums"):
    shares = tuple((owner, noise // 3) for owner in TRUST.owners)
    return SkellamRelease(
        name=name, shares=shares, dimension=4, l1=400, l2_squared=40_000, replace_l1=800, replace_l2_squared=160_000,
        theorem="moments-sensitivity",
    )  # fmt: skip


def spend(charges, events, trust=TRUST, *, sent=True, fail=False):
    with charges.charged("a fit", events, trust) as told:
        if sent:
            told()
        if fail:
            raise ColonnadeError("it failed")


def charges_of(place, tmp_path, caps=None):
    return Charges(tmp_path / "ledger.db" if place == "ledger" else None, caps, 1e-5, TRUST)


@both
def test_several_fits_add_up_as_one_statement_of_all_their_events(place, tmp_path):
    charges = charges_of(place, tmp_path)
    assert str(charges.total()) == "nothing was revealed yet"
    for count in (1, 2, 3):
        spend(charges, [release()])
        total = charges.total()
        assert total.computations == count
        for row in Statement.of([release()] * count, TRUST, 1e-5).rows:
            assert row.epsilon == np.inf or total.epsilon(row.observer) == pytest.approx(row.epsilon, rel=1e-9)
    assert "3 computations together" in str(total)
    assert "<table>" in total._repr_html_()
    with raises(PrivacyError, "PR012", "bakery", "analyst", "bank", "clinic"):
        total.epsilon("bakery")


@both
def test_what_would_exceed_a_cap_is_refused_before_it_starts(place, tmp_path):
    once = Statement.of([release()], TRUST, 1e-5).epsilon("analyst")
    charges = charges_of(place, tmp_path, {"analyst": 1.2 * once})
    spend(charges, [release()])
    with raises(BudgetError, "BU001|BU002"), charges.charged("a second fit", [release()], TRUST):
        pytest.fail("it began")
    with raises(BudgetError, "BU001", "cross-validation"):
        charges.check("cross-validation", [release()], TRUST)
    charges.check("something smaller", [release(10**9)], TRUST)
    assert charges.total().computations == 1
    assert "under the caps, analyst has" in str(charges.total())


@both
def test_a_fit_that_failed_counts_once_a_share_has_left(place, tmp_path):
    charges = charges_of(place, tmp_path)
    for sent in (False, True):
        with pytest.raises(ColonnadeError, match="it failed"):
            spend(charges, [release()], sent=sent, fail=True)
        assert charges.total().computations == sent
    spend(charges, [])  # an alignment, which releases no numbers
    assert charges.total().computations == 1


def test_arrangements_with_and_without_a_committee_add_up():
    charges, apart = Charges(None, None, 1e-5, TRUST), Trust(TRUST.owners, (), 0)
    spend(charges, [release()])
    spend(charges, [release(name="messages")], apart)
    total = charges.total()
    # Where the number of rows is public in one of them, the analyst is held to replacing in both.
    both_replaced = Statement.of([release()] * 2, apart, 1e-5).epsilon("analyst")
    assert total.epsilon("analyst") == pytest.approx(both_replaced)
    assert total.rows[0].adjacency.value == "replace one person"


def test_fits_of_a_federation_are_charged_to_its_ledger(tmp_path):
    book = tmp_path / "ledger.db"
    group = people(ledger=book, caps={"analyst": 3.0})
    first, second = pca().fit(group), linear(group)
    whole = Statement.of([*first.privacy_.events, *second.privacy_.events], first.privacy_.trust, 1e-5)
    assert group.privacy_.epsilon("bank") == pytest.approx(whole.epsilon("bank"), rel=1e-9)
    again = people(ledger=Ledger(book), caps={"analyst": 0.8})
    assert again.privacy_.epsilon("bank") == group.privacy_.epsilon("bank")
    with raises(BudgetError, "BU002", "pca"):
        pca().fit(again)
    Ledger(book).verify()
    states = [(entry.study, entry.state) for entry in Ledger(book).entries()]
    assert states == [("pca", "committed"), ("linear", "committed")]
    uneven = people(60, 60, 61)  # which the data refuse
    with pytest.raises(StudyError):
        pca().fit(uneven)
    assert uneven.privacy_.computations == 0


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
        people(**given)


# --- several computations


@pytest.fixture(scope="module")
def told():
    """What a fit by a committee, scores by levels and noisy scores told of the same people."""
    group = people()
    model = linear(group)
    joint_scores(model, group, to="bank", epsilon=2.0, answers="levels")
    joint_scores(model, group, to="shop", epsilon=1.0, answers="noise")
    done = list(group.charges.told)
    assert [each.trust.threshold for each in done] == [1, 0, 1]
    joint_scores(model, group, to="shop", exact=True)
    assert group.privacy_.computations == 4
    assert group.privacy_.epsilon("shop") == float("inf") > group.privacy_.epsilon("bank")
    return done


@both
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2), (1,), (2,)])
def test_who_holds_every_share_of_one_computation_has_no_guarantee_in_all(place, order, told, tmp_path):
    charges, done = charges_of(place, tmp_path, {"pair": 50.0}), [told[number] for number in order]
    for each in done:
        spend(charges, each.events, each.trust)
    total = charges.total()
    alone = [Statement.of(each.events, each.trust, 1e-5) for each in done]
    everybody = (*TRUST.owners, COORDINATOR)
    groups = [Observer.coalition(*names) for size in range(1, 5) for names in combinations(everybody, size)]
    for who in [Observer.analyst(), *groups]:
        figures = [one.epsilon(who) for one in alone]
        whole = total.epsilon(who.label)
        assert whole >= max(figures) * (1 - 1e-9)
        assert (whole == float("inf")) == (float("inf") in figures)
    shown = {row.observer: row for row in total.rows}
    assert set(groups[:10]) <= set(shown)  # alone and in pairs, as in the statement of a single computation
    for who, row in shown.items():
        assert row.epsilon == total.epsilon(who)
        assert (row.status == "no guarantee") == (row.epsilon == float("inf")) == bool(row.reason)
    pair = shown[Observer.parse("bank+shop")]
    assert (pair.status == "proven") == (order == (1,))
    assert order == (1,) or pair.reason.startswith("bank and shop together hold 2 of 3 shares")
    # Caps of a kind count groups within the thresholds.
    lines = [line for line in total._assumptions if "bank+shop has" in line]
    assert bool(lines) == (1 in order)
    assert order == (1,) or all(line.endswith("left within the threshold of each computation") for line in lines)


def test_a_budget_that_cannot_be_spent_is_said_by_the_statement(tmp_path):
    group = people()
    model = pca({"analyst": 200.0}).fit(group)
    (said,) = [line for line in model.privacy_.assumptions if "more noise than this budget asks for" in line]
    assert said.startswith("analyst learns epsilon 7")
    again = PCA.load(model.save(tmp_path / "model.json"))
    assert again.privacy_.assumptions == model.privacy_.assumptions
    found = joint_scores(linear(group, 9.0), group, to="bank", epsilon=200.0, answers="levels")
    assert "bank learns epsilon 40.0000 of 200 allowed: there is more noise" in " ".join(found.privacy_.assumptions)
