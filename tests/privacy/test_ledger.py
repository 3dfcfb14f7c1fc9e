"""The life of entries, what observers learn over all studies, and caps on it."""

from __future__ import annotations

import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colonnade.errors import BudgetError, LedgerError
from colonnade.privacy.events import NonPrivate, SkellamRelease
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.ledger.without import check_without_ledger
from colonnade.privacy.observers import Budget, Observer, Trust
from tests.support.errors import raises, refused
from tests.support.ledgers import DELTA, EVENT, TRUST, cap, cost, release

ANALYST = Observer.analyst()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.ledger"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


def reserve(ledger: Ledger, caps=(), times: int = 1, trust: Trust = TRUST, event: SkellamRelease = EVENT) -> Entry:
    """Reserve as often as told; the last entry."""
    return [ledger.reserve(f"s{number}", "digest", [event], trust, caps) for number in range(times)][-1]


def test_the_life_of_an_entry(ledger: Ledger) -> None:
    entry = reserve(ledger, cap("analyst", 10))
    assert entry.state == "reserved"
    entry = ledger.commit(ledger.mark_sent(entry))
    (stored,) = Ledger(ledger.path).entries()
    assert stored == entry
    assert (stored.study, stored.digest, stored.events, stored.trust) == ("s0", "digest", (EVENT,), TRUST)
    assert ledger.spent(ANALYST, DELTA) == cost()
    ledger.verify()


def test_release_is_only_possible_before_anything_was_sent(ledger: Ledger) -> None:
    entry = reserve(ledger)
    assert ledger.release(entry).state == "released"
    assert ledger.spent(ANALYST, DELTA) == 0
    for step in (ledger.mark_sent, ledger.commit, ledger.release):
        refused(LedgerError, "LE006", "released", step, entry)
    sent = ledger.mark_sent(reserve(ledger))
    refused(LedgerError, "LE006", "sent", "released", ledger.release, sent)
    ledger.commit(sent)
    refused(LedgerError, "LE006", "committed", "sent", ledger.mark_sent, sent)
    refused(LedgerError, "LE005", "99", ledger.commit, replace(sent, id=99))
    refused(LedgerError, "LE002", ledger.reserve, "s", "", [], TRUST, [])
    ledger.verify()


def test_studies_compose_by_the_accountant_not_by_addition(ledger: Ledger) -> None:
    reserve(ledger, times=4)
    assert ledger.spent(Observer.party("bank"), DELTA) == cost("bank", 4) < 4 * cost("bank")
    assert ledger.spent(Observer.parse("bank+shop"), DELTA) == float("inf")


def test_the_course_of_spending_ends_with_the_totals(path: Path) -> None:
    ledger = Ledger(path, owner="bank")
    assert ledger.course(DELTA) == ([], {"analyst": []})
    for number in range(5):
        entry = reserve(ledger, cap("analyst", 50))
        if number == 2:
            ledger.release(entry)
    when, found = ledger.course(DELTA)
    assert len(when) == 4
    assert when == sorted(when)
    totals = ledger.totals(DELTA)
    assert {who: line[-1] for who, line in found.items()} == {who: totals[who] for who in found}
    assert set(found) == {"analyst", "coordinator", "bank", "shop", "others"}
    assert found["analyst"] == [cost(times=k) for k in range(1, 5)]
    few, short = ledger.course(DELTA, most=2)
    assert len(few) == 2
    assert short["analyst"] == [cost(times=k) for k in (2, 4)]


def test_over_budget_is_refused_with_spent_asked_left(ledger: Ledger) -> None:
    caps = [*cap("analyst", cost(times=2)), *cap("party", 100)]
    reserve(ledger, caps, times=2)
    with raises(BudgetError, "BU002", "0") as refusal:
        reserve(ledger, caps)
    assert "bank" not in str(refusal.value)
    assert len(ledger.entries()) == 2
    reserve(ledger, cap("party", 100))


def test_every_observer_over_its_cap_is_named_and_the_furthest_first(ledger: Ledger) -> None:
    with pytest.raises(BudgetError) as refusal:
        reserve(ledger, cap("everyone", cost()))
    for who in ("coordinator:", "bank:", "shop:"):
        assert who in str(refusal.value)
    assert "analyst:" not in str(refusal.value)
    caps = [*cap("analyst", cost() / 1.1), *cap("shop", cost("shop") / 3), *cap("coordinator", 100)]
    with raises(BudgetError, "BU002", "0.0000") as refusal:
        reserve(ledger, caps)
    assert "coordinator" not in str(refusal.value)


def test_above_the_threshold_no_cap_is_kept(ledger: Ledger) -> None:
    refused(BudgetError, "BU002", "2", "3", reserve, ledger, cap("bank+shop", 1000))
    refused(BudgetError, "BU002", ledger.reserve, "s", "", [NonPrivate("it leaked")], TRUST, cap("analyst", 1000))


def test_observers_are_followed_across_studies(ledger: Ledger) -> None:
    clinic = ("bank", "clinic")
    reserve(ledger)
    reserve(ledger, trust=Trust(clinic, (*clinic, "coordinator"), 1), event=release(clinic))
    assert ledger.spent(Observer.party("bank"), DELTA) == cost("bank", 2)
    assert ledger.spent(ANALYST, DELTA) == cost(times=2)
    # The shop took no part in the second study but reads its result.
    shop = ledger.spent(Observer.party("shop"), DELTA)
    assert cost("shop") < shop < cost("shop", 2)
    refused(BudgetError, "BU002", reserve, ledger, cap("party", shop * 1.001))


