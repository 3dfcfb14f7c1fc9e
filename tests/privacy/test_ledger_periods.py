"""Caps per period: a rolling window over the time of reservation, and clocks that are wrong."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import BudgetError, PrivacyError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.ledger.caps import Period, ahead, dates
from colonnade.privacy.ledger.file import add, append
from colonnade.privacy.observers import Budget, Observer
from tests.support.errors import raises

from .conftest import EVENT, TRUST

DELTA = 1e-5
START = datetime(2031, 3, 1, 12, 0, tzinfo=UTC)


def one(times: int = 1, who: str = "analyst") -> float:
    return epsilon(views([EVENT] * times, Observer.parse(who), TRUST), DELTA).epsilon


class Wall:
    """A clock that shows what it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def shows(self, days: float) -> None:
        self.now = START + timedelta(days=days)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def ledger(tmp_path: Path, wall: Wall) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", clock=wall)


def month(times: float, who: str = "analyst") -> Period:
    """Thirty days, room for so many of our releases."""
    return Period(30, (Budget(who, one(int(times)) * 1.0001, DELTA),))


def reserve(ledger: Ledger, *periods: Period, caps: tuple[Budget, ...] = ()) -> None:
    ledger.reserve("s", "", [EVENT], TRUST, caps, periods)


def test_a_period_refuses_and_says_when_it_will_not(ledger: Ledger, wall: Wall) -> None:
    for day in (0, 10, 20):
        wall.shows(day)
        reserve(ledger, month(3))
    wall.shows(25)
    with raises(BudgetError, "BU002", "30", "1", "analyst", "30 days") as no:
        reserve(ledger, month(3))
    assert "enough will have aged out on 2031-03-31 at 12:00 UTC" in str(no.value)
    wall.shows(29.9999)
    with pytest.raises(BudgetError):
        reserve(ledger, month(3))
    wall.shows(30)
    reserve(ledger, month(3))
    assert ledger.spent(Observer.analyst(), DELTA) == one(4)
    assert ledger.spent(Observer.analyst(), DELTA, days=30) == one(3)
    assert len(ledger.entries(days=30)) == 3


def test_the_date_waits_for_as_many_as_are_needed(ledger: Ledger, wall: Wall) -> None:
    for day in (0, 1, 2, 3):
        wall.shows(day)
        reserve(ledger)
    wall.shows(4)
    with pytest.raises(BudgetError) as no:
        reserve(ledger, month(2))
    said = re.search(r"aged out on (\S+) at (\d\d:\d\d) UTC", str(no.value))
    assert said
    wall.now = datetime.fromisoformat(f"{said[1]}T{said[2]}+00:00")
    assert wall.now == START + timedelta(days=32)
    reserve(ledger, month(2))


def test_what_never_fits_has_no_date(ledger: Ledger) -> None:
    tight = Period(7, (Budget("analyst", one() / 2, DELTA),))
    with raises(BudgetError, "BU002", "7"):
        reserve(ledger, tight)


def test_the_cap_for_ever_stays_when_a_period_has_aged_out(ledger: Ledger, wall: Wall) -> None:
    ever = (Budget("analyst", one(2) * 1.0001, DELTA), Budget("others", 100, DELTA))
    for day in (0, 100):
        wall.shows(day)
        reserve(ledger, month(1), caps=ever)
    wall.shows(1000)
    with pytest.raises(BudgetError) as no:
        reserve(ledger, month(1), caps=ever)
    assert "days" not in str(no.value)


def test_periods_by_observer_and_several_at_once(ledger: Ledger, wall: Wall) -> None:
    week = Period(7, (Budget("shop", one(1, "shop") * 1.0001, DELTA),))
    reserve(ledger, week, month(2))
    wall.shows(3)
    with raises(BudgetError, "BU002", "7") as no:
        reserve(ledger, week, month(2))
    assert "analyst" not in str(no.value)
    wall.shows(8)
    reserve(ledger, week, month(2))
    wall.shows(16)
    with raises(BudgetError, "BU002", "30"):
        reserve(ledger, week, month(2))


def test_a_clock_that_was_set_back_drops_nothing(ledger: Ledger, wall: Wall) -> None:
    reserve(ledger, month(2))
    reserve(ledger, month(2))
    for day in (-10, -400, 0):
        wall.shows(day)
        with pytest.raises(BudgetError):
            reserve(ledger, month(2))


def test_a_reservation_while_the_clock_was_wrong_is_no_older_than_the_one_before(ledger: Ledger, wall: Wall) -> None:
    reserve(ledger, month(2))
    wall.shows(-4000)
    reserve(ledger, month(2))
    wall.shows(1)
    with raises(BudgetError, "BU002"):
        reserve(ledger, month(2))
    assert ledger.spent(Observer.analyst(), DELTA, days=30) == one(2)


