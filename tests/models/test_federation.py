from __future__ import annotations

import datetime
import os
import subprocess
import sys
from functools import cache, partial
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from colonnade import (
    PCA,
    Federation,
    LinearRegression,
    LogisticRegression,
    Party,
    flag,
    joint_scores,
    number,
    polynomial_sum,
)
from colonnade.errors import (
    AlignmentError,
    BudgetError,
    CapacityError,
    ColonnadeError,
    DataError,
    PrivacyError,
    StudyError,
)
from colonnade.models.session_budget import SessionBudget
from colonnade.privacy import Ledger, Observer, SkellamRelease, Statement, Trust
from colonnade.privacy.observers import COORDINATOR
from colonnade.tables.keys import Key, KeyColumn
from colonnade.wire import SimulatedNetwork
from tests.support.errors import raises
from tests.support.federations import federation, numbers, unaligned

PEOPLE = 60
X = numbers("x")
HELD = {"bank": range(0, 45), "shop": range(10, 60), "clinic": (*range(5, 30), *range(50, 60))}
COMMON = {2: set(range(10, 45)), 3: set(range(10, 30))}


def value(person):
    """What every party knows about a person, so that rows of different people cannot be mistaken for the same."""
    return 2 * person / PEOPLE - 1


def table(party, seed=0, *, id="person_id", written="P-{:03}".format):
    order = np.random.default_rng((seed, len(party))).permutation(list(HELD[party]))
    return pa.table({id: [written(k) for k in order], "x": [value(k) for k in order]})


def parties(count, **settings):
    return [Party(name, table(name), schema=X, id="person_id", **settings) for name in list(HELD)[:count]]


def helped(count=2, **how):
    """Parties whose common people a helper found."""
    return Federation(parties(count)).align(on="person_id", mode="helper", **how)


def found(people):
    """The people in the aligned tables, who are the same at every party row by row."""
    tables = people.tables()
    assert len({tuple(held.ids) for held in tables.values()}) == 1
    numbers = [np.rint((held.matrix()[:, 0] + 1) * PEOPLE / 2).astype(int).tolist() for held in tables.values()]
    assert all(each == numbers[0] for each in numbers)
    assert len(set(numbers[0])) == len(numbers[0])
    return set(numbers[0])


@pytest.mark.parametrize(("mode", "count"), [("ot", 2), ("dh", 3), ("helper", 2), ("ot", 3)])
def test_aligned_tables_hold_the_common_people_row_by_row(mode, count):
    people = Federation(parties(count))
    assert people.alignment is None
    assert people.align(on="person_id", mode=mode) is people
    assert found(people) == COMMON[count]
    summary = people.alignment
    told = (summary.mode, summary.hidden, summary.on, summary.count)
    assert told == (mode, False, ("person_id",), len(COMMON[count]))
    assert summary.rows == {name: len(HELD[name]) for name in list(HELD)[:count]}
    assert set(summary.missing.values()) == set(summary.repeated.values()) == {0}
    for held in people.tables().values():
        assert set(held.own_ids) == {f"P-{k:03}" for k in COMMON[count]}
        assert not set(held.own_ids) & set(held.ids)


def test_the_summary_tells_who_learned_what_and_progress_is_shown():
    """Far apart it takes longer and finds the same."""
    told = []
    people = Federation(parties(2), network=SimulatedNetwork(0.02), progress=lambda *step: told.append(step))
    assert found(people.align(on="person_id", mode="helper")) == COMMON[2]
    assert told
    assert all(0 <= done <= total for _, done, total in told)
    assert people.alignment.seconds >= 0.02
    assert "35 people in common by person_id" in str(people.alignment)
    assert all(leak.who.split()[0] in str(people.alignment) for leak in people.alignment.leakage)
    with raises(StudyError, "ST084"):
        Federation(parties(2), network=0.02)


def test_a_misspelt_accelerator_ends_a_study_before_it_begins(monkeypatch):
    people = helped()
    monkeypatch.setenv("COLONNADE_ACCELERATOR", "gpu")
    with raises(ColonnadeError, "CO024"):
        PCA(1, epsilon=1.0).fit(people)


