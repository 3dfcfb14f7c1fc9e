from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from colonnade.errors import LedgerError, PrivacyError
from colonnade.privacy import (
    Adjacency,
    Ledger,
    NonPrivate,
    Observer,
    PoissonSampled,
    RepeatedRelease,
    Statement,
    Trust,
    statement as statements,
)
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.statement import (
    NO_GUARANTEE,
    PROVEN,
    PUBLISHED,
    format_rounded_up,
    promises_chart,
    spending_chart,
)
from research.bounds import gaussian_delta
from tests.support.charts import lengths, written
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


def test_the_text_is_a_table_that_fits_and_the_page_is_escaped() -> None:
    long = tuple(f"the-department-of-statistics-number-{k}" for k in range(4))
    event = replace(EVENT, shares=tuple((name, Fraction(10**12)) for name in long), unproven="<b>x</b>")
    wide = Statement.of([event], Trust(long, long, 1), 1e-5)
    assert max(map(len, str(wide).splitlines())) <= 110
    assert "replace one person's columns held by others" in str(wide)
    assert "&lt;b&gt;x" in wide._repr_html_()
    assert "<b>x" not in wide._repr_html_()


def test_epsilon_is_rounded_up() -> None:
    given = {1.0: "1.0000", 1.00000001: "1.0001", 0.99994: "1.0000", 0.0: "0.0000", math.inf: "inf"}
    assert {value: format_rounded_up(value) for value in given} == given
    assert "1.0000004e-05" in str(Statement.of([EVENT], TRUST, 1.0000004e-5))


def test_what_is_not_proven_says_so() -> None:
    for event, status, reason in (
        (replace(EVENT, unproven="the paper's proof skips a step"), PUBLISHED, "the paper's proof skips a step"),
        (NonPrivate("rows were posted"), NO_GUARANTEE, "rows were posted"),
    ):
        statement = Statement.of([EVENT, event], TRUST, 1e-5)
        assert (statement.rows[0].status, statement.rows[0].reason) == (status, reason)
        assert reason in str(statement)


def test_statements_round_trip_and_cannot_be_improved_by_hand(statement: Statement) -> None:
    value = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert Statement.from_dict(value) == statement
    value["rows"][0]["epsilon"] /= 2
    for wrong, code in ((value, "PR106"), ({"version": 9}, "PR104"), ({"version": 1}, "PR105")):
        refused(PrivacyError, code, Statement.from_dict, wrong)


def test_many_owners_make_a_short_table() -> None:
    owners = tuple(f"o{k}" for k in range(50))
    shares = tuple((name, Fraction(10**12)) for name in owners)
    statement = Statement.of([replace(EVENT, shares=shares)], Trust(owners, owners[:3], 1), 1e-5)
    rows = {row.who: row for row in statement.rows}
    assert {"o3 and 46 alike", "o3+o4 and 1080 alike"} <= set(rows)
    largest = 4  # all owners without a seat, none or one of three seats, and the coordinator
    assert sum(1 + row.others for row in statement.rows) == 2 + 50 + math.comb(51, 2) + largest
    assert statement.epsilon("o7") == rows["o3 and 46 alike"].epsilon


def test_the_whole_promise_is_a_curve(statement: Statement) -> None:
    assert statement.epsilon("bank", 1e-9) > statement.epsilon("bank") == statement.epsilon(Observer.party("bank"))
    curve = statement.profile("bank", [0.0, 0.5, statement.epsilon("bank"), 50.0])
    assert curve == sorted(curve, reverse=True)
    assert curve[2] == pytest.approx(1e-5, rel=1e-6)
    assert (statement.profile("bank+shop", [1.0]), statement.epsilon("bank+shop")) == ([1.0], math.inf)
    refused(PrivacyError, "PR102", "ghost", statement.profile, "ghost", [1.0])
    refused(PrivacyError, "PR102", "ghost", statement.epsilon, "ghost")
    refused(PrivacyError, "PR014", statement.profile, "bank", [-1.0])


def test_batches_are_among_the_assumptions() -> None:
    sampled = PoissonSampled(EVENT, Fraction(1, 100), ("bank", "shop"))
    for event, said in (
        (RepeatedRelease(sampled, 20), "a coin of chance 1/100"),
        (sampled, "known to bank, shop only"),
        (RepeatedRelease(EVENT, 5), "disjoint"),
    ):
        assert said in " ".join(Statement.of([event], TRUST, 1e-5).assumptions)
    assert "batch" not in " ".join(Statement.of([EVENT], TRUST, 1e-5).assumptions)


