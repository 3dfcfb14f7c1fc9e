"""The life of entries, what observers learn over all studies, and caps on it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colonnade.errors import BudgetError, LedgerError
from colonnade.privacy.events import NonPrivate, SkellamRelease
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.ledger.without import check_without_ledger
from colonnade.privacy.observers import Budget, Observer, Trust
from tests.support.errors import refused
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
    entry = ledger.commit(ledger.mark_sent(reserve(ledger, cap("analyst", 10))))
    assert Ledger(ledger.path).entries() == (entry,)
    assert (entry.study, entry.digest, entry.events, entry.trust) == ("s0", "digest", (EVENT,), TRUST)
    assert ledger.release(reserve(ledger)).state == "released"
    assert ledger.spent(ANALYST, DELTA) == cost(), "what was released is given back"
    refused(LedgerError, "LE005", "99", ledger.commit, replace(entry, id=99))
    refused(LedgerError, "LE002", ledger.reserve, "s", "", [], TRUST, [])
    ledger.verify()


def test_studies_compose_by_the_accountant_not_by_addition(ledger: Ledger) -> None:
    reserve(ledger, times=4)
    assert ledger.spent(Observer.party("bank"), DELTA) == cost("bank", 4) < 4 * cost("bank")
    assert ledger.spent(Observer.parse("bank+shop"), DELTA) == float("inf")


def test_the_course_of_spending_ends_with_the_totals(path: Path) -> None:
    ledger = Ledger(path, owner="bank")
    assert ledger.course(DELTA) == ([], {"analyst": []})
    ledger.release(reserve(ledger, times=4))
    reserve(ledger)
    when, found = ledger.course(DELTA)
    assert len(when) == 4
    assert when == sorted(when)
    totals = ledger.totals(DELTA)
    assert {who: line[-1] for who, line in found.items()} == {who: totals[who] for who in found}
    assert set(found) == {"analyst", "coordinator", "bank", "shop", "others"}
    assert found["analyst"] == [cost(times=k) for k in range(1, 5)]
    assert ledger.course(DELTA, most=2)[1]["analyst"] == [cost(times=k) for k in (2, 4)]


def test_over_budget_is_refused_with_spent_asked_left(ledger: Ledger) -> None:
    caps = [*cap("analyst", cost(times=2)), *cap("party", 100)]
    reserve(ledger, caps, times=2)
    assert "bank" not in refused(BudgetError, "BU002", "0", reserve, ledger, caps)
    assert len(ledger.entries()) == 2
    reserve(ledger, cap("party", 100))


def test_every_observer_over_its_cap_is_named_and_the_furthest_first(ledger: Ledger) -> None:
    said = refused(BudgetError, "BU002", "coordinator:", "bank:", "shop:", reserve, ledger, cap("everyone", cost()))
    assert "analyst:" not in said
    caps = [*cap("analyst", cost() / 1.1), *cap("shop", cost("shop") / 3), *cap("coordinator", 100)]
    said = refused(BudgetError, "BU002", "0.0000", reserve, ledger, caps)
    assert "coordinator" not in said
    assert said.index("shop") < said.index("analyst")


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
    said = set()
    for check in (ledger.check, check_without_ledger):
        check("s", [EVENT], TRUST, cap("analyst", cost() * 1.01))
        said.add(refused(BudgetError, "BU002", "analyst", check, "s", [EVENT], TRUST, cap("analyst", cost() / 2)))
    assert len(said) == 1
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


def test_damage_is_found(ledger: Ledger) -> None:
    reserve(ledger, times=8)
    whole = ledger.path.read_bytes()
    actions = (ledger.verify, ledger.entries, partial(ledger.spent, ANALYST, DELTA))
    for content, code, found_by in ((whole[: len(whole) // 2], "LE*", actions[:1]), (b"", "LE013", actions)):
        ledger.path.write_bytes(content)
        for action in found_by:
            refused(LedgerError, code, action)
    ledger.path.unlink()
    refused(LedgerError, "LE012", ledger.entries)


# --- what holds for every history

NEXT = {
    "mark_sent": ("sent", {"reserved"}),
    "commit": ("committed", {"reserved", "sent"}),
    "release": ("released", {"reserved"}),
}


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