def test_several_keys_under_other_names_and_spellings():
    """Names and birth days that each party calls and writes in its own way; nobody has ids."""
    born = {k: datetime.date(1950 + k, 1 + k % 12, 1 + k % 28) for k in range(PEOPLE)}
    bank = {
        "name": [f" Ana  {k % 7}" for k in HELD["bank"]],
        "dob": [born[k].strftime("%d.%m.%Y") for k in HELD["bank"]],
        "x": [value(k) for k in HELD["bank"]],
    }
    shop = {
        "customer": [f"ANA {k % 7}" for k in HELD["shop"]],
        "birth": [born[k] for k in HELD["shop"]],
        "x": [value(k) for k in HELD["shop"]],
    }
    first = Party("bank", pa.table(bank), schema=X, keys={"birth": KeyColumn("dob", format="%d.%m.%Y")})
    people = Federation([first, Party("shop", pa.table(shop), schema=X, keys={"name": "customer"})])
    keys = [Key("name", case="fold", blanks="collapse"), Key("birth", kind="date")]
    assert found(people.align(on=keys)) == COMMON[2]
    assert people.alignment.on == ("name", "birth")
    with pytest.raises(AlignmentError):
        people.align(on=["name", Key("birth", kind="date")])  # capitals are kept, so nobody is the same


def test_one_key_is_the_id_column_whatever_it_is_called_and_predictions_come_back_under_own_ids():
    bank = Party("bank", table("bank", id="account", written=str), schema=X, id="account")
    shop = Party("shop", table("shop", id="card", written="{:05}".format), schema=X, id="card")
    people = Federation([bank, shop]).align(on=Key("number", kind="number"), mode="helper")
    assert found(people) == COMMON[2]
    model = LinearRegression(epsilon={"analyst": 50.0}, label="bank.x", rows_at_most=1000).fit(people)
    (told,) = people.roster.assumptions
    assert "helper" in told
    assert told in model.privacy_.assumptions
    scores = joint_scores(model, people, to="shop", exact=True)
    assert set(scores.ids) == {f"{k:05}" for k in COMMON[2]}
    want = model.intercept_[0] + model.coef_[0, 0] * np.array([value(int(own)) for own in scores.ids])
    np.testing.assert_allclose(scores.scores[:, 0], want, atol=1e-4)


def test_similar_names_of_two_parties():
    names = ["Johanna Vermeulen", "Pieter van der Berg", "Katarzyna Nowak", "Mohammed El Amrani", "Siobhan O'Connor"]
    typed = ["Johana Vermeulen", "Pieter van den Berg", "Katarzyna Novak", "Mohamed El Amrani", "Xavier Dupont"]
    cells = {"x": list(map(value, range(5)))}
    held = {"bank": pa.table({"name": names, **cells}), "shop": pa.table({"name": typed, **cells})}
    people = Federation([Party(party, each, schema=X) for party, each in held.items()])
    people.align(on=Key("name", case="fold"), mode="fuzzy", similarity=0.7)
    assert found(people) == {0, 1, 2, 3}
    with raises(StudyError, "ST425"):
        Federation(parties(3)).align(on="person_id", mode="fuzzy")


# --- what is left out, and what fails


def test_duplicates_and_missing_keys_are_left_out_and_counted():
    extra = pa.table({"person_id": pa.array(["P-012", "P-013", None, None, ""]), "x": [0.5] * 5})
    bank = Party("bank", pa.concat_tables([table("bank"), extra]), schema=X, id="person_id")
    people = Federation([bank, parties(2)[1]])
    with raises(DataError, "DA181"):
        people.align(on="person_id", mode="helper", duplicates="refuse")
    assert people.alignment is None
    assert found(people.align(on="person_id", mode="helper")) == COMMON[2] - {12, 13}
    assert people.alignment.repeated == {"bank": 4, "shop": 0}
    assert people.alignment.missing == {"bank": 3, "shop": 0}


@pytest.mark.parametrize("mode", ["ot", "helper"])
def test_nothing_in_common_is_an_error_with_own_examples(mode):
    shop = Party("shop", table("shop", written="p{}".format), schema=X, id="person_id")
    people = Federation([parties(2)[0], shop])
    with pytest.raises(AlignmentError) as caught:
        people.align(on="person_id", mode=mode)
    assert caught.value.examples
    assert all("P-0" in example for example in caught.value.examples)  # those of the first party, here bank
    assert "P-0" not in str(caught.value)


