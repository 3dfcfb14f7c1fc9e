"""What holds for every history of a ledger."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colonnade.errors import LedgerError
from colonnade.privacy.events import SkellamRelease
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.observers import Observer, Trust
from tests.support.errors import raises

NAMES = ("bank", "clinic", "insurer", "shop")
OBSERVERS = [Observer.analyst(), Observer.coordinator(), *map(Observer.party, NAMES)]
DELTA = 1e-5
SLACK = 1e-9
TRUST = Trust(NAMES, NAMES, 1)
EVENT = SkellamRelease(
    "moments", tuple((name, Fraction(10**12)) for name in NAMES), 4, 10**6, 10**12, 2 * 10**6, 2 * 10**12, 1e-30, "m"
)
NEXT = {
    "mark_sent": ("sent", {"reserved"}),
    "commit": ("committed", {"reserved", "sent"}),
    "release": ("released", {"reserved"}),
}


@st.composite
def studies(draw: st.DrawFn) -> tuple[SkellamRelease, Trust]:
    owners = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=3, max_size=4, unique=True)))
    trust = Trust(owners, owners, 1)
    size = Fraction(draw(st.integers(10**11, 10**14)))
    shares = tuple((owner, size) for owner in owners)
    l1, norm = draw(st.integers(1, 10**5)), draw(st.integers(1, 10**12))
    event = SkellamRelease("moments", shares, 4, l1, norm, 2 * l1, 2 * norm, 1e-30, "moments-sensitivity")
    return event, trust


def totals(history: list[tuple[SkellamRelease, Trust]]) -> list[list[float]]:
    """Every observer's total after each study."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "l.sqlite")
        found = []
        for number, (event, trust) in enumerate(history):
            ledger.reserve(f"s{number}", "", [event], trust, [])
            found.append([ledger.spent(observer, DELTA) for observer in OBSERVERS])
        ledger.verify()
        return found


@settings(max_examples=15, deadline=None)
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
        entry = self.ledger.reserve("s", "", [EVENT], TRUST, [])
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
            with raises(LedgerError, "LE006"):
                getattr(self.ledger, step)(entry)

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
TestLives.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
