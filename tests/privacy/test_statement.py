from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.observers import Adjacency, Observer, Trust
from colonnade.privacy.releases import PoissonSampled, Repeated
from colonnade.privacy.rows import NO_GUARANTEE, PROVEN, PUBLISHED, rounded_up
from colonnade.privacy.statement import Statement
from tests.support.errors import raises

from .conftest import EVENT, TRUST as TWO


def test_one_row_for_each_observer_the_unprotected_included() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    rows = {row.observer.label: row for row in statement.rows}
    assert list(rows) == [seen.label for seen in TWO.standard_observers()]
    assert [rows[who].status for who in ("analyst", "coordinator", "bank", "shop")] == [PROVEN] * 4
    assert rows["bank+shop"].status == NO_GUARANTEE
    assert "2 of 3 shares" in rows["bank+shop"].reason
    assert rows["analyst"].epsilon < rows["coordinator"].epsilon < rows["bank"].epsilon
    assert "moments-sensitivity" in rows["bank"].theorem
    assert "gaussian-transfer" in rows["bank"].theorem


def test_epsilon_is_asked_for_any_observer_and_delta() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    assert statement.epsilon("bank") == statement.epsilon(Observer.party("bank"))
    assert statement.epsilon("bank", 1e-9) > statement.epsilon("bank")
    assert statement.epsilon("bank+shop") == math.inf
    with raises(PrivacyError, "PR102", "insurer"):
        statement.epsilon("insurer")


def test_the_text_is_a_table_that_fits() -> None:
    text = str(Statement.of([EVENT], TWO, 1e-5))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    assert lines[0].split() == ["observer", "cannot", "tell", "epsilon", "delta", "status"]
    assert "replace one person's columns held by others" in text
    assert "bank+shop: bank and shop together hold 2 of 3 shares" in text
    assert "semi-honest" in text
    assert "matching people" in text
    long = tuple(f"the-department-of-statistics-number-{k}" for k in range(4))
    shares = tuple((name, Fraction(10**12)) for name in long)
    wide = Statement.of([replace(EVENT, shares=shares)], Trust(long, long, 1), 1e-5)
    assert max(map(len, str(wide).splitlines())) <= 110


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0000"), (1.00000001, "1.0001"), (0.99994, "1.0000"), (0.0, "0.0000"), (math.inf, "inf")],
)
def test_epsilon_is_rounded_up(value: float, text: str) -> None:
    assert rounded_up(value) == text


def test_what_is_not_proven_says_so() -> None:
    doubtful = replace(EVENT, unproven="the paper's proof skips a step")
    statement = Statement.of([EVENT, doubtful], TWO, 1e-5)
    row = statement.rows[0]
    assert (row.status, row.reason) == (PUBLISHED, "the paper's proof skips a step")
    assert "the paper's proof skips a step" in str(statement)
    leak = Statement.of([EVENT, NonPrivate("rows were posted")], TWO, 1e-5)
    assert {row.status for row in leak.rows} == {NO_GUARANTEE}
    assert "rows were posted" in str(leak)


def test_statements_round_trip_and_cannot_be_improved_by_hand() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    value = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert Statement.from_dict(value) == statement
    value["rows"][0]["epsilon"] /= 2
    with raises(PrivacyError, "PR106"):
        Statement.from_dict(value)
    with raises(PrivacyError, "PR104"):
        Statement.from_dict({"version": 9})
    with raises(PrivacyError, "PR105"):
        Statement.from_dict({"version": 1})


def test_many_owners_make_a_short_table() -> None:
    owners = tuple(f"o{k}" for k in range(50))
    shares = tuple((name, Fraction(10**12)) for name in owners)
    statement = Statement.of([replace(EVENT, shares=shares)], Trust(owners, owners[:3], 1), 1e-5)
    who = [row.who for row in statement.rows]
    assert "o3 and 46 alike" in who
    assert "o3+o4 and 1080 alike" in who
    total = sum(1 + row.others for row in statement.rows)
    largest = 4  # all owners without a seat, none or one of three seats, and the coordinator
    assert total == 2 + 50 + math.comb(51, 2) + largest
    assert any(text.startswith("coordinator and 48 more together") for text in who)
    assert statement.epsilon("o7") == next(row.epsilon for row in statement.rows if row.observer.label == "o3")


def test_html_is_escaped() -> None:
    page = Statement.of([replace(EVENT, unproven="<b>x</b>")], TWO, 1e-5)._repr_html_()
    assert "&lt;b&gt;x" in page
    assert "<b>x" not in page
    assert page.count("<tr>") == 1 + len(TWO.standard_observers()) + 3


def test_the_whole_promise_is_a_curve() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    epsilons = [0.0, 0.5, statement.epsilon("bank"), 50.0]
    curve = statement.profile("bank", epsilons)
    assert curve == sorted(curve, reverse=True)
    assert curve[2] == pytest.approx(1e-5, rel=1e-6)
    assert statement.profile("bank+shop", [1.0]) == [1.0]
    with raises(PrivacyError, "PR102", "ghost"):
        statement.profile("ghost", [1.0])
    with raises(PrivacyError, "PR014"):
        statement.profile("bank", [-1.0])


def test_batches_are_among_the_assumptions() -> None:
    sampled = Repeated(PoissonSampled(EVENT, Fraction(1, 100), ("bank", "shop")), 20)
    text = " ".join(Statement.of([sampled], TWO, 1e-5).assumptions)
    assert "a coin of chance 1/100" in text
    assert "known to bank, shop only" in text
    assert "disjoint" in " ".join(Statement.of([Repeated(EVENT, 5)], TWO, 1e-5).assumptions)
    assert "batch" not in " ".join(Statement.of([EVENT], TWO, 1e-5).assumptions)


def test_without_a_committee_the_statement_says_what_hides_messages_and_that_rows_are_counted() -> None:
    told = replace(
        EVENT, shares=(("bank", Fraction(10**12)),), audience=("shop",), about=("bank",), theorem="exchange-sensitivity"
    )
    trust = Trust(("bank", "shop"), (), 0)
    statement = Statement.of([told], trust, 1e-5)
    rows = {row.observer.label: row for row in statement.rows}
    assert list(rows) == ["analyst", "coordinator", "bank", "shop", "bank+shop"]
    assert rows["analyst"].adjacency is Adjacency.REPLACE
    assert rows["analyst"].epsilon == rows["coordinator"].epsilon == rows["bank"].epsilon == 0
    assert 0 < rows["shop"].epsilon < math.inf
    assert rows["bank+shop"].status == NO_GUARANTEE
    said = " ".join(statement.assumptions)
    assert "committee" not in said
    assert "messages between parties are sealed end to end; the coordinator sees their sizes" in said
    assert "public: schema, clips, scales, noise sizes, and the number of rows" in statement.assumptions
    assert Statement.from_dict(json.loads(json.dumps(statement.to_dict()))) == statement
    published = Statement.of([replace(told, audience=())], trust, 1e-5)
    found = {row.observer.label: row.epsilon for row in published.rows}
    assert found["analyst"] == found["coordinator"] == found["shop"] == rows["shop"].epsilon
