from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from colonnade.errors import LedgerError, PrivacyError
from colonnade.privacy import beliefs
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Adjacency, Observer, Trust
from colonnade.privacy.pictures import promises, spending
from colonnade.privacy.releases import PoissonSampled, Repeated
from colonnade.privacy.rows import NO_GUARANTEE, PROVEN, PUBLISHED, rounded_up
from colonnade.privacy.statement import Statement
from tests.pictures.reading import lengths, notes, places, written
from tests.support.errors import refused
from tests.support.ledgers import DELTA, EVENT, START, TRUST as TRUST, Clock


@pytest.fixture(scope="module")
def statement() -> Statement:
    return Statement.of([EVENT], TRUST, DELTA)


def test_one_row_for_each_observer_the_unprotected_included(statement: Statement) -> None:
    rows = {row.observer.label: row for row in statement.rows}
    assert list(rows) == [seen.label for seen in TRUST.standard_observers()]
    assert [rows[who].status for who in ("analyst", "coordinator", "bank", "shop")] == [PROVEN] * 4
    assert rows["bank+shop"].status == NO_GUARANTEE
    assert "2 of 3 shares" in rows["bank+shop"].reason
    assert rows["analyst"].epsilon < rows["coordinator"].epsilon < rows["bank"].epsilon
    assert "moments-sensitivity" in rows["bank"].theorem
    assert "gaussian-transfer" in rows["bank"].theorem


def test_epsilon_is_asked_for_any_observer_and_delta(statement: Statement) -> None:
    assert statement.epsilon("bank") == statement.epsilon(Observer.party("bank"))
    assert statement.epsilon("bank", 1e-9) > statement.epsilon("bank")
    assert statement.epsilon("bank+shop") == math.inf
    refused(PrivacyError, "PR102", "insurer", statement.epsilon, "insurer")


def test_the_text_is_a_table_that_fits() -> None:
    text = str(Statement.of([EVENT], TRUST, 1e-5))
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


def test_epsilon_is_rounded_up() -> None:
    given = {1.0: "1.0000", 1.00000001: "1.0001", 0.99994: "1.0000", 0.0: "0.0000", math.inf: "inf"}
    assert {value: rounded_up(value) for value in given} == given
    assert rounded_up(1e25).startswith("10000000000000000905969664")
    assert "1.0000004e-05" in str(Statement.of([EVENT], TRUST, 1.0000004e-5))


def test_what_is_not_proven_says_so() -> None:
    doubtful = replace(EVENT, unproven="the paper's proof skips a step")
    statement = Statement.of([EVENT, doubtful], TRUST, 1e-5)
    row = statement.rows[0]
    assert (row.status, row.reason) == (PUBLISHED, "the paper's proof skips a step")
    assert "the paper's proof skips a step" in str(statement)
    leak = Statement.of([EVENT, NonPrivate("rows were posted")], TRUST, 1e-5)
    assert {row.status for row in leak.rows} == {NO_GUARANTEE}
    assert "rows were posted" in str(leak)


def test_statements_round_trip_and_cannot_be_improved_by_hand(statement: Statement) -> None:
    value = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert Statement.from_dict(value) == statement
    value["rows"][0]["epsilon"] /= 2
    refused(PrivacyError, "PR106", Statement.from_dict, value)
    refused(PrivacyError, "PR104", Statement.from_dict, {"version": 9})
    refused(PrivacyError, "PR105", Statement.from_dict, {"version": 1})


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
    page = Statement.of([replace(EVENT, unproven="<b>x</b>")], TRUST, 1e-5)._repr_html_()
    assert "&lt;b&gt;x" in page
    assert "<b>x" not in page
    assert page.count("<tr>") == 1 + len(TRUST.standard_observers()) + 3


def test_the_whole_promise_is_a_curve(statement: Statement) -> None:
    epsilons = [0.0, 0.5, statement.epsilon("bank"), 50.0]
    curve = statement.profile("bank", epsilons)
    assert curve == sorted(curve, reverse=True)
    assert curve[2] == pytest.approx(1e-5, rel=1e-6)
    assert statement.profile("bank+shop", [1.0]) == [1.0]
    refused(PrivacyError, "PR102", "ghost", statement.profile, "ghost", [1.0])
    refused(PrivacyError, "PR014", statement.profile, "bank", [-1.0])


