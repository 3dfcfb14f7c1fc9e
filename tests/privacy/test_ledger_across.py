"""Caps over all studies: everybody whom a ledger ever met, recognised by its key, alone, in pairs and all together."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import BudgetError, LedgerError, PrivacyError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import NonPrivate, SkellamRelease, views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.ledger.caps import Period, with_others
from colonnade.privacy.ledger.groups import ALL_OTHERS, Sight
from colonnade.privacy.ledger.people import People, Told
from colonnade.privacy.observers import Budget, Observer, Trust, parse_budgets
from tests.support.errors import raises

DELTA = 1e-5
NOISE = Fraction(10**13)


def message(sender: str, to: str, noise: Fraction = NOISE) -> SkellamRelease:
    """What one party tells another about its own columns."""
    return SkellamRelease(
        "a message", ((sender, noise),), 4, 10**6, 10**12, 2 * 10**6, 2 * 10**12, 1e-30, "t", audience=(to,),
        about=(sender,),
    )  # fmt: skip


def pair_of(other: str) -> Trust:
    return Trust(("me", other), (), 0)


def keys(*names: str, **given: str) -> dict[str, str]:
    """A key for everybody: that of its name, unless another is given."""
    return {name: given.get(name, f"sha256:{name}") for name in (*names, "coordinator")}


def play(ledger: Ledger, bank: str, caps=(), key: str | None = None, periods=()) -> None:
    """A study of two, in which the own party tells a bank a noised number."""
    known = keys("me", bank, **({bank: key} if key else {}))
    ledger.reserve(f"with {bank}", "", [message("me", bank)], pair_of(bank), caps, periods, known)


def one(times: int) -> float:
    return epsilon(views([message("me", "bank")] * times, Observer.party("bank"), pair_of("bank")), DELTA).epsilon


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "me.sqlite", owner="me")


def test_six_banks_do_not_get_six_budgets(ledger: Ledger) -> None:
    caps = parse_budgets(one(2) * 1.0001, DELTA)
    play(ledger, "bank0", caps)
    play(ledger, "bank1", caps)
    refused = 0
    for number in range(2, 6):
        with raises(BudgetError, "BU002", "others"):
            play(ledger, f"bank{number}", caps)
        refused += 1
    assert refused == 4
    shown = {left.who: left.spent for left in ledger.left(caps)}
    assert shown["bank0+bank1"] == shown["others"] == one(2) == ledger.spent(Observer.parse("bank0+bank1"), DELTA)
    assert shown["bank0"] == one(1)
    assert ledger.spent(Observer.others(), DELTA) == one(2)


def test_pairs_who_never_met_are_capped_even_where_all_others_have_room(ledger: Ledger) -> None:
    caps = parse_budgets({"pair": one(1) * 1.01, "others": 100.0}, DELTA)
    play(ledger, "bank0", caps)
    with raises(BudgetError, "BU002", "1") as refusal:
        play(ledger, "bank1", caps)
    assert "others" not in str(refusal.value)


def test_without_a_cap_of_its_own_all_others_have_the_largest(ledger: Ledger) -> None:
    caps = parse_budgets({"analyst": 0.1, "party": one(2) * 1.0001}, DELTA)
    play(ledger, "bank0", caps)
    play(ledger, "bank1", caps)
    with raises(BudgetError, "BU002", "others", f"{one(2) * 1.0001:g}"):
        play(ledger, "bank2", caps)
    play(ledger, "bank2", [*caps, Budget("others", one(3) * 1.0001, DELTA)])


def test_much_for_one_observer_by_name_is_not_much_for_all_others(ledger: Ledger) -> None:
    caps = parse_budgets({"analyst": 0.1, "party": one(2) * 1.0001, "coordinator": 50.0}, DELTA)
    play(ledger, "bank0", caps)
    play(ledger, "bank1", caps)
    with raises(BudgetError, "BU002", "others", f"{one(2) * 1.0001:g}"):
        play(ledger, "bank2", caps)
    assert with_others(parse_budgets({"bank": 1.0, "coordinator": 2.0}, DELTA))[-1] == Budget("others", 2.0, DELTA)


def test_a_period_for_everyone_counts_all_others_and_a_named_one_does_not(ledger: Ledger) -> None:
    play(ledger, "bank0")
    with raises(BudgetError, "BU002", "30", "others", "policy.periods"):
        play(ledger, "bank1", periods=[Period(30, parse_budgets(one(1) * 1.01, DELTA))])
    play(ledger, "bank1", periods=[Period(30, parse_budgets({"party": one(1) * 1.01}, DELTA))])


def test_a_key_is_one_observer_whatever_it_calls_itself(ledger: Ledger) -> None:
    caps = parse_budgets({"party": one(1) * 1.01, "others": 100.0}, DELTA)
    play(ledger, "bank", caps)
    with raises(BudgetError, "BU002"):
        play(ledger, "credit", caps, key="sha256:bank")
    play(ledger, "credit", key="sha256:bank")
    for name in ("bank", "credit", "bank+credit"):
        assert ledger.spent(Observer.parse(name), DELTA) == one(2)
    assert "bank" not in ledger.totals(DELTA)
    assert ledger.totals(DELTA)["credit"] == one(2)
    with raises(BudgetError, "BU002"):
        play(ledger, "third name", [Budget("bank", one(2), DELTA), Budget("others", 100, DELTA)], key="sha256:bank")
    play(ledger, "other", [Budget("bank", one(1), DELTA), Budget("others", 100, DELTA)])  # tells the bank nothing


def test_one_name_under_two_keys_is_two_observers(ledger: Ledger) -> None:
    play(ledger, "bank", key="sha256:aaaaaaaa")
    play(ledger, "bank", key="sha256:bbbbbbbb")
    shown = ledger.totals(DELTA)
    assert shown["bank (aaaaaa)"] == shown["bank (bbbbbb)"] == one(1)
    assert shown["bank (aaaaaa)+bank (bbbbbb)"] == shown["others"] == one(2)
    assert ledger.spent(Observer.party("bank (aaaaaa)"), DELTA) == one(1)
    assert ledger.spent(Observer.party("bank"), DELTA) == one(2), "a name means all who used it"


def test_a_coordinator_is_recognised_as_a_party_elsewhere(ledger: Ledger) -> None:
    trust = Trust(("me", "shop"), ("me", "shop", "coordinator"), 1)
    event = SkellamRelease("m", (("me", NOISE), ("shop", NOISE)), 4, 10**6, 10**12, 2 * 10**6, 2 * 10**12, 1e-30, "t")
    known = keys("me", "shop", coordinator="sha256:bank")
    ledger.reserve("with the bank as coordinator", "", [event], trust, (), (), known)
    play(ledger, "bank")
    as_coordinator = views([event], Observer.coordinator(), trust)
    as_party = views([message("me", "bank")], Observer.party("bank"), pair_of("bank"))
    both = epsilon(
        [*as_coordinator, *(replace(seen, adjacency=as_coordinator[0].adjacency) for seen in as_party)], DELTA
    )
    assert ledger.spent(Observer.party("bank"), DELTA) == pytest.approx(both.epsilon, rel=1e-12)
    assert ledger.totals(DELTA)["bank"] == pytest.approx(both.epsilon, rel=1e-12)


def test_entries_without_keys_count_for_every_key_of_that_name(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite", owner="me")
    ledger.reserve("of before", "", [message("me", "bank")], pair_of("bank"), ())
    play(ledger, "bank", key="sha256:aaaaaaaa")
    play(ledger, "bank", key="sha256:bbbbbbbb")
    play(ledger, "shop")
    shown = ledger.totals(DELTA)
    assert shown["bank (aaaaaa)"] == shown["bank (bbbbbb)"] == one(2)
    assert shown["bank (aaaaaa)+bank (bbbbbb)"] == one(3)
    assert shown["shop"] == one(1)
    assert shown["others"] == one(4)


def test_who_the_own_party_is_is_taken_from_the_entries_or_else_nobody_is_left_out(tmp_path: Path) -> None:
    trust = Trust(("me", "bank", "shop"), (), 0)
    path = tmp_path / "l.sqlite"
    told = [message("me", "bank"), message("bank", "shop")]
    Ledger(path).reserve("of before", "", told, trust, ())
    unknown = Ledger(path).spent(Observer.others(), DELTA)
    assert unknown == pytest.approx(one(2), rel=1e-9), "two of three, whichever two, see each message of the third"
    assert Ledger(path, owner="me").spent(Observer.others(), DELTA) == one(1)
    assert Ledger(path, owner="nobody").spent(Observer.others(), DELTA) == unknown
    play(Ledger(path, owner="me"), "bank")
    assert Ledger(path).spent(Observer.others(), DELTA) == one(2), "a later entry says whose ledger it is"


def test_two_participants_with_one_key_and_incomplete_keys_are_refused(ledger: Ledger) -> None:
    asked = ("s", "", [message("me", "bank")], pair_of("bank"), (), ())
    with raises(LedgerError, "LE036", "bank", "coordinator"):
        ledger.reserve(*asked, keys("me", "bank", coordinator="sha256:bank"))
    with raises(LedgerError, "LE035"):
        ledger.reserve(*asked, {"me": "a", "bank": "b"})
    with raises(LedgerError, "LE034", "clinic"):
        Ledger(ledger.path, owner="clinic").reserve(*asked, keys("me", "bank"))
    assert ledger.entries() == ()


def test_exact_answers_are_beside_the_cap_of_all_others_and_not_beside_those_that_name_who_got_them(
    ledger: Ledger,
) -> None:
    exact = NonPrivate("scores without noise", "scores", ("bank",))
    caps = [Budget("analyst", 1.0, DELTA)]
    ledger.reserve("exact", "", [exact], pair_of("bank"), caps, (), keys("me", "bank"))
    assert ledger.spent(Observer.others(), DELTA) == 0
    assert ledger.spent(Observer.party("bank"), DELTA) == float("inf")
    with raises(BudgetError, "BU002", "leak"):
        ledger.reserve("leak", "", [NonPrivate("it leaked")], pair_of("bank"), [Budget("others", 9, DELTA)])


def test_who_took_part_is_chained(ledger: Ledger) -> None:
    play(ledger, "bank")
    play(ledger, "shop")
    (_, line), *_ = ledger.lines()
    assert json.loads(line)["people"] == {"own": "me", "keys": keys("me", "bank")}
    entry = ledger.entries()[0]
    assert entry.people == People("me", tuple(sorted(keys("me", "bank").items())))
    whole = ledger.path.read_bytes()
    for statement in (
        "UPDATE people SET known = replace(known, 'sha256:bank', 'sha256:other') WHERE entry = 1",
        "DELETE FROM people WHERE entry = 2",
        "UPDATE people SET entry = 3 WHERE entry = 2",
        "INSERT INTO people VALUES (77, '{}')",
    ):
        base = sqlite3.connect(ledger.path, isolation_level=None)
        guards = base.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            base.execute(f"DROP TRIGGER {name}")
        assert base.execute(statement).rowcount == 1
        for _, sql in guards:
            base.execute(sql)
        base.close()
        with raises(LedgerError, "LE018|LE022"):
            ledger.verify()
        ledger.path.write_bytes(whole)
        ledger.verify()


@pytest.mark.parametrize("known", ["[]", "{}", '{"own": 1, "keys": {}}', '{"own": "me", "keys": {"bank": 3}}'])
def test_a_description_of_people_that_cannot_be_read_is_refused(known: str) -> None:
    with raises(PrivacyError, "PR038|PR039"):
        People.from_json(known)


def test_others_have_no_meaning_in_a_study() -> None:
    with raises(PrivacyError, "PR060"):
        parse_budgets({"others": 1.0}, DELTA, pair_of("bank"))


def test_thirty_parties_get_one_row_for_each_figure(ledger: Ledger) -> None:
    for number in range(30):
        play(ledger, f"bank{number}")
    shown = ledger.totals(DELTA)
    assert len(shown) < 12
    assert shown["others"] == pytest.approx(one(30), rel=1e-9)
    assert [total for who, total in shown.items() if who.count("+") == 1] == [one(1), one(2)]  # with the coordinator
    caps = parse_budgets({"pair": one(2) * 1.0001, "others": 100.0}, DELTA)
    with raises(BudgetError, "BU002"):
        play(ledger, "bank7", caps)
    play(ledger, "another", caps)


def test_a_ledger_of_before_is_shown_by_these_rules_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "earlier.sqlite"
    path.write_bytes((Path(__file__).parents[1] / "fixtures" / "ledger" / "earlier-ledger.db").read_bytes())
    before = path.read_bytes()
    shown = Ledger(path).totals(DELTA)
    assert {"analyst", "coordinator", "bank", "shop", "clinic", "bank+shop", "others"} <= set(shown)
    assert shown["others"] >= max(total for who, total in shown.items() if who != "others")
    assert 0 < Ledger(path, owner="shop").totals(DELTA)["others"] <= shown["others"]
    assert path.read_bytes() == before
    head = Ledger(path).head
    play(Ledger(path, owner="me"), "bank")
    Ledger(path).verify(head)
    assert Ledger(path).entries()[0].people == People()


# --- what holds for every history

NAMES = ("bank", "clinic", "insurer", "shop")


@st.composite
def published(draw: st.DrawFn) -> Told:
    """A study whose result everybody sees, under noise of uneven shares."""
    owners = ("me", *draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)))
    seats = (*owners, "coordinator") if len(owners) == 2 else draw(st.sampled_from([owners, owners[:3]]))
    trust = Trust(owners, seats, draw(st.integers(1, (len(seats) - 1) // 2)))
    shares = tuple((owner, Fraction(draw(st.integers(10**12, 10**14)))) for owner in owners)
    l1, norm = draw(st.integers(1, 10**5)), draw(st.integers(1, 10**12))
    event = SkellamRelease("m", shares, 4, l1, norm, 2 * l1, 2 * norm, 1e-30, "t")
    return Told((event,), trust, People.of("me", keys(*owners), trust))


@settings(max_examples=40, deadline=None)
@given(st.lists(published(), min_size=1, max_size=4))
def test_more_members_never_learn_less_and_all_others_learn_most(studies: list[Told]) -> None:
    sight = Sight(studies, "me")
    others = [who for who in sight.everybody.somebodies if not sight.everybody.is_own(who)]
    most = sight.total(ALL_OTHERS, DELTA).epsilon * (1 + 1e-9)
    figures = {
        frozenset(group): sight.total(sight.group(group), DELTA).epsilon
        for size in range(1, len(others) + 1)
        for group in combinations(others, size)
    }
    for group, figure in figures.items():
        assert figure <= most
        for member in group:
            assert len(group) == 1 or figures[group - {member}] <= figure * (1 + 1e-9)
    for cap in ("party", "pair", "coalition", "everyone"):
        for who in sight.capped(Budget(cap, 1.0, DELTA)):
            own = who.tokens is not None and any(kind == "own" for kind, _ in who.tokens)
            assert own or sight.total(who, DELTA).epsilon <= most


@settings(max_examples=25, deadline=None)
@given(st.lists(published(), min_size=1, max_size=3))
def test_what_is_shown_of_a_pair_is_what_is_answered_about_it(studies: list[Told]) -> None:
    sight = Sight(studies, "me")
    for who in sight.capped(Budget("pair", 1.0, DELTA)):
        honest = sight.total(sight.named(Observer.parse(who.label)), DELTA).epsilon
        shown = sight.total(who, DELTA).epsilon
        broken = [
            told.trust.broken(Observer.coalition(*names))
            for number, told in enumerate(studies)
            if (names := sight.local(number, who))
        ]
        assert shown == honest if not any(broken) else honest == float("inf")


@settings(max_examples=8, deadline=None)
@given(st.lists(published(), min_size=4, max_size=7), st.data())
def test_one_pair_of_each_figure_stands_for_all(studies: list[Told], data: st.DataObject) -> None:
    """With more parties than are listed one by one, no pair learns more than some pair that is listed."""
    renamed = []
    for number, told in enumerate(studies):  # the same few shapes, and a stranger in each
        told = data.draw(st.sampled_from(studies[: number + 1]))
        names = {name: f"{name}{data.draw(st.integers(0, 9))}" for name in told.trust.owners if name != "me"} | {
            "me": "me"
        }
        trust = Trust(
            tuple(names[name] for name in told.trust.owners),
            tuple(names.get(name, name) for name in told.trust.committee),
            told.trust.threshold,
        )
        (event,) = told.events
        event = replace(event, shares=tuple((names[owner], size) for owner, size in event.shares))
        renamed.append(Told((event,), trust, People.of("me", keys(*trust.owners), trust)))
    sight = Sight(renamed, "me")
    listed = max((sight.total(who, DELTA).epsilon for who in sight.capped(Budget("pair", 1.0, DELTA))), default=0.0)
    others = [who for who in sight.everybody.somebodies if not sight.everybody.is_own(who)]
    for pair in combinations(others, 2):
        who = sight.group(pair)
        if sight._is_within_somewhere(who):
            assert sight.total(who, DELTA).epsilon <= listed * (1 + 1e-9)