def test_without_a_committee_the_statement_says_what_hides_messages_and_that_rows_are_counted() -> None:
    told = replace(
        EVENT, shares=(("bank", Fraction(10**12)),), audience=("shop",), about=("bank",), theorem="exchange-sensitivity"
    )
    statement, published = (
        Statement.of([event], Trust(("bank", "shop"), (), 0), 1e-5) for event in (told, replace(told, audience=()))
    )
    assert statement.rows[0].adjacency is Adjacency.REPLACE
    found = {row.observer.label: row.epsilon for row in statement.rows}
    shop = found["shop"]
    assert found == {"analyst": 0, "coordinator": 0, "bank": 0, "shop": shop, "bank+shop": math.inf}
    assert 0 < shop < math.inf
    open_to_all = {row.observer.label: row.epsilon for row in published.rows}
    assert open_to_all == {"analyst": shop, "coordinator": shop, "bank": 0, "shop": shop, "bank+shop": math.inf}
    said = " ".join(statement.assumptions)
    assert "committee" not in said
    assert "messages between parties are sealed end to end; the coordinator sees their sizes" in said
    assert "public: schema, clips, scales, noise sizes, and the number of rows" in statement.assumptions


# --- pictures of statements and ledgers: every row has its bar, and what is not promised or not proven looks so


def test_every_row_has_a_bar_and_what_is_not_promised_is_hatched_from_end_to_end(statement: Statement) -> None:
    (chart,) = statement.plot().charts
    rows = (*statement.rows, *statement.missing_noise)
    assert sorted(bar.label for bar in chart.bars) == sorted(row.who for row in rows)
    assert {who: lengths(chart)[who] for who in ("bank", "shop")} == {
        who: statement.epsilon(who) for who in ("bank", "shop")
    }
    texts = written(chart)
    for row in rows:
        assert f"cannot tell: {row.adjacency.value}" in texts
        assert (format_rounded_up(row.epsilon, 3) if row.epsilon < 1e9 else "no promise") in texts
    assert chart.axis == "epsilon, rounded up, at delta 1e-05"
    for note in ("not on one scale", "Hatched from end to end: nothing is promised"):
        assert note in chart.note
    assert [bar.label for bar in chart.bars if bar.value is None] == [row.who for row in rows if row.epsilon > 1e9]


def test_what_is_not_proven_is_hatched_and_says_so_and_a_leak_has_no_bar_at_all() -> None:
    doubtful = Statement.of([replace(EVENT, unproven="a step is missing")], TRUST, DELTA)
    leak = Statement.of([NonPrivate("rows were posted")], TRUST, DELTA)
    (chart,), (bare,) = doubtful.plot().charts, leak.plot().charts
    assert f"{format_rounded_up(doubtful.epsilon('bank'), 3)}, as published, not proven" in written(chart)
    assert "Hatched bar: its words say what is not proven" in chart.note
    assert {bar.kind for bar in chart.bars if bar.value is not None} == {"doubtful"}
    assert {(bar.value, bar.text) for bar in bare.bars} == {(None, "no promise")}


@pytest.mark.parametrize(
    ("security", "inputs", "status"),
    [
        ("semi-honest", "unproven", "proven"),
        ("active", "unproven", "if owners keep their bounds"),
        ("active", "proven", "proven"),
        ("active", "needless", "proven"),
    ],
)
def test_a_row_that_rests_on_unproven_bounds_says_so(security: Any, inputs: Any, status: str) -> None:
    trust = replace(TRUST, security=security, inputs=inputs)
    found = Statement.of([EVENT], trust, DELTA)
    for rows in (found.rows, found.missing_noise):
        assert {row.status for row in rows} - {"no guarantee"} == {status}
    assert {row["status"] for row in found.to_dict()["rows"]} - {"no guarantee"} == {status}
    assert Statement.from_dict(found.to_dict()) == found
    assert (status in str(found), status in found._repr_html_()) == (True, True)
    drawn = any("if owners keep their bounds" in text for text in written(found.plot().charts[0]))
    assert drawn == (status != "proven")
    doubtful = Statement.of([replace(EVENT, unproven="a step is missing")], trust, DELTA)
    assert {row.status for row in doubtful.rows} - {"no guarantee"} == {"as published, not proven"}


def test_events_are_drawn_one_by_one_and_together() -> None:
    first, second = EVENT, replace(EVENT, name="more moments")
    alone, both = Statement.of([first], TRUST, DELTA), Statement.of([first, second], TRUST, DELTA)
    (chart,) = both.plot(events=True).charts
    for who in ("analyst", "bank"):
        assert {format_rounded_up(each.epsilon(who), 3) for each in (alone, both)} <= {bar.text for bar in chart.bars}
    groups = list(dict.fromkeys(bar.group for bar in chart.bars))
    assert "bank, shop (cannot tell: replace one person's columns held by others)" in groups, "alike are drawn once"
    assert [bar.label for bar in chart.bars] == ["moments", "more moments", "all together"] * len(groups)