def test_batches_are_among_the_assumptions() -> None:
    sampled = Repeated(PoissonSampled(EVENT, Fraction(1, 100), ("bank", "shop")), 20)
    text = " ".join(Statement.of([sampled], TRUST, 1e-5).assumptions)
    assert "a coin of chance 1/100" in text
    assert "known to bank, shop only" in text
    assert "disjoint" in " ".join(Statement.of([Repeated(EVENT, 5)], TRUST, 1e-5).assumptions)
    assert "batch" not in " ".join(Statement.of([EVENT], TRUST, 1e-5).assumptions)


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


# --- pictures of statements and ledgers: every row has its bar, and what is not promised or not proven looks so


def test_every_row_has_a_bar_and_what_is_not_promised_is_hatched_from_end_to_end(statement: Statement) -> None:
    (ax,) = statement.plot().axes
    rows = (*statement.rows, *statement.missing_noise)
    assert sorted(places(ax).values()) == sorted(row.who for row in rows)
    found = lengths(ax)
    for who in ("bank", "shop"):
        assert found[who] == statement.epsilon(who)
    texts = written(ax)
    for relation in {row.adjacency.value for row in rows}:
        assert f"cannot tell: {relation}" in texts
    assert "if 1 owner draws no noise, each as above" in texts
    for row in rows:
        assert (rounded_up(row.epsilon, 3) if row.epsilon < 1e9 else "no promise") in texts
    assert "epsilon, rounded up, at delta 1e-05" in notes(ax)
    assert "not on one scale" in notes(ax)
    names, longest = places(ax), max(patch.get_width() for patch in ax.patches)
    hatched = {names[round(each.get_y() + 0.31)]: each.get_width() for each in ax.patches if each.get_hatch()}
    assert hatched == {row.who: longest for row in (*statement.rows, *statement.missing_noise) if row.epsilon > 1e9}
    assert "hatched from end to end: nothing is promised" in notes(ax)


def test_what_is_not_proven_is_hatched_and_says_so_and_a_leak_has_no_bar_at_all() -> None:
    statement = Statement.of([replace(EVENT, unproven="a step is missing")], TRUST, DELTA)
    (ax,) = statement.plot().axes
    assert f"{rounded_up(statement.epsilon('bank'), 3)}, as published, not proven" in written(ax)
    assert all(patch.get_hatch() for patch in ax.patches)
    assert "hatched bar: as published, not proven" in notes(ax)
    (ax,) = Statement.of([NonPrivate("rows were posted")], TRUST, DELTA).plot().axes
    assert all(patch.get_hatch() for patch in ax.patches)
    assert {text for text in written(ax) if not text.startswith(("cannot tell", "if "))} == {"no promise"}


def test_events_are_drawn_one_by_one_and_together() -> None:
    first, second = EVENT, replace(EVENT, name="more moments")
    statement = Statement.of([first, second], TRUST, DELTA)
    (ax,) = statement.plot(events=True).axes
    alone = Statement.of([first], TRUST, DELTA)
    texts = written(ax)
    for who in ("analyst", "bank"):
        assert rounded_up(alone.epsilon(who), 3) in texts
        assert rounded_up(statement.epsilon(who), 3) in texts
    groups = [text for text in texts if "cannot tell" in text]
    assert "bank, shop (cannot tell: replace one person's columns held by others)" in groups, "alike are drawn once"
    assert list(places(ax).values()) == ["moments", "more moments", "all together"] * len(groups)


def test_of_many_rows_the_first_are_drawn() -> None:
    row = Statement.of([EVENT], TRUST, DELTA).rows[0]
    (panel,) = promises([replace(row, epsilon=float(k)) for k in range(1, 31)]).panels
    assert len(panel.bars) == 24
    assert "the first 24 of 30 rows are drawn" in panel.note


def test_a_ledger_is_drawn_over_time_with_its_caps(tmp_path) -> None:
    wall = Clock()
    ledger = Ledger(tmp_path / "ledger.sqlite", owner="bank", clock=wall)
    ledger.release(ledger.reserve("s", "", [EVENT], TRUST, ()))
    refused(LedgerError, "LE003", ledger.plot)  # without studies there is no picture
    for month in range(1, 5):
        ledger.commit(ledger.mark_sent(ledger.reserve("s", "", [EVENT], TRUST, ())))
        wall.shows(30 * month)
    (ax,) = ledger.plot(caps={"analyst": 2.0}).axes
    line = next(each for each in ax.lines if each.get_label().startswith("analyst"))
    when, found = ledger.course(DELTA)
    assert list(line.get_ydata()) == [0.0, *found["analyst"], found["analyst"][-1]]
    assert line.get_ydata()[-1] == ledger.spent(Observer.analyst(), DELTA)
    assert list(line.get_xdata()) == [when[0], *when, wall.now]
    assert "cap of analyst: 2" in written(ax)
    assert ax.get_ylabel() == "epsilon in all, at delta 1e-05"
    (ax,) = ledger.plot(delta=1e-7, caps=3.0).axes
    assert "cap of everyone: 3" in written(ax)
    assert ax.get_ylabel() == "epsilon in all, at delta 1e-07"
    with pytest.raises(PrivacyError):
        ledger.plot(caps={})


