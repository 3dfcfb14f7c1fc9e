"""Sums of what was composed before: quick, never too small, and never trusted where they do not fit the entries."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from functools import cache, partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import BudgetError, LedgerError
from colonnade.privacy import Adjacency, Budget, Ledger, Observer, Trust, accountant, ledger as book, parse_budgets
from colonnade.privacy.events import Event, view
from colonnade.privacy.ledger import caps as summing
from colonnade.privacy.ledger.caps import _HIDDEN, _SECRET, CapPeriod, keeps_cap, sum_costs
from colonnade.privacy.ledger.participants import (
    CrossStudyViews,
    DisclosedStudy,
    views_of_anybody,
    views_of_group,
)
from colonnade.privacy.noise_laws import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    PoissonSampled,
    RandomisedResponse,
    RepeatedRelease,
    SkellamRelease,
)
from tests.support.errors import refused
from tests.support.ledgers import DELTA, Clock, altered, keys, release

OWNERS = ("bank", "clinic", "shop")
TRUST = Trust(OWNERS, OWNERS, 1)
ROOM = parse_budgets({"analyst": 50.0, "party": 50.0}, DELTA)
MANY = 69
AFTER = MANY + MANY // 20 + 2
"""Days after which the clock of the filled ledger goes on."""
ANALYST = Observer.analyst()
MONTH = CapPeriod(30, parse_budgets({"analyst": 9.0}, DELTA))


def study(number: int, noise: int = 10**16, owners: tuple[str, ...] = OWNERS) -> SkellamRelease:
    """No two of these are equal."""
    return release(owners, noise + number)


def reserve(ledger: Ledger, number: int, caps=ROOM, periods=(), trust: Trust = TRUST) -> book.LedgerEntry:
    event = study(number, owners=trust.owners)
    return ledger.reserve(f"s{number}", "", [event], trust, caps, periods, keys(*trust.owners))


def check(ledger: Ledger, number: int, caps=ROOM, periods=()) -> None:
    ledger.check("s", [study(number)], TRUST, caps, periods, keys(*OWNERS))


def opened(path, content: bytes = b"", clock=None) -> Ledger:
    if content:
        path.write_bytes(content)
    return Ledger(path, owner="bank", clock=clock or Clock(step=1))


@cache
def filled_with(many: int) -> bytes:
    """A ledger of so many entries; of many, a few were released early and late."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = opened(Path(folder) / "l.sqlite")
        for number in range(many):
            entry = reserve(ledger, number)
            if number % 20 == 3 and many == MANY:
                ledger.release(entry)
        return ledger.path.read_bytes()