def test_of_many_rows_the_first_are_drawn(statement: Statement) -> None:
    chart = promises_chart([replace(statement.rows[0], epsilon=float(k)) for k in range(1, 31)])
    assert (len(chart.bars), "The first 24 of 30 rows are drawn" in chart.note) == (24, True)


def test_a_ledger_is_drawn_over_time_with_its_caps(tmp_path) -> None:
    wall = Clock()
    ledger = Ledger(tmp_path / "ledger.sqlite", owner="bank", clock=wall)
    refused(LedgerError, "LE003", ledger.plot)  # without studies there is no picture
    for month in range(1, 4):
        ledger.commit(ledger.mark_sent(ledger.reserve("s", "", [EVENT], TRUST, ())))
        wall.shows(30 * month)
    when, found = ledger.spending_over_time(DELTA)
    (chart,) = ledger.plot(caps={"analyst": 2.0}).charts
    line = next(each for each in chart.lines if each.label.startswith("analyst"))
    assert [y for _, y in line.points] == [0.0, *found["analyst"], ledger.epsilon_spent(Observer.analyst(), DELTA)]
    assert [x for x, _ in line.points] == [moment.timestamp() for moment in (when[0], *when, wall.now)]
    assert "cap of analyst: 2" in written(chart)
    (chart,) = ledger.plot(delta=1e-7, caps=3.0).charts
    assert "cap of everyone: 3" in written(chart)
    assert chart.y.name == "epsilon in all, at delta 1e-07"
    refused(PrivacyError, "PR063", ledger.plot, caps={})


def test_who_was_told_things_exactly_has_no_line() -> None:
    chart = spending_chart([START], {"analyst": [1.0], "bank": [1.0], "shop": [float("inf")]}, START, DELTA)
    assert [line.label for line in chart.lines] == ["analyst, bank"]
    assert "nothing is promised: shop" in chart.note


@pytest.mark.parametrize("shift", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("chance", [1e-3, 1e-9])
def test_the_bound_holds_for_normal_laws_and_epsilon_alone_would_not(shift: float, chance: float) -> None:
    def profile(epsilons):
        return [gaussian_delta(shift, epsilon) for epsilon in epsilons]

    epsilon = gaussian_epsilon(shift, chance)
    rise = statements.bound_log_odds(profile, epsilon, chance)
    exceeded = {odds: norm.cdf(shift / 2 - odds / shift) for odds in (rise, epsilon)}
    assert epsilon < rise < 2 * epsilon + 1
    assert exceeded[rise] <= chance < exceeded[epsilon]


def test_a_pure_guarantee_bounds_odds_by_its_epsilon_and_randomised_response_attains_it() -> None:
    keeps = math.log(3)
    rise = statements.bound_log_odds(
        lambda epsilons: [0.0 if epsilon >= keeps else 1.0 for epsilon in epsilons], keeps, 1e-5
    )
    assert keeps <= rise <= keeps + 1e-9
    assert statements.posterior(0.5, rise) == pytest.approx(0.75)


def test_the_bound_holds_for_laws_at_random_whether_or_not_the_thing_is_true() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        both = rng.dirichlet(np.full(12, 0.7), size=2)

        def profile(epsilons, both=both):
            return [np.maximum(both - math.exp(e) * both[::-1], 0).sum(axis=1).max() for e in epsilons]

        for chance in (0.3, 0.05, 1e-3):
            rise = statements.bound_log_odds(profile, 0.5, chance)
            assert both[:, both[0] > math.exp(rise) * both[1]].sum(axis=1).max() <= chance + 1e-12


def test_a_statement_bounds_odds_for_every_observer(statement: Statement) -> None:
    found = statements.log_odds_by_row(statement)
    assert len(found) == len(statement.rows) + len(statement.missing_noise)
    for row in (*statement.rows, *statement.missing_noise):
        rise = found[statements.row_name(row)]
        if math.isinf(row.epsilon):
            assert rise is None
        else:
            assert row.epsilon < rise < 2 * row.epsilon + 1
    assert found["analyst"] == statements.log_odds(statement, "analyst")
    assert statements.log_odds(Statement.of([NonPrivate("told exactly")], TRUST, 1e-5), "analyst") == math.inf


def test_beliefs_at_the_ends_stay_there_and_others_rise() -> None:
    for (belief, rise), after in {
        (0.0, 2.0): 0.0, (1.0, 2.0): 1.0, (0.1, math.inf): 1.0, (0.0, math.inf): 0.0, (0.1, 0.0): 0.1,
        (0.1, math.log(2)): 2 / 11,
    }.items():  # fmt: skip
        assert statements.posterior(belief, rise) == pytest.approx(after)
    with pytest.raises(PrivacyError):  # a chance must be one
        statements.bound_log_odds(lambda epsilons: [0.0] * len(epsilons), 1.0, 0.0)