def test_who_was_told_things_exactly_has_no_line() -> None:
    (panel,) = spending([START], {"analyst": [1.0], "bank": [1.0], "shop": [float("inf")]}, START, DELTA, {}).panels
    assert [line.label for line in panel.lines] == ["analyst, bank"]
    assert "nothing is promised: shop" in panel.note


def _gaussian(shift: float):
    """The exact guarantee of a unit normal that is moved by so much, and the chance that odds rise by more."""

    def profile(epsilons):
        x = np.asarray(epsilons)
        return norm.cdf(shift / 2 - x / shift) - np.exp(x) * norm.cdf(-shift / 2 - x / shift)

    return profile, lambda rise: norm.cdf(shift / 2 - rise / shift)


@pytest.mark.parametrize("shift", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("chance", [1e-3, 1e-5, 1e-9])
def test_the_bound_holds_for_normal_laws_and_epsilon_alone_would_not(shift: float, chance: float) -> None:
    profile, exceeded = _gaussian(shift)
    low, high = 0.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if profile([middle])[0] <= chance else (middle, high)
    rise = beliefs.bound(profile, high, chance)
    assert high < rise < 2 * high + 1
    assert exceeded(rise) <= chance < exceeded(high)


def test_a_pure_guarantee_bounds_odds_by_its_epsilon_and_randomised_response_attains_it() -> None:
    keeps = math.log(3)
    rise = beliefs.bound(lambda epsilons: [0.0 if epsilon >= keeps else 1.0 for epsilon in epsilons], keeps, 1e-5)
    assert keeps <= rise <= keeps + 1e-9
    assert beliefs.afterwards(0.5, rise) == pytest.approx(0.75)


def test_the_bound_holds_for_laws_at_random_whether_or_not_the_thing_is_true() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        with_it, without = rng.dirichlet(np.full(12, 0.7), size=2)

        def profile(epsilons, p=with_it, q=without):
            return [max(_stick(p, q, e), _stick(q, p, e)) for e in epsilons]

        for chance in (0.3, 0.05, 1e-3):
            rise = beliefs.bound(profile, 0.5, chance)
            for truth in (with_it, without):
                assert truth[with_it > math.exp(rise) * without].sum() <= chance + 1e-12


def _stick(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_a_statement_bounds_odds_for_every_observer(statement: Statement) -> None:
    for row in statement.rows:
        rise = beliefs.log_odds(statement, row.observer)
        if math.isinf(row.epsilon):
            assert rise == math.inf
        else:
            assert row.epsilon < rise < 2 * row.epsilon + 1
    found = beliefs.rises(statement)
    assert len(found) == len(statement.rows) + len(statement.missing_noise)
    for row in statement.missing_noise:
        rise = found[beliefs.name_of(row)]
        assert (rise is None) == math.isinf(row.epsilon)
        assert rise is None or rise > row.epsilon
    assert found["analyst"] == beliefs.log_odds(statement, "analyst")
    exact = Statement.of([NonPrivate("told exactly")], TRUST, 1e-5)
    assert beliefs.log_odds(exact, "analyst") == math.inf


def test_beliefs_at_the_ends_stay_there_and_others_rise() -> None:
    assert (beliefs.afterwards(0.0, 2.0), beliefs.afterwards(1.0, 2.0)) == (0.0, 1.0)
    assert beliefs.afterwards(0.1, math.inf) == 1.0
    assert beliefs.afterwards(0.0, math.inf) == 0.0
    assert beliefs.afterwards(0.1, 0.0) == pytest.approx(0.1)
    assert beliefs.afterwards(0.1, math.log(2)) == pytest.approx(2 / 11)
    with pytest.raises(PrivacyError):  # a chance must be one
        beliefs.bound(lambda epsilons: [0.0] * len(epsilons), 1.0, 0.0)
