"""What a price means: figures are those of the library, sentences follow from docs/theory/beliefs.md."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from colonnade.console import pictures
from colonnade.console.meaning import CapLeft, Prices, odds_of, one_in
from colonnade.console.pages.failures import explained
from colonnade.errors import ConnectError, DataError
from colonnade.privacy.beliefs import afterwards, log_odds
from colonnade.privacy.events import NonPrivate, SkellamRelease
from colonnade.privacy.largest import Largest
from colonnade.privacy.observers import Trust
from colonnade.privacy.statement import Statement
from colonnade.report import promise, words

from .kit import hides, shows

TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
EVENT = SkellamRelease(
    "moments", (("bank", Fraction(10**12)), ("shop", Fraction(10**12))), 9, 10**6, 10**12, 2 * 10**6,
    2 * 10**12, 1e-30, "moments-sensitivity",
)  # fmt: skip


@pytest.fixture(scope="module")
def statement() -> Statement:
    return Statement.of([EVENT], TRUST, 1e-5)


@pytest.fixture(scope="module")
def prices(statement: Statement) -> Prices:
    kept = json.loads(json.dumps(statement.to_dict()))
    return Prices.of(kept, odds_of(kept), "bank")


def test_every_row_of_the_statement_has_its_price_and_who_learns_most_is_somebody_else(
    statement: Statement, prices: Prices
) -> None:
    assert [price.row for price in prices.rows] == list(statement.rows)
    assert [price.row for price in prices.missing] == list(statement.missing_noise)
    for price in prices.rows:
        assert price.rise == pytest.approx(log_odds(statement, price.row.observer))
        assert price.ours == ("bank" in price.row.observer.names)
    others = [row for row in statement.rows if "bank" not in row.observer.names and math.isfinite(row.epsilon)]
    assert prices.exposed.row.epsilon == max(row.epsilon for row in others)


def test_the_largest_epsilon_is_that_of_the_report_and_who_pools_is_named(statement: Statement, prices: Prices) -> None:
    found = Largest.of(statement)
    assert prices.largest == found
    assert found.row.epsilon == max(row.epsilon for row in statement.rows if math.isfinite(row.epsilon))
    assert found.missing.epsilon == max(row.epsilon for row in statement.missing_noise) > 0
    assert prices.figures == (
        (words.epsilon(found.row.epsilon), found.row.who, "if every owner draws its noise"),
        (words.epsilon(found.missing.epsilon), found.missing.who, "if 1 owner draws no noise"),
    )
    assert prices.pools == ("coordinator and shop together",)
    page = str(promise.privacy(statement))
    assert f"is {words.epsilon(found.row.epsilon)}, a factor" in page
    assert math.isinf(found.missing.epsilon)  # of two owners, the other one's noise was all that there was
    assert "Nothing is promised against any other party, if 1 owner draws no noise." in page


def test_three_owners_are_promised_something_without_the_noise_of_one() -> None:
    names = ("bank", "shop", "clinic")
    event = replace(EVENT, shares=tuple((name, Fraction(10**12)) for name in names))
    statement = Statement.of([event], Trust(names, names, 1), 1e-5)
    found = Largest.of(statement).missing
    assert found.epsilon == max(row.epsilon for row in statement.missing_noise) < math.inf
    page = str(promise.privacy(statement))
    assert f"It is {words.epsilon(found.epsilon)}, for {found.who}, if 1 owner draws no noise." in page


def test_the_sentences_have_the_figures_of_their_theorems(prices: Prices) -> None:
    found, by_analyst = prices.exposed, prices.rows[0]
    shows(found.conclusion, f"at most {words.times(found.row.epsilon)} times what it would be", "plus 1 in 100,000")
    shows(found.odds, f"at most {words.times(found.rise)} times what they were")
    assert found.rise > found.row.epsilon, "odds are not bounded by e^epsilon"
    shows(by_analyst.odds or "", "that one person is in the tables")
    shows(by_analyst.conclusion, "had been left out")
    hides(found.conclusion + found.odds, "safe", "anonym")


def test_where_nothing_is_promised_the_reason_is_said(prices: Prices) -> None:
    together = next(price for price in prices.rows if price.row.observer.label == "bank+shop")
    assert (together.promised, together.odds, together.factor) == (False, None, "no limit")
    assert together.conclusion.startswith("Nothing is promised against bank and shop, if they pool what they see: ")
    exact = Statement.of([NonPrivate("exact answers")], TRUST, 1e-5).to_dict()
    found = Prices.of(exact, odds_of(exact), "bank")
    assert (found.exposed, found.picture, bool(found.unprotected)) == (None, None, True)


def test_the_picture_says_in_words_what_it_draws(prices: Prices) -> None:
    at_most = math.ceil(1000 * afterwards(0.5, prices.exposed.rise)) / 10
    shows(prices.picture or "", f"50 % before, at most {at_most:g} % after", 'role="img"', "aria-labelledby")
    hides(prices.picture or "", "style=")  # the console's policy allows no inline style
    bad = "<script>alert(1)</script>"
    drawn = pictures.surer(1.0, bad)
    shows(drawn, "&lt;script&gt;")
    hides(drawn, bad)


def test_chances_are_rounded_towards_the_larger_and_what_is_left_down() -> None:
    said = [one_in(chance) for chance in (1e-5, 3e-6, 0.7, 0.0)]
    assert said == ["1 in 100,000", "1 in 333,333", "1 in 1", "nothing"]
    cap = CapLeft.of(
        {"observer": "others", "cap": 3.0, "period": 30, "spent": 1.00001, "after": 2.00001, "at_most": 2.5}
    )
    assert (cap.who, cap.span) == ("all others together", "in 30 days")
    assert (cap.spent_text, cap.after_text, cap.left_text, cap.percent) == ("1.0001", "2.0001", "0.9999", 67)
    gone = CapLeft.of({"observer": "shop", "cap": 3.0, "period": None, "spent": None, "after": None, "at_most": None})
    assert (gone.after_text, gone.left_text, gone.percent, gone.span) == ("no promise", "nothing", 100, "for ever")


def test_a_failure_has_a_sentence_an_advice_and_a_code() -> None:
    record = {"status": "failed", "message": "the hub is gone", "exit_code": ConnectError.exit_code}
    found = explained(None, record)
    assert (found.sentence, found.code) == ("the hub is gone", ConnectError.exit_code)
    assert "Doctor" in found.advice
    lost = explained("the machine was lost", {})
    assert lost.code is None
    assert explained("x", {"exit_code": DataError.exit_code}).advice.startswith("Our table")  # type: ignore[union-attr]
    assert explained(None, {"status": "finished"}) is None
    assert explained(None, {}) is None