@pytest.fixture
def short(tmp_path) -> Ledger:
    """With few entries."""
    return opened(tmp_path / "l.sqlite", filled_with(34), Clock(MANY))


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    """With many entries."""
    return opened(tmp_path / "l.sqlite", filled_with(MANY), Clock(AFTER, step=1))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The events of every entry that the ledger reads back from its file, also where equal texts were read before."""
    seen: list[object] = []
    real = book.read_study

    def counted(events: str, trust: str, people: str | None) -> DisclosedStudy:
        seen.append(events)
        return real(events, trust, people)

    for module in (book, summing):
        monkeypatch.setattr(module, "read_study", counted)
    return seen


def check_none_is_read(ledger: Ledger, number: int, parsed: list[object], **more) -> None:
    """The next reservation reads no event of before, and the ledger is whole."""
    parsed.clear()
    reserve(ledger, number, **more)
    assert parsed == []
    ledger.verify()


def test_a_reservation_reads_no_event_of_before(ledger: Ledger, parsed: list[object]) -> None:
    for number in range(MANY, MANY + 6):
        reserve(ledger, number, periods=[MONTH])
        check(ledger, number, periods=[MONTH])
    assert parsed == []
    ledger.verify()
    assert len(parsed) >= MANY


def test_who_was_met_and_how_studies_ended_is_known_without_reading_events(
    ledger: Ledger, parsed: list[object]
) -> None:
    entries = ledger.entries()
    assert ledger.names_met() == book.limits.participant_labels([entry.content for entry in entries], "bank")
    parsed.clear()
    assert ledger.names_met() == {*OWNERS, "coordinator"}
    assert [ledger.state(entry) for entry in entries[2:5]] == ["reserved", "released", "reserved"]
    assert ledger.state(replace(entries[0], id=MANY + 1)) == "gone"
    ledger.count_aborted_studies(days=30)
    assert not ledger.note_time()
    assert parsed == []


def test_sums_and_everything_composed_anew_agree_on_where_a_cap_ends(ledger: Ledger) -> None:
    """Just above what is spent after the next study it is accepted, just below it is refused; so without sums."""
    entries = [entry.content for entry in ledger.entries() if entry.state != "released"]
    sight = CrossStudyViews([*entries, DisclosedStudy((study(MANY),), TRUST, entries[0].people)], "bank")
    for who in ("analyst", "shop", "others", "coordinator"):
        after = sight.total(sight.observer_named(Observer.parse(who)), DELTA).epsilon
        others = [Budget("others", 1000.0, DELTA)] * (who != "others")
        check(ledger, MANY, [Budget(who, after * 1.00001, DELTA), *others])
        refused(BudgetError, "BU002", who, check, ledger, MANY, [Budget(who, after * 0.9999, DELTA), *others])


def test_sums_are_made_anew_before_anything_is_composed_anew(
    ledger: Ledger, parsed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book.SpendingAccounts, "refusals", None)
    old = ledger.entries()[1]
    parsed.clear()
    ledger.release(old)
    reserve(ledger, MANY, periods=[MONTH])
    assert parsed == [], "a released entry is not counted, and those of the others stay as they are"
    altered(ledger.path, "DELETE FROM sums")
    reserve(ledger, MANY + 1, periods=[MONTH])
    check_none_is_read(ledger, MANY + 2, parsed, periods=[MONTH])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sums SET content = replace(content, 'AA', 'AB') WHERE first = 7",
        "UPDATE sums SET content = 'nonsense' WHERE first = 7",
        "UPDATE sums SET content = '{}' WHERE first = last",
        "UPDATE sums SET seal = '' WHERE first = 7",
        "UPDATE sums SET first = 0 WHERE first = 7",
        "DELETE FROM sums WHERE first = last AND last % 2 = 0",
        "DELETE FROM sums",
        "UPDATE sums SET content = (SELECT content FROM sums s WHERE s.first = 1) WHERE first = 7",
        "UPDATE sums SET content = CAST(content AS BLOB)",
    ],
)
def test_sums_that_were_altered_are_made_anew(ledger: Ledger, statement: str, parsed: list[object]) -> None:
    tight = [Budget(who, ledger.epsilon_spent(Observer.parse(who), DELTA), DELTA) for who in ("analyst", "others")]
    altered(ledger.path, statement)
    refused(BudgetError, "BU002", reserve, ledger, MANY, tight)
    parsed.clear()
    reserve(ledger, MANY)
    assert parsed
    check_none_is_read(ledger, MANY + 1, parsed)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO changes (id, entry, at, state) VALUES (-1, 2, '2020-01-01', 'released')",
        "UPDATE changes SET state = 'released' WHERE entry = 2",
        "DELETE FROM changes WHERE state = 'released' AND entry < 30",
        "UPDATE chain SET hash = upper(hash) WHERE change > 60",
        "UPDATE changes SET at = 'x' WHERE entry = 60",
        "UPDATE entries SET events = '[]' WHERE id = 60",
        "DELETE FROM entries WHERE id = 60",
        "UPDATE entries SET events = '[]' WHERE id = 2",
        "UPDATE entries SET digest = 'x' WHERE id = 2",
        "UPDATE people SET known = '{}' WHERE entry = 2",
        "DELETE FROM entries WHERE id = 2",
    ],
)
def test_whatever_was_altered_is_refused_at_a_reservation_and_shows(ledger: Ledger, statement: str) -> None:
    altered(ledger.path, statement)
    for call in (partial(reserve, ledger, MANY), ledger.verify):
        refused(LedgerError, "LE*", call)


def sealed_anew(path, change) -> None:
    """Change all sums as somebody could who knows how they are sealed."""
    link = "SELECT h.hash FROM chain h JOIN changes c ON c.id = h.change WHERE c.state = 'reserved' AND c.entry = ?"
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for number, _, content, _ in base.execute("SELECT * FROM sums").fetchall():
            value = json.loads(content)
            text = json.dumps(value | change(value))
            (found,) = base.execute(link, (number,)).fetchone()
            seal = hashlib.sha256(f"{number} {found} {text}".encode()).hexdigest()
            base.execute("UPDATE sums SET content = ?, seal = ? WHERE first = ?", (text, seal, number))


def other_groups(value, key: str):
    return {"groups": [key for _ in value["groups"]]}


NO_NUMBERS = base64.b64encode(np.full(10_000, np.nan).tobytes()).decode()
UNREADABLE = {
    "numbers that are none": lambda value: {"numbers": NO_NUMBERS[: len(value["numbers"]) // 4 * 4]},
    "too few numbers": lambda value: {"numbers": ""},
    "no list of groups": lambda value: {"groups": 7},
    "nonsense for a group": partial(other_groups, key="nonsense"),
    "a number for a group": partial(other_groups, key="7"),
    "deep values for a group": partial(other_groups, key="[" * 20_000),
    "a group of strangers": partial(other_groups, key=json.dumps(["", ["nobody"]])),
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
def test_sums_that_were_sealed_anew_and_cannot_be_right_are_made_anew(short, change, parsed):
    period = CapPeriod(30_000, (Budget("analyst", short.epsilon_spent(ANALYST, DELTA), DELTA),))
    sealed_anew(short.path, change)
    short.verify()
    refused(BudgetError, "BU002", check, short, MANY, periods=[period])
    reserve(short, MANY)
    check_none_is_read(short, MANY + 1, parsed)


def test_sums_that_were_lowered_and_sealed_anew_show(short: Ledger) -> None:
    def halved(value):
        numbers = np.frombuffer(base64.b64decode(value["numbers"]), dtype=np.float64) * 0.5
        return {"numbers": base64.b64encode(numbers.tobytes()).decode()}

    sealed_anew(short.path, halved)
    refused(LedgerError, "LE004", short.verify)


def test_sums_are_right_also_with_clocks_that_were_set(tmp_path) -> None:
    """Set ahead and back, with releases, notes of the time and rows that are made anew: all is found whole."""
    wall = Clock(step=1)
    ledger = opened(tmp_path / "l.sqlite", clock=wall)
    for number in range(38):
        wall.now += timedelta(days=400 * (number in (3, 11, 35)))
        entry = reserve(ledger, number)
        if number in (3, 12, 35):
            wall.now -= timedelta(days=401, microseconds=700)
            ledger.note_time()
        if number in (3, 10, 30):
            ledger.release(entry)
        if number == 34:
            altered(ledger.path, "DELETE FROM sums WHERE first > 9")
        if number % 5 == 0 or number > 32:
            ledger.verify()


def test_a_new_party_and_a_new_cap_are_summed_from_the_entries_once(ledger: Ledger, parsed: list[object]) -> None:
    reserve(ledger, MANY, trust=Trust(("bank", "insurer"), ("bank", "insurer", "coordinator"), 1))
    assert parsed == [], "who was never met sees of the past what an outsider sees"
    reserve(ledger, MANY + 1, parse_budgets(50.0, DELTA))
    assert parsed == [], "what bounds every group shows that this cap is kept"
    coordinator, others = (ledger.epsilon_spent(Observer.parse(who), DELTA) for who in ("coordinator", "others"))
    assert 1.1 * coordinator < others
    caps = [Budget("coordinator", 1.1 * coordinator, DELTA), Budget("others", 50.0, DELTA)]
    parsed.clear()
    reserve(ledger, MANY + 1, caps)
    assert parsed
    check_none_is_read(ledger, MANY + 2, parsed, caps=caps)
    check_none_is_read(ledger, MANY + 3, parsed)


@pytest.mark.parametrize("caps", [ROOM, parse_budgets({"coalition": 50.0}, DELTA)])
def test_a_large_study_or_many_acquaintances_do_not_make_a_ledger_read_everything(
    tmp_path, parsed: list[object], caps: tuple[Budget, ...]
) -> None:
    ledger, nine = opened(tmp_path / "l.sqlite"), ("bank", *(f"p{number}" for number in range(8)))
    reserve(ledger, 0, caps, trust=Trust(nine, nine[:3], 1))
    for number in range(1, 42):
        reserve(ledger, number, caps, trust=Trust(("bank", f"q{number}"), (), 0))
    assert parsed == []
    ledger.verify()


def test_a_period_counts_only_its_days_also_by_sums(ledger: Ledger, parsed: list[object]) -> None:
    now = opened(ledger.path, clock=Clock(AFTER))
    spent = {days: now.epsilon_spent(ANALYST, DELTA, days=days) for days in (100.0, 30.0, None)}
    assert spent[30.0] < spent[None] / 1.3
    for days in (100.0, 30.0):
        parsed.clear()
        check(now, 1, periods=[CapPeriod(days, (Budget("analyst", spent[days] * 1.5 + 1, DELTA),))])
        assert parsed == []
    back = opened(ledger.path, clock=Clock(-9))  # a clock that was set back drops nothing
    for which, days, most in ((now, 30, spent[30.0]), (back, 1, spent[None])):
        period = CapPeriod(days, (Budget("analyst", most, DELTA),))
        refused(BudgetError, "BU002", str(days), reserve, which, MANY, periods=[period])


# --- the costs themselves


@st.composite
def events(draw: st.DrawFn) -> Event:
    shares = tuple((owner, Fraction(draw(st.integers(10**5, 10**15)))) for owner in OWNERS)
    l1, factor, norm = draw(st.integers(1, 10**4)), draw(st.integers(1, 3)), draw(st.integers(1, 10**8))
    numbers = (shares, draw(st.integers(1, 50)), l1, norm, factor * l1, factor * factor * norm)
    whole, scale = tuple((owner, Fraction(1)) for owner in OWNERS), Fraction(draw(st.integers(10**5, 10**7)))
    noisy = draw(st.sampled_from([SkellamRelease, DiscreteGaussianRelease]))("m", *numbers, tail=1e-30, theorem="t")
    rate = Fraction(draw(st.integers(1, 99)), 100)
    batches = [RepeatedRelease(PoissonSampled(noisy, rate, known), draw(st.integers(1, 9))) for known in ((), OWNERS)]
    return draw(
        st.sampled_from(
            [
                noisy,
                RepeatedRelease(noisy, draw(st.integers(1, 5))),
                *batches,
                DiscreteLaplaceRelease("l", whole, 3, scale, l1, factor * l1),
                RandomisedResponse("r", Fraction(draw(st.integers(101, 400)), 100), 2, "clinic"),
            ]
        )
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(events(), min_size=1, max_size=3), st.sampled_from(["analyst", "bank", "coordinator"]))
def test_costs_never_show_less_than_the_accountant_proves(told: list[Event], who: str) -> None:
    told_how_many = any(isinstance(event, RandomisedResponse) for event in told)
    relation = Adjacency.ADD_REMOVE if who == "analyst" and not told_how_many else Adjacency.REPLACE
    seen = [view(event, Observer.parse(who), TRUST, relation) for event in told]
    total, proven = sum_costs(seen), accountant.epsilon(seen, DELTA).epsilon
    for factor in (0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0001, 1.1, 2.0, 100.0):
        if 0 < (epsilon := proven * factor) < 1e6 and keeps_cap(Budget("analyst", epsilon, DELTA), total, relation):
            assert proven <= epsilon or accountant.delta(seen, epsilon) <= DELTA


@st.composite
def messages(draw: st.DrawFn) -> Event:
    """What some owners tell some others, or everybody, about their columns, or about all."""
    about = tuple(draw(st.lists(st.sampled_from(OWNERS), max_size=2, unique=True)))
    audience = tuple(draw(st.lists(st.sampled_from([*OWNERS, "coordinator"]), max_size=2, unique=True)))
    shares = tuple((owner, Fraction(draw(st.integers(10**9, 10**13)))) for owner in about or OWNERS)
    finer = [("clinic", 10**3, 10**6)] if draw(st.booleans()) else []
    numbers, said = (9, 10**4, 10**8, 2 * 10**4, 4 * 10**8), {"tail": 1e-30, "theorem": "t", "others": tuple(finer)}
    return SkellamRelease("a message", shares, *numbers, audience=audience, about=about, **said)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(events() | messages(), min_size=1, max_size=3),
    st.sampled_from(
        [
            TRUST,
            Trust(OWNERS, ("bank", "clinic", "coordinator"), 1),
            Trust(OWNERS[:2], (*OWNERS[:2], "coordinator"), 1),
        ]
    ),
)
def test_what_bounds_everybody_is_at_least_what_each_group_learns(told: list[Event], trust: Trust) -> None:
    known = {*trust.owners, "coordinator"}
    study = DisclosedStudy(tuple(event for event in told if {name for name, _ in event.marks()} <= known), trust)
    bound = list(views_of_anybody(study))
    groups = [frozenset(group) for size in range(5) for group in combinations(study.names, size)]
    for group in groups:
        seen = list(views_of_group(study, group, True, False, Adjacency.REPLACE))
        more = sum_costs(seen) > sum_costs(bound) * (1 + 1e-12)
        more[_HIDDEN] = more[_SECRET] = False  # the bound may know the batches, and be counted without this route
        assert not np.any(more)


def test_costs_of_noise_alone_are_as_tight_as_the_accountant() -> None:
    seen = [view(study(number, 10**14), Observer.party("bank"), TRUST, Adjacency.REPLACE) for number in range(40)]
    proven = accountant.epsilon(seen, DELTA).epsilon
    assert keeps_cap(Budget("party", proven * (1 + 1e-6), DELTA), sum_costs(seen), Adjacency.REPLACE)