def test_a_released_entry_of_a_wrong_clock_does_nothing(ledger: Ledger, wall: Wall) -> None:
    wall.shows(26000)
    ledger.release(ledger.reserve("s", "", [EVENT], TRUST, ()))
    wall.shows(0)
    reserve(ledger, month(1))
    wall.shows(29)
    with raises(BudgetError, "BU002", "2031"):
        reserve(ledger, month(1))
    wall.shows(31)
    reserve(ledger, month(1))


def test_a_clock_that_was_wrong_once_does_not_fill_a_period_for_decades(ledger: Ledger, wall: Wall) -> None:
    wall.shows(26000)
    reserve(ledger, month(2))
    wall.shows(0)
    reserve(ledger, month(2))
    wall.shows(29)
    with raises(BudgetError, "BU002", "2031"):  # both count as old as the second
        reserve(ledger, month(2))
    wall.shows(30)
    reserve(ledger, month(2))
    assert ledger.spent(Observer.analyst(), DELTA, days=30) == one(1)
    assert ledger.spent(Observer.analyst(), DELTA) == one(3)


def test_a_full_period_of_the_future_ages_from_the_moment_it_is_noticed(ledger: Ledger, wall: Wall) -> None:
    wall.shows(26000)
    reserve(ledger, month(1))
    wall.shows(0)
    for _ in range(2):
        with pytest.raises(BudgetError):
            reserve(ledger, month(1))
    assert [ledger.note_time() for _ in range(2)] == [True, False]
    ledger.verify()
    wall.shows(29)
    with raises(BudgetError, "BU002", "2031"):
        reserve(ledger, month(1))
    wall.shows(31)
    reserve(ledger, month(1))
    assert not ledger.note_time()


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=8))
def test_under_a_clock_that_only_ran_ahead_no_counted_entry_seems_older_than_it_is(
    steps: list[tuple[int, bool]],
) -> None:
    """Entry i is written at day i by a right clock, or later by one that is ahead; now is day n."""
    true = [START + timedelta(days=day) for day in range(len(steps) + 1)]
    *written, now = true
    stored = [(when + timedelta(days=error), released) for when, (error, released) in zip(written, steps, strict=True)]
    for counts, when, (_, released) in zip(dates(stored, now), written, steps, strict=True):
        assert released or counts >= when


@given(st.lists(st.integers(-100, 0), max_size=8))
def test_under_a_clock_that_was_set_back_no_entry_seems_older_than_the_one_before(errors: list[int]) -> None:
    now = START + timedelta(days=len(errors))
    stored = [(START + timedelta(days=day + error), False) for day, error in enumerate(errors)]
    found = dates(stored, now)
    assert found == sorted(found)
    assert all(counts >= when for counts, (when, _) in zip(found, stored, strict=True))


def test_what_is_left_in_a_period(ledger: Ledger, wall: Wall) -> None:
    reserve(ledger)
    wall.shows(40)
    reserve(ledger)
    ever, others, thirty = ledger.left([Budget("analyst", 50, DELTA)], [Period(30, (Budget("analyst", 20, DELTA),))])
    assert (ever.days, ever.spent) == (None, one(2))
    assert (others.who, others.days, others.epsilon) == ("others", None, 50)
    assert (thirty.days, thirty.spent) == (30, one(1))


@pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf"), 40000])
def test_a_period_has_a_length(days: float) -> None:
    with raises(PrivacyError, "PR036"):
        Period(days, (Budget("analyst", 1, DELTA),))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-60, 60), st.sampled_from(["reserved", "sent", "committed", "released"])), max_size=8
    ),
    st.integers(1, 40),
)
def test_of_the_entries_before_a_period_nothing_is_needed(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, str]], days: int
) -> None:
    """Whatever the clock did, the same studies have ended early, and the same clock is ahead, as by all entries."""
    now = START
    ledger = Ledger(tmp_path_factory.mktemp("early") / "l.sqlite", clock=lambda: now)
    with ledger._file.writing() as base:
        for offset, state in history:
            at = (now + timedelta(days=offset)).isoformat(timespec="milliseconds")
            number = add(base, "s", "d", at, "[]", TRUST.to_json())
            if state != "reserved":
                append(base, number, state, at)
    stored = [(now + timedelta(days=offset), state == "released") for offset, state in history]
    when, start = dates(stored, now), now - timedelta(days=days)
    early = [state != "committed" for _, state in history]
    assert ledger.ended_early(days=days) == sum(one for one, at in zip(early, when, strict=True) if at > start)
    assert ledger.ended_early() == sum(early)
    late, after = ahead(stored, now)
    assert ledger.note_time() == (late and after is None)