def test_too_few_in_common_is_an_error_and_leaves_the_last_alignment():
    people = helped()
    before = people.alignment
    for asked, said in (({"at_least": 36}, ("AL001", "36")), ({"hidden": "no"}, "ST422")):
        with raises((AlignmentError, StudyError), said):
            people.align(on="person_id", mode="helper", **asked)
    assert people.alignment is before
    assert found(people) == COMMON[2]
    assert people.roster.hidden is False
    assert found(people.align(on="person_id", mode="helper", at_least=35)) == COMMON[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on": 5}, ("ST059", "int")),
        ({"on": ["person_id", None]}, ("ST059", "NoneType")),
        ({"on": []}, "ST607"),
        ({"on": ""}, "ST605"),
        ({"on": ["person_id", "person_id"]}, "ST608"),
        ({"mode": "magic"}, ("ST421", "ot", "dh", "helper", "fuzzy", "magic")),
        ({"duplicates": "first"}, "ST609"),
        ({"at_least": 0.5}, "ST423"),
        ({"mode": "fuzzy", "similarity": 2}, "ST426"),
        ({"similarity": 0.85}, "ST090"),
        ({"hidden": "no"}, "ST422"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with raises(StudyError, message):
        Federation(parties(2)).align(**{"on": "person_id"} | changes)


@pytest.mark.parametrize(
    ("keys", "on", "said"),
    [
        ({"person_id": KeyColumn("person_id", format="%d.%m.%Y")}, "person_id", ("DA178", "bank", "person_id", "text")),
        ({}, ["person_id", "passport"], ("DA154", "bank", "passport")),
        ({"person_id": "customer"}, "person_id", ("DA154", "bank", "customer")),
        (["x"], "person_id", ("ST089", "bank")),
        ({"birth": 3}, "person_id", ("ST089", "bank")),
        ({"birth": ""}, "person_id", ("ST089", "bank")),
    ],
)
def test_formats_are_for_dates_and_unknown_columns_are_named(keys, on, said):
    with raises((DataError, StudyError), said):
        Federation(parties(2, keys=keys)).align(on=on)


def test_all_lists_count_while_nobody_knows_who_matched():
    for hidden, most in ((True, 94), (False, 34)):
        with raises(CapacityError, "CA030", most):
            PCA(1, epsilon=1.0, rows_at_most=most).fit(helped(hidden=hidden))


def test_different_people_are_aligned_before_a_fit():
    people = Federation(parties(2))
    nameless = Federation([Party(name, table(name), schema=X) for name in ("bank", "shop")])
    fit = PCA(1, epsilon=1.0).fit
    for attempt, said in ((partial(fit, people), "ST087"), (people.tables, "ST087"), (partial(fit, nameless), "ST077")):
        with raises(StudyError, said):
            attempt()
    assert found(nameless.align(on="person_id", mode="helper")) == COMMON[2]


# --- hidden


ROWS = 1200
HIDDEN = {"left": numbers("a", y=flag(), z=number(-8, 8)), "right": numbers("c"), "third": numbers("b")}


@cache
def crowd(label, hidden):
    """The federation of one of two labels; z is 4 a - 3 c + b, and y is likely where that is high."""
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(-1, 1, (3, ROWS))
    score, ids = 4 * a - 3 * c + b, [f"p{k}" for k in range(ROWS)]
    yes = rng.random(ROWS) < 1 / (1 + np.exp(-score))
    tables = {
        "left": pa.table({"id": ids, "a": a, "y": yes, "z": score}),
        "right": pa.table({"id": ids, "c": c}),
        "third": pa.table({"id": ids, "b": b}),
    }
    people = federation(unaligned(tables, "id"), HIDDEN | {"left": HIDDEN["left"].select(["a", label])})
    return people.align(on="id", mode="helper", hidden=hidden)


def test_hidden_components_and_regressions_are_those_of_the_common_people():
    asked = {"epsilon": {"analyst": 50.0}, "rows_at_most": 4000}
    seen, unseen = (PCA(1, **asked).fit(crowd("z", hidden)) for hidden in (False, True))
    assert crowd("z", True).roster.hidden is crowd("z", True).alignment.hidden is True
    assert abs(seen.components_[0] @ unseen.components_[0]) == pytest.approx(1, abs=2e-3)
    assert unseen.count_ == pytest.approx(ROWS, abs=8)
    np.testing.assert_allclose(unseen.mean_, seen.mean_, atol=0.01)
    for hidden in (False, True):
        model = LinearRegression(label="left.z", **asked).fit(crowd("z", hidden))
        np.testing.assert_allclose(model.coef_, [[4, -3, 1]], atol=0.2)


def test_hidden_classifiers_are_those_of_the_common_people():
    visible, hidden = crowd("y", False), crowd("y", True)
    model = LogisticRegression(epsilon={"analyst": 50.0}, label="left.y", method="functional", rows_at_most=4000)
    scores = [model.fit(people).decision_function(visible) for people in (visible, hidden)]
    assert np.corrcoef(*scores)[0, 1] > 0.999
    assert model.score(visible) > 0.78
    with raises(StudyError, "ST082"):  # gradients need to know who takes part
        LogisticRegression(epsilon=5.0, label="left.y", method="sqm", rows=ROWS).fit(hidden)


def test_hidden_members_without_a_trusted_helper():
    people = Federation(parties(2)).align(on="person_id", hidden=True)
    assert people.alignment.count == len(COMMON[2])  # as the coordinator knows
    model = PCA(1, epsilon={"analyst": 50.0}, rows_at_most=1000).fit(people)
    assert model.count_ == pytest.approx(len(COMMON[2]), abs=9)  # six deviations; the lists are far longer


def test_after_a_hidden_alignment_nobody_has_a_common_table():
    people = helped(hidden=True)
    model = PCA(1, epsilon={"analyst": 50.0}, rows_at_most=4000).fit(people)
    for attempt, said in (
        (people.tables, "ST086"),
        (partial(model.transform, people), "ST086"),
        (partial(polynomial_sum, people, "bank.x * shop.x", epsilon=1.0), "ST082"),
    ):
        with raises(StudyError, said):
            attempt()
    assert "of which no party knows" in str(people.alignment)
    assert people.roster.assumptions[0] in model.privacy_.assumptions


# --- what fits of one federation told in all: added up in memory or in a ledger, held to caps, and said


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
    with charges.charge("a fit", events, trust) as told:
        if sent:
            told()
        if fail:
            raise ColonnadeError("it failed")


def charges_of(place, tmp_path, caps=None):
    return SessionBudget(tmp_path / "ledger.db" if place == "ledger" else None, caps, 1e-5, TRUST)


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
    with raises(BudgetError, "BU001|BU002"), charges.charge("a second fit", [release()], TRUST):
        pytest.fail("it began")
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
    charges, apart = SessionBudget(None, None, 1e-5, TRUST), Trust(TRUST.owners, (), 0)
    spend(charges, [release()])
    spend(charges, [release(name="messages")], apart)
    total = charges.total()
    # Where the number of rows is public in one of them, the analyst is held to replacing in both.
    both_replaced = Statement.of([release()] * 2, apart, 1e-5).epsilon("analyst")
    assert total.epsilon("analyst") == pytest.approx(both_replaced)
    assert total.rows[0].adjacency.value == "replace one person"


def test_fits_of_a_federation_are_charged_to_its_ledger(tmp_path):
    book, uneven = tmp_path / "ledger.db", people(60, 60, 61)
    group = people(ledger=book, caps={"analyst": 3.0})
    first, second = pca().fit(group), linear(group)
    whole = Statement.of([*first.privacy_.events, *second.privacy_.events], first.privacy_.trust, 1e-5)
    again = people(ledger=Ledger(book), caps={"analyst": 0.8})
    for each in (group, again):
        assert each.privacy_.epsilon("bank") == pytest.approx(whole.epsilon("bank"), rel=1e-9)
    for refused, said in ((again, ("BU002", "pca")), (uneven, "ST087")):
        with raises((BudgetError, StudyError), said):
            pca().fit(refused)
    assert uneven.privacy_.computations == 0
    Ledger(book).verify()
    states = [(entry.study, entry.state) for entry in Ledger(book).entries()]
    assert states == [("pca", "committed"), ("linear", "committed")]


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


RUN = """
import os, pyarrow
from colonnade import PCA, Federation, Party, Schema, number
ids = [f"p{n}" for n in range(60)]
parties = [
    Party(x, pyarrow.table({"person_id": ids, x: range(60)}), schema=Schema({x: number(0, 60)}), id="person_id")
    for x in ("a", "b", "c")
]
for mode in ("ot", "dh"):
    PCA(1, epsilon=1.0).fit(Federation(parties).align("person_id", mode=mode))
with open("/proc/self/maps") as file:
    print([line for line in file if " r-x" in line and os.environ["TMPDIR"] in line], os.listdir(os.environ["TMPDIR"]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not say what a process runs")
def test_nothing_is_run_from_where_temporary_files_go(tmp_path):
    """Some mount it so that nothing can be."""
    place = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", RUN], env=place, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []", done.stderr