def test_an_analyst_who_knows_the_number_of_rows_of_one_study_is_held_to_replacing_in_all(ledger: Ledger) -> None:
    reserve(ledger, cap("everyone", 100))
    assert ledger.spent(ANALYST, DELTA) == cost()
    reserve(ledger, cap("everyone", 100), trust=Trust(("bank", "shop"), (), 0))
    # Each sees all noise at the replace sensitivity, as the coordinator always did.
    assert ledger.spent(ANALYST, DELTA) == cost("coordinator", 2) > cost(times=2)
    refused(BudgetError, "BU002", reserve, ledger, cap("analyst", cost("coordinator", 2)))
    assert [left.who for left in ledger.left(cap("analyst", 100), [])] == ["analyst", "others"]


def test_asking_first_writes_nothing_with_or_without_a_ledger(ledger: Ledger) -> None:
    for check in (ledger.check, check_without_ledger):
        check("s", [EVENT], TRUST, cap("analyst", cost() * 1.01))
    refusals = []
    for check in (ledger.check, check_without_ledger):
        with raises(BudgetError, "BU002", "analyst") as refusal:
            check("s", [EVENT], TRUST, cap("analyst", cost() / 2))
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]
    assert ledger.entries() == ()


def test_what_is_left_of_each_cap(ledger: Ledger) -> None:
    caps = [Budget("analyst", 100, DELTA), Budget("party", 50, DELTA)]
    before = [(left.who, left.spent, left.left) for left in ledger.left(caps)]
    assert before == [("analyst", 0, 100), ("party", 0, 50), ("others", 0, 50)]
    reserve(ledger, caps)
    found = {left.who: left for left in ledger.left(caps)}
    assert set(found) == {"analyst", "bank", "shop", "others"}
    assert found["others"].spent == found["bank"].spent == cost("bank")
    assert 0 <= 50 - cost("bank") - found["bank"].left <= 1e-4


def test_threads_cannot_spend_the_same_remainder(ledger: Ledger) -> None:
    caps = cap("analyst", cost(times=3))

    def attempt(_: int) -> bool:
        try:
            reserve(ledger, caps)
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(12))) == 3
    assert len(ledger.entries()) == 3


def test_damage_is_found(ledger: Ledger) -> None:
    path = ledger.path
    reserve(ledger, times=20)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError):
        ledger.verify()
    path.write_bytes(b"")
    for action in (ledger.verify, ledger.entries, lambda: ledger.spent(ANALYST, DELTA)):
        refused(LedgerError, "LE013", action)
    path.unlink()
    refused(LedgerError, "LE012", ledger.entries)


# --- what holds for every history

NAMES = ("bank", "clinic", "insurer", "shop")
OBSERVERS = [ANALYST, Observer.coordinator(), *map(Observer.party, NAMES)]
SLACK = 1e-9
NEXT = {
    "mark_sent": ("sent", {"reserved"}),
    "commit": ("committed", {"reserved", "sent"}),
    "release": ("released", {"reserved"}),
}


@st.composite
def studies(draw: st.DrawFn) -> tuple[SkellamRelease, Trust]:
    owners = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=3, max_size=4, unique=True)))
    shares = tuple((owner, Fraction(size)) for size in [draw(st.integers(10**11, 10**14))] for owner in owners)
    l1, norm = draw(st.integers(1, 10**5)), draw(st.integers(1, 10**12))
    event = SkellamRelease("moments", shares, 4, l1, norm, 2 * l1, 2 * norm, 1e-30, "moments-sensitivity")
    return event, Trust(owners, owners, 1)


def totals(history: list[tuple[SkellamRelease, Trust]]) -> list[list[float]]:
    """Every observer's total after each study."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "l.sqlite")
        found = []
        for event, trust in history:
            reserve(ledger, event=event, trust=trust)
            found.append([ledger.spent(observer, DELTA) for observer in OBSERVERS])
        ledger.verify()
        return found


@settings(max_examples=10)
@given(st.lists(studies(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_studies_does_not_matter_and_totals_never_fall(history, chance) -> None:
    first = totals(history)
    for before, after in pairwise(first):
        assert all(new >= old * (1 - SLACK) for old, new in zip(before, after, strict=True))
    shuffled = list(history)
    chance.shuffle(shuffled)
    assert totals(shuffled)[-1] == pytest.approx(first[-1], rel=SLACK)


class Lives(RuleBasedStateMachine):
    """Any sequence of calls on one ledger, beside a plain dictionary of states."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self.folder.name) / "l.sqlite")
        self.made: list[Entry] = []
        self.states: dict[int, str] = {}
        self.heads = [self.ledger.head]

    @precondition(lambda self: len(self.made) < 4)
    @rule()
    def reserve(self) -> None:
        entry = reserve(self.ledger)
        self.made.append(entry)
        self.states[entry.id] = "reserved"
        self.heads.append(self.ledger.head)

    @precondition(lambda self: self.made)
    @rule(data=st.data(), step=st.sampled_from(sorted(NEXT)))
    def step(self, data: st.DataObject, step: str) -> None:
        entry = data.draw(st.sampled_from(self.made))
        state, allowed = NEXT[step]
        if self.states[entry.id] in allowed:
            getattr(self.ledger, step)(entry)
            self.states[entry.id] = state
            self.heads.append(self.ledger.head)
        else:
            refused(LedgerError, "LE006", getattr(self.ledger, step), entry)

    @invariant()
    def the_ledger_tells_the_same(self) -> None:
        assert {entry.id: entry.state for entry in self.ledger.entries()} == self.states
        assert self.ledger.head == self.heads[-1]
        assert len(set(self.heads)) == len(self.heads)

    def teardown(self) -> None:
        for head in self.heads:
            self.ledger.verify(head=head)
        self.folder.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=8, stateful_step_count=12, deadline=None)
