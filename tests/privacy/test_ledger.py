"""The life of entries, what observers learn over all studies, and caps on it, for ever and per period."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colonnade.errors import BudgetError, LedgerError, PrivacyError
from colonnade.privacy import (
    Budget,
    Ledger,
    LedgerEntry,
    NonPrivate,
    Observer,
    SkellamRelease,
    Trust,
    epsilon,
    parse_budgets,
    views,
)
from colonnade.privacy.ledger.caps import CapPeriod, SpendingAccounts, effective_dates, find_future_dates, with_others
from colonnade.privacy.ledger.participants import ALL_OTHERS, CrossStudyViews, DisclosedStudy, StudyParticipants
from colonnade.privacy.ledger.storage import append_change, insert_entry
from tests.support.errors import refused
from tests.support.ledgers import DELTA, EVENT, FREE, START, TRUST, Clock, cap, cost, keys, release

ANALYST = Observer.analyst()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "bank.ledger")


def reserve(
    ledger: Ledger, caps=(), times: int = 1, trust: Trust = TRUST, event: SkellamRelease = EVENT
) -> LedgerEntry:
    """Reserve as often as told; the last entry."""
    return [ledger.reserve(f"s{number}", "digest", [event], trust, caps) for number in range(times)][-1]


def test_the_life_of_an_entry(ledger: Ledger) -> None:
    entry = ledger.commit(ledger.mark_sent(reserve(ledger, cap("analyst", 10))))
    assert Ledger(ledger.path).entries() == (entry,)
    assert (entry.study, entry.digest, entry.events, entry.trust) == ("s0", "digest", (EVENT,), TRUST)
    assert ledger.release(reserve(ledger)).state == "released"
    assert ledger.epsilon_spent(ANALYST, DELTA) == cost(), "what was released is given back"
    refused(LedgerError, "LE005", "99", ledger.commit, replace(entry, id=99))
    refused(LedgerError, "LE002", ledger.reserve, "s", "", [], TRUST, [])
    ledger.verify()


def test_studies_compose_by_the_accountant_not_by_addition(ledger: Ledger) -> None:
    reserve(ledger, times=4)
    assert ledger.epsilon_spent(Observer.party("bank"), DELTA) == cost("bank", 4) < 4 * cost("bank")
    assert ledger.epsilon_spent(Observer.parse("bank+shop"), DELTA) == float("inf")


def test_the_course_of_spending_ends_with_the_totals(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "bank.ledger", owner="bank")
    assert ledger.spending_over_time(DELTA) == ([], {"analyst": []})
    ledger.release(reserve(ledger, times=4))
    reserve(ledger)
    when, found = ledger.spending_over_time(DELTA)
    assert len(when) == 4
    assert when == sorted(when)
    totals = ledger.totals(DELTA)
    assert {who: line[-1] for who, line in found.items()} == {who: totals[who] for who in found}
    assert set(found) == {"analyst", "coordinator", "bank", "shop", "others"}
    assert found["analyst"] == [cost(times=k) for k in range(1, 5)]
    assert ledger.spending_over_time(DELTA, most=2)[1]["analyst"] == [cost(times=k) for k in (2, 4)]


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
    assert ledger.epsilon_spent(Observer.party("bank"), DELTA) == cost("bank", 2)
    assert ledger.epsilon_spent(ANALYST, DELTA) == cost(times=2)
    # The shop took no part in the second study but reads its result.
    shop = ledger.epsilon_spent(Observer.party("shop"), DELTA)
    assert cost("shop") < shop < cost("shop", 2)
    refused(BudgetError, "BU002", reserve, ledger, cap("party", shop * 1.001))


def test_an_analyst_who_knows_the_number_of_rows_of_one_study_is_held_to_replacing_in_all(ledger: Ledger) -> None:
    reserve(ledger, cap("everyone", 100))
    assert ledger.epsilon_spent(ANALYST, DELTA) == cost()
    reserve(ledger, cap("everyone", 100), trust=Trust(("bank", "shop"), (), 0))
    # Each sees all noise at the replace sensitivity, as the coordinator always did.
    assert ledger.epsilon_spent(ANALYST, DELTA) == cost("coordinator", 2) > cost(times=2)
    refused(BudgetError, "BU002", reserve, ledger, cap("analyst", cost("coordinator", 2)))
    assert [left.who for left in ledger.remaining(cap("analyst", 100), [])] == ["analyst", "others"]


def test_asking_first_writes_nothing_with_or_without_a_ledger(ledger: Ledger) -> None:
    def check_new(study, events, trust, caps):
        new = SpendingAccounts((), "", datetime.now(UTC))
        new.refuse(study, DisclosedStudy.of("", events, trust, None), caps, ())

    said = set()
    for check in (ledger.check, check_new):
        check("s", [EVENT], TRUST, cap("analyst", cost() * 1.01))
        said.add(refused(BudgetError, "BU002", "analyst", check, "s", [EVENT], TRUST, cap("analyst", cost() / 2)))
    assert len(said) == 1
    assert ledger.entries() == ()


def test_what_is_left_of_each_cap(ledger: Ledger) -> None:
    caps = [Budget("analyst", 100, DELTA), Budget("party", 50, DELTA)]
    before = [(left.who, left.spent, left.remaining) for left in ledger.remaining(caps)]
    assert before == [("analyst", 0, 100), ("party", 0, 50), ("others", 0, 50)]
    reserve(ledger, caps)
    found = {left.who: left for left in ledger.remaining(caps)}
    assert set(found) == {"analyst", "bank", "shop", "others"}
    assert found["others"].spent == found["bank"].spent == cost("bank")
    assert 0 <= 50 - cost("bank") - found["bank"].remaining <= 1e-4


def test_damage_is_found(ledger: Ledger) -> None:
    reserve(ledger, times=8)
    whole = ledger.path.read_bytes()
    actions = (ledger.verify, ledger.entries, partial(ledger.epsilon_spent, ANALYST, DELTA))
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
        self.states: dict[int, str] = {}
        self.heads = [self.ledger.head]

    @precondition(lambda self: len(self.states) < 4)
    @rule()
    def reserve(self) -> None:
        self.states[reserve(self.ledger).id] = "reserved"
        self.heads.append(self.ledger.head)

    @precondition(lambda self: self.states)
    @rule(data=st.data(), step=st.sampled_from(sorted(NEXT)))
    def step(self, data: st.DataObject, step: str) -> None:
        entry = data.draw(st.sampled_from(self.ledger.entries()))
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


# --- caps over all studies, on everybody whom a ledger ever met, alone, in pairs and together


NOISE = 10**13
BANK = Observer.party("bank")


def pair_of(other: str) -> Trust:
    return Trust(("me", other), (), 0)


def message(sender: str, to: str) -> SkellamRelease:
    """What one party tells another about its own columns."""
    return release((sender,), NOISE, 4, audience=(to,), about=(sender,))


def play(mine: Ledger, bank: str, caps=(), key: str | None = None, periods=()) -> None:
    """A study of two, in which the own party tells a bank a noised number."""
    known = keys("me", bank, **({bank: key} if key else {}))
    mine.reserve(f"with {bank}", "", [message("me", bank)], pair_of(bank), caps, periods, known)


def one(times: int) -> float:
    return cost("bank", times, message("me", "bank"), pair_of("bank"))


@pytest.fixture
def mine(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "me.sqlite", owner="me")


def room(times: int) -> float:
    """Room for so many of these messages, and hardly more."""
    return one(times) * 1.0001


@pytest.mark.parametrize(
    ("budgets", "accepted"),
    [
        ({"everyone": 2}, 2),
        ({"pair": 1, "others": 100.0}, 1),
        ({"analyst": 0.1, "party": 2}, 2),
        ({"analyst": 0.1, "party": 2, "coordinator": 50.0}, 2),
    ],
    ids=["everyone", "pairs who never met", "all others have the largest cap", "but not that of one by name"],
)
def test_many_banks_do_not_get_many_budgets(mine: Ledger, budgets, accepted: int) -> None:
    """Whole numbers are counts of messages for which there is room."""
    caps = parse_budgets({who: room(size) if isinstance(size, int) else size for who, size in budgets.items()}, DELTA)
    for number in range(accepted):
        play(mine, f"bank{number}", caps)
    for number in range(accepted, 4):
        said = refused(BudgetError, "BU002", f"{room(accepted):g}", play, mine, f"bank{number}", caps)
        assert ("others" in said) == (accepted == 2)
    shown = {left.who: left.spent for left in mine.remaining(parse_budgets(room(2), DELTA))}
    assert (shown["bank0"], shown["others"]) == (one(1), one(accepted))
    assert mine.epsilon_spent(Observer.others(), DELTA) == one(accepted)
    if accepted == 2:
        assert shown["bank0+bank1"] == one(2) == mine.epsilon_spent(Observer.parse("bank0+bank1"), DELTA)
        play(mine, "bank2", [*caps, Budget("others", room(3), DELTA)])


def test_a_period_for_everyone_counts_all_others_and_a_named_one_does_not(mine: Ledger) -> None:
    play(mine, "bank0")
    everyone, party = (CapPeriod(30, parse_budgets(caps, DELTA)) for caps in (room(1), {"party": room(1)}))
    refused(BudgetError, "BU002", "30", "others", "policy.periods", play, mine, "bank1", periods=[everyone])
    play(mine, "bank1", periods=[party])
    assert with_others(parse_budgets({"bank": 1.0, "coordinator": 2.0}, DELTA))[-1] == Budget("others", 2.0, DELTA)


def test_a_key_is_one_observer_whatever_it_calls_itself(mine: Ledger) -> None:
    caps = parse_budgets({"party": room(1), "others": 100.0}, DELTA)
    play(mine, "bank", caps)
    refused(BudgetError, "BU002", play, mine, "credit", caps, key="sha256:bank")
    play(mine, "credit", key="sha256:bank")
    for name in ("bank", "credit", "bank+credit"):
        assert mine.epsilon_spent(Observer.parse(name), DELTA) == one(2)
    assert (mine.totals(DELTA).get("bank"), mine.totals(DELTA)["credit"]) == (None, one(2))
    refused(BudgetError, "BU002", play, mine, "third name", cap("bank", one(2)), key="sha256:bank")
    play(mine, "other", cap("bank", one(1)))  # tells the bank nothing


@pytest.mark.parametrize("before", [0, 1], ids=["all with keys", "one without"])
def test_one_name_under_two_keys_is_two_observers_and_entries_without_keys_count_for_both(
    mine: Ledger, before: int
) -> None:
    if before:
        mine.reserve("of before", "", [message("me", "bank")], pair_of("bank"), ())
    for key in ("sha256:aaaaaaaa", "sha256:bbbbbbbb"):
        play(mine, "bank", key=key)
    shown = mine.totals(DELTA)
    assert shown["bank (aaaaaa)"] == shown["bank (bbbbbb)"] == one(1 + before)
    assert shown["bank (aaaaaa)+bank (bbbbbb)"] == shown["others"] == one(2 + before)
    assert mine.epsilon_spent(Observer.party("bank (aaaaaa)"), DELTA) == one(1 + before)
    assert mine.epsilon_spent(BANK, DELTA) == one(2 + before), "a name means all who used it"


def test_a_coordinator_is_recognised_as_a_party_elsewhere(mine: Ledger) -> None:
    trust = Trust(("me", "shop"), ("me", "shop", "coordinator"), 1)
    event, known = release(trust.owners, NOISE, 4), keys("me", "shop", coordinator="sha256:bank")
    mine.reserve("with the bank as coordinator", "", [event], trust, (), (), known)
    play(mine, "bank")
    (as_hub,) = views([event], Observer.coordinator(), trust)
    (as_party,) = views([message("me", "bank")], BANK, pair_of("bank"))
    both = epsilon([as_hub, replace(as_party, adjacency=as_hub.adjacency)], DELTA).epsilon
    assert (mine.epsilon_spent(BANK, DELTA), mine.totals(DELTA)["bank"]) == pytest.approx((both, both), rel=1e-12)


def test_who_the_own_party_is_is_taken_from_the_entries_or_else_nobody_is_left_out(tmp_path: Path) -> None:
    me, nobody, unnamed = (Ledger(tmp_path / "l.sqlite", owner=owner) for owner in ("me", "nobody", ""))
    told = [message("me", "bank"), message("bank", "shop")]
    unnamed.reserve("of before", "", told, Trust(("me", "bank", "shop"), (), 0), ())
    mine, theirs, unknown = (each.epsilon_spent(Observer.others(), DELTA) for each in (me, nobody, unnamed))
    assert unknown == pytest.approx(one(2), rel=1e-9), "two of three, whichever two, see each message of the third"
    assert (mine, theirs) == (one(1), unknown)
    play(me, "bank")
    assert unnamed.epsilon_spent(Observer.others(), DELTA) == one(2), "a later entry says whose mine it is"


def test_two_participants_with_one_key_and_incomplete_keys_are_refused(mine: Ledger) -> None:
    asked = ("s", "", [message("me", "bank")], pair_of("bank"), (), ())
    twice = keys("me", "bank", coordinator="sha256:bank")
    refused(LedgerError, "LE036", "bank", "coordinator", mine.reserve, *asked, twice)
    refused(LedgerError, "LE035", mine.reserve, *asked, {"me": "a", "bank": "b"})
    refused(LedgerError, "LE034", "clinic", Ledger(mine.path, owner="clinic").reserve, *asked, keys("me", "bank"))
    assert mine.entries() == ()
    refused(PrivacyError, "PR060", parse_budgets, {"others": 1.0}, DELTA, pair_of("bank"))
    for known in ("[]", "{}", '{"own": 1, "keys": {}}', '{"own": "me", "keys": {"bank": 3}}'):
        refused(PrivacyError, "PR038|PR039", StudyParticipants.from_json, known)


def test_exact_answers_are_beside_the_cap_of_all_others_and_not_beside_those_that_name_who_got_them(
    mine: Ledger,
) -> None:
    exact, leak = NonPrivate("scores without noise", "scores", ("bank",)), NonPrivate("it leaked")
    asked = (pair_of("bank"), [Budget("analyst", 1.0, DELTA)], (), keys("me", "bank"))
    mine.reserve("exact", "", [exact], *asked)
    assert (mine.epsilon_spent(Observer.others(), DELTA), mine.epsilon_spent(BANK, DELTA)) == (0, float("inf"))
    refused(BudgetError, "BU002", "leak", mine.reserve, "leak", "", [leak], *asked)


def test_many_parties_get_one_row_for_each_figure(mine: Ledger) -> None:
    for number in range(12):
        play(mine, f"bank{number}")
    shown = mine.totals(DELTA)
    assert len(shown) < 12
    assert shown["others"] == pytest.approx(one(12), rel=1e-9)
    assert [total for who, total in shown.items() if who.count("+") == 1] == [one(1), one(2)]  # with the coordinator
    caps = parse_budgets({"pair": room(2), "others": 100.0}, DELTA)
    refused(BudgetError, "BU002", play, mine, "bank7", caps)
    play(mine, "another", caps)


def test_a_ledger_of_before_is_shown_by_these_rules_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "earlier.sqlite"
    before = (Path(__file__).parents[1] / "fixtures" / "ledger" / "earlier-ledger.db").read_bytes()
    path.write_bytes(before)
    shown = Ledger(path).totals(DELTA)
    assert {"analyst", "coordinator", "bank", "shop", "clinic", "bank+shop", "others"} <= set(shown)
    assert shown["others"] >= max(total for who, total in shown.items() if who != "others")
    assert 0 < Ledger(path, owner="shop").totals(DELTA)["others"] <= shown["others"]
    assert path.read_bytes() == before


# --- what holds for every history

NAMES = ("bank", "clinic", "insurer", "shop")


def told_by(event: SkellamRelease, trust: Trust) -> DisclosedStudy:
    return DisclosedStudy((event,), trust, StudyParticipants.of("me", keys(*trust.owners), trust))


@st.composite
def published(draw: st.DrawFn) -> DisclosedStudy:
    """A study whose result everybody sees, under noise of uneven shares."""
    owners = ("me", *draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)))
    seats = (*owners, "coordinator") if len(owners) == 2 else draw(st.sampled_from([owners, owners[:3]]))
    trust = Trust(owners, seats, draw(st.integers(1, (len(seats) - 1) // 2)))
    shares = tuple((owner, Fraction(draw(st.integers(10**12, 10**14)))) for owner in owners)
    l1, norm = draw(st.integers(1, 10**5)), draw(st.integers(1, 10**12))
    return told_by(SkellamRelease("m", shares, 4, l1, norm, 2 * l1, 2 * norm, tail=1e-30, theorem="t"), trust)


@settings(max_examples=25)
@given(st.lists(published(), min_size=1, max_size=4))
def test_more_members_never_learn_less_and_all_others_learn_most(studies: list[DisclosedStudy]) -> None:
    sight = CrossStudyViews(studies, "me")
    others = [who for who in sight.everybody.somebodies if not sight.everybody.is_own(who)]
    most = sight.total(ALL_OTHERS, DELTA).epsilon * (1 + 1e-9)
    figures = {
        frozenset(group): sight.total(sight.group(group), DELTA).epsilon
        for size in range(1, len(others) + 1)
        for group in combinations(others, size)
    }
    for group, figure in figures.items():
        assert figure <= most
        assert all(figures[group - {member}] <= figure * (1 + 1e-9) for member in group if len(group) > 1)
    for who in (
        who for kind in ("party", "coalition", "everyone") for who in sight.observers_of_cap(Budget(kind, 1.0, DELTA))
    ):
        own = who.tokens is not None and any(kind == "own" for kind, _ in who.tokens)
        assert own or sight.total(who, DELTA).epsilon <= most
    for who in sight.observers_of_cap(
        Budget("pair", 1.0, DELTA)
    ):  # what is shown of a pair is what is answered about it
        honest = sight.total(sight.observer_named(Observer.parse(who.label)), DELTA).epsilon
        within = [(told.trust, sight.names_in_study(number, who)) for number, told in enumerate(studies)]
        broken = any(names and trust.broken(Observer.coalition(*names)) for trust, names in within)
        assert honest == (float("inf") if broken else sight.total(who, DELTA).epsilon)
    turned, fewer = CrossStudyViews(studies[::-1], "me"), CrossStudyViews(studies[:-1], "me")
    for label in ("analyst", "coordinator", *NAMES):
        before, now, back = (
            each.total(each.observer_named(Observer.parse(label)), DELTA).epsilon for each in (fewer, sight, turned)
        )
        assert before * (1 - 1e-9) <= now == pytest.approx(back, rel=1e-9), "the order of studies does not matter"


@settings(max_examples=5)
@given(st.lists(published(), min_size=4, max_size=7), st.data())
def test_one_pair_of_each_figure_stands_for_all(studies: list[DisclosedStudy], data: st.DataObject) -> None:
    """With more parties than are listed one by one, no pair learns more than some pair that is listed."""
    renamed = []
    for number in range(len(studies)):  # the same few shapes, and a stranger in each
        told = data.draw(st.sampled_from(studies[: number + 1]))
        names = {name: f"{name}{data.draw(st.integers(0, 9))}" for name in told.trust.owners}
        names |= {"me": "me", "coordinator": "coordinator"}
        owners, committee = (tuple(map(names.get, group)) for group in (told.trust.owners, told.trust.committee))
        shares = tuple((names[owner], size) for owner, size in told.events[0].shares)
        renamed.append(told_by(replace(told.events[0], shares=shares), Trust(owners, committee, told.trust.threshold)))
    sight = CrossStudyViews(renamed, "me")
    listed = max(
        (sight.total(who, DELTA).epsilon for who in sight.observers_of_cap(Budget("pair", 1.0, DELTA))), default=0.0
    )
    others = [who for who in sight.everybody.somebodies if not sight.everybody.is_own(who)]
    for who in map(sight.group, combinations(others, 2)):
        if sight._is_within_somewhere(who):
            assert sight.total(who, DELTA).epsilon <= listed * (1 + 1e-9)


# --- caps per period: a rolling window over the time of reservation, and clocks that are wrong


@pytest.fixture
def wall() -> Clock:
    return Clock()


@pytest.fixture
def timed(tmp_path: Path, wall: Clock) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", clock=wall)


def month(times: int) -> CapPeriod:
    """Thirty days, room for so many of our releases."""
    return CapPeriod(30, (Budget("analyst", cost(times=times) * 1.0001, DELTA),))


def spend(mine: Ledger, *periods: CapPeriod, caps: tuple[Budget, ...] = ()) -> None:
    mine.reserve("s", "", [EVENT], TRUST, caps, periods)


def spent_in(mine: Ledger, days: float | None = None) -> float:
    return mine.epsilon_spent(Observer.analyst(), DELTA, days=days)


def test_the_date_waits_for_as_many_as_are_needed_and_what_never_fits_has_none(timed: Ledger, wall: Clock) -> None:
    never = CapPeriod(7, (Budget("analyst", cost() / 2, DELTA),))
    assert "aged out" not in refused(BudgetError, "BU002", "7", spend, timed, never)
    for day in range(4):
        wall.shows(day)
        spend(timed)
    wall.shows(4)
    said = refused(BudgetError, "BU002", "30", "1", "analyst", "30 days", spend, timed, month(2))
    assert "enough will have aged out on 2031-04-02 at 12:00 UTC" in said
    wall.shows(32)
    assert wall.now.isoformat().startswith("2031-04-02T12:00")
    spend(timed, month(2))


def test_the_cap_for_ever_stays_when_a_period_has_aged_out(timed: Ledger, wall: Clock) -> None:
    ever = (Budget("analyst", cost(times=2) * 1.0001, DELTA), FREE)
    for day in (0, 100):
        wall.shows(day)
        spend(timed, month(1), caps=ever)
    wall.shows(1000)
    assert "days" not in refused(BudgetError, "BU002", spend, timed, month(1), caps=ever)


def test_periods_by_observer_and_several_at_once(timed: Ledger, wall: Clock) -> None:
    periods = [CapPeriod(7, (Budget("shop", cost("shop") * 1.0001, DELTA),)), month(2)]
    for day, full in ((0, ""), (3, "7"), (8, ""), (16, "30")):
        wall.shows(day)
        if full:
            assert ("analyst" in refused(BudgetError, "BU002", full, spend, timed, *periods)) == (full == "30")
        else:
            spend(timed, *periods)


YES, NO, DATED, RELEASED = "accepted", "refused", "refused with a date", "reserved and released"


@pytest.mark.parametrize(
    ("room", "steps", "within"),
    [
        (3, [(0, YES), (10, YES), (20, YES), (25, DATED), (29.9999, DATED), (30, YES)], 3),
        (2, [(0, YES), (0, YES), (-10, NO), (-400, NO), (0, NO)], 2),
        (2, [(0, YES), (-4000, YES), (1, NO)], 2),
        (1, [(26000, RELEASED), (0, YES), (29, DATED), (31, YES)], 1),
        (2, [(26000, YES), (0, YES), (29, DATED), (30, YES)], 1),
        (1, [(26000, YES), (0, NO), (0, "noted"), (29, DATED), (31, YES)], 1),
    ],
    ids=[
        "a right one",
        "set back it drops nothing",
        "no older than the one before",
        "released",
        "not full for decades",
        "noticed",
    ],
)
def test_whatever_a_clock_did_nothing_counts_too_short_or_for_ever(
    timed: Ledger, wall: Clock, room: int, steps: list[tuple[float, str]], within: int
) -> None:
    for day, step in steps:
        wall.shows(day)
        if step == RELEASED:
            timed.release(timed.reserve("s", "", [EVENT], TRUST, ()))
        elif step == "noted":  # and once is enough
            assert [timed.note_time() for _ in range(2)] == [True, False]
            timed.verify()
        elif step == YES:
            spend(timed, month(room))
        else:
            refused(BudgetError, "BU002", "2031" if step == DATED else (), spend, timed, month(room))
    assert spent_in(timed, 30) == cost(times=within)
    assert spent_in(timed) == cost(times=sum(step == YES for _, step in steps))
    assert sum(entry.state != "released" for entry in timed.entries(days=30)) == within
    assert not timed.note_time()


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=8))
def test_under_a_clock_that_only_ran_ahead_no_counted_entry_seems_older_than_it_is(
    steps: list[tuple[int, bool]],
) -> None:
    """Entry i is written at day i by a right clock, or later by one that is ahead; now is day n."""
    *written, now = [START + timedelta(days=day) for day in range(len(steps) + 1)]
    stored = [(when + timedelta(days=error), released) for when, (error, released) in zip(written, steps, strict=True)]
    for counts, when, (_, released) in zip(effective_dates(stored, now), written, steps, strict=True):
        assert released or counts >= when


@given(st.lists(st.integers(-100, 0), max_size=8))
def test_under_a_clock_that_was_set_back_no_entry_seems_older_than_the_one_before(errors: list[int]) -> None:
    now = START + timedelta(days=len(errors))
    stored = [(START + timedelta(days=day + error), False) for day, error in enumerate(errors)]
    found = effective_dates(stored, now)
    assert found == sorted(found)
    assert all(counts >= when for counts, (when, _) in zip(found, stored, strict=True))


def test_what_is_left_in_a_period_and_a_period_has_a_length(timed: Ledger, wall: Clock) -> None:
    for day in (0, 40):
        wall.shows(day)
        spend(timed)
    found = timed.remaining([Budget("analyst", 50, DELTA)], [CapPeriod(30, (Budget("analyst", 20, DELTA),))])
    assert [(left.who, left.days, left.epsilon) for left in found] == [
        ("analyst", None, 50), ("others", None, 50), ("analyst", 30, 20),
    ]  # fmt: skip
    assert (found[0].spent, found[2].spent) == (cost(times=2), cost())
    for days in (0, -1, float("nan"), float("inf"), 40000):
        refused(PrivacyError, "PR036", CapPeriod, days, (Budget("analyst", 1, DELTA),))


STATES = st.sampled_from(["reserved", "sent", "committed", "released"])


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(-60, 60), STATES), max_size=8), st.integers(1, 40))
def test_of_the_entries_before_a_period_nothing_is_needed(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, str]], days: int
) -> None:
    """Whatever the clock did, the same studies have ended early, and the same clock is ahead, as by all entries."""
    mine = Ledger(tmp_path_factory.mktemp("early") / "l.sqlite", clock=lambda: START)
    with mine.writing() as base:
        for offset, state in history:
            at = (START + timedelta(days=offset)).isoformat(timespec="milliseconds")
            number = insert_entry(base, "s", "d", at, "[]", TRUST.to_json())
            if state != "reserved":
                append_change(base, number, state, at)
    stored = [(START + timedelta(days=offset), state == "released") for offset, state in history]
    early = [state != "committed" for _, state in history]
    begin = START - timedelta(days=days)
    within = [each for each, at in zip(early, effective_dates(stored, START), strict=True) if at > begin]
    assert mine.count_aborted_studies(days=days) == sum(within)
    assert mine.count_aborted_studies() == sum(early)
    late, after = find_future_dates(stored, START)
    assert mine.note_time() == (late and after is None)
