from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.privacy import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    Ledger,
    RepeatedRelease,
    Sensitivity,
    SkellamRelease,
    Statement,
    accountant,
    least_noise,
    views,
)
from colonnade.privacy.events import exchange_key, view
from colonnade.privacy.noise_laws import FUNCTIONAL, AdditiveNoise, LawName
from colonnade.privacy.observers import (
    COORDINATOR,
    Adjacency,
    Budget,
    Observer,
    Trust,
    largest_known_noise,
    parse_budgets,
)
from colonnade.privacy.statement import NO_GUARANTEE, PROVEN
from tests.support.errors import refused
from tests.support.ledgers import EVENT, TRUST as TWO

FIVE = Trust(("a", "b", "c", "d", "e"), ("a", "b", "c", "d", "e"), 2)


def test_labels_round_trip_and_are_ordered_from_outside_in() -> None:
    labels = ["analyst", "coordinator", "bank", "shop", "bank+coordinator", "bank+shop"]
    assert [each.label for each in sorted(map(Observer.parse, reversed(labels)))] == labels
    assert Observer.coalition("bank") == Observer.party("bank")
    assert Observer.coalition("coordinator") == Observer.coordinator()
    assert Observer.coalition("shop", "bank", "shop") == Observer.parse("bank+shop")


@pytest.mark.parametrize(
    ("make", "given"),
    [
        *((Observer.coalition, names) for names in ((), ("",), ("a+b",), (" bank",), ("analyst", "bank"))),
        (Observer.coalition, ("everyone",)),
        (Trust, (("bank",), ("bank", "coordinator", "x"), 1)),
        (Trust, (("bank", "bank"), ("bank", "coordinator"), 1)),
        (Trust, (("bank", "shop"), ("bank", "shop"), 1)),
        (Trust, (("bank", "shop"), ("bank", "shop", "stranger"), 1)),
        (Trust, (("bank", "shop"), ("bank", "shop", "coordinator"), 0)),
        (Trust, (("bank", "shop"), ("bank", "shop", "coordinator"), 2)),
        (Trust, (tuple("abcdefgh"), tuple("abcdefgh"), 3)),
        (Trust, (("bank", "coordinator"), ("bank", "coordinator"), 1)),
        (Trust, (("bank", "shop"), (), 1)),
        (Trust, (("bank", "shop"), (), -1)),
        (Trust, (("bank",), (), 0)),
        (Trust, (("bank", "bank"), (), 0)),
        (Trust.from_dict, ({"owners": ["a", "b"]},)),
    ],
)
def test_bad_names_and_impossible_arrangements_are_refused(make, given) -> None:
    with pytest.raises(PrivacyError):
        make(*given)


ALONE = Trust(("bank", "shop"), (), 0)


def owners_only(count: int) -> Trust:
    return Trust(tuple(f"o{k}" for k in range(count)), (), 0)


@pytest.mark.parametrize(
    ("trust", "label", "relation"),
    [
        (TWO, "analyst", Adjacency.ADD_REMOVE),
        (ALONE, "analyst", Adjacency.REPLACE),
        *((trust, "coordinator", Adjacency.REPLACE) for trust in (TWO, ALONE)),
        *((TWO, label, Adjacency.REPLACE_OTHERS) for label in ("bank", "bank+shop", "bank+coordinator")),
        (ALONE, "bank", Adjacency.REPLACE_OTHERS),
    ],
)
def test_each_observer_has_its_neighbouring_relation(trust: Trust, label: str, relation: Adjacency) -> None:
    assert trust.adjacency(Observer.parse(label)) is relation


WIDE = Trust(("a", "b", "c"), ("a", "coordinator", "b"), 1)


@pytest.mark.parametrize(
    ("trust", "label", "said"),
    [
        (TWO, "bank+shop", "bank and shop together hold 2 of 3 shares; more than the threshold 1 reveals every input"),
        (TWO, "bank+coordinator", "reveals every input"),
        (TWO, "bank", None),
        (FIVE, "a+b", None),
        (FIVE, "a+b+c", "reveals every input"),
        (WIDE, "a+c", None),
        (WIDE, "a+b+c", "reveals every input"),  # even with few seats
        (ALONE, "bank+coordinator", None),
        (ALONE, "bank+shop", "every column"),
        (owners_only(3), "o0+o1+coordinator", None),
        (owners_only(3), "o0+o1+o2", "every column"),
    ],
)
def test_above_the_threshold_is_broken_and_says_why(trust: Trust, label: str, said: str | None) -> None:
    found = trust.broken(Observer.parse(label))
    assert found is None if said is None else said in str(found)


def test_standard_observers_and_their_patterns_agree() -> None:
    groups = ["bank+shop", "bank+coordinator", "coordinator+shop"]
    alone = ["analyst", "coordinator", "bank", "shop"]
    assert [seen.label for seen in TWO.standard_observers()] == [*alone, *groups]
    assert [seen.label for seen in ALONE.standard_observers()] == [*alone, "bank+shop"]
    many = Trust(tuple(f"o{k}" for k in range(300)), ("o0", "o1", "o2"), 1)
    patterns = many.standard_observers(alike=lambda _name: 0)
    assert [seen.label for seen in patterns[:9]] == [
        "analyst", "coordinator", "o0", "o3", "o0+o1", "o0+o3", "coordinator+o0", "o3+o4", "coordinator+o3",
    ]  # fmt: skip
    assert [len(seen.names) for seen in patterns[9:]] == [297 + 1, 1 + 297 + 1]
    assert all(many.broken(seen) is None for seen in patterns[9:])


@pytest.mark.parametrize(("owners", "seats", "threshold"), [(3, 3, 1), (7, 7, 3), (8, 3, 1), (8, 5, 2)])
def test_nobody_within_the_threshold_learns_more_than_the_table_says(owners, seats, threshold) -> None:
    """With equal shares of the noise, the largest coalition that is not broken is the worst observer of all."""
    names = tuple(f"o{k}" for k in range(owners))
    trust = Trust(names, names[:seats], threshold)

    def largest(observers) -> int:
        return max(len(set(seen.names) & set(names)) for seen in observers if trust.broken(seen) is None)

    most = largest(seen for size in range(1, owners + 1) for seen in trust.coalitions(size))
    assert largest(trust.standard_observers()) == most
    assert largest(Budget("everyone", 1.0, 1e-5).observers(trust)) == min(most, max(2, threshold))
    assert largest(Budget("coalition", 1.0, 1e-5).observers(trust)) == most


PAIRS = [f"{one}+{other}" for one, other in combinations("abcde", 2)]
WITH_HUB = ["+".join(sorted([*names, "coordinator"])) for names in [*"abcde", *combinations("abcde", 2)]]
THREE_ALONE = ["o0+o1", "o0+o2", "o1+o2"]


@pytest.mark.parametrize(
    ("who", "trust", "labels"),
    [
        ("everyone", TWO, ["analyst", "coordinator", "bank", "shop"]),
        ("everyone", FIVE, ["analyst", "coordinator", *"abcde", *PAIRS, *WITH_HUB]),
        ("analyst", FIVE, ["analyst"]),
        ("party", FIVE, [*"abcde"]),
        ("a+b", FIVE, ["a+b"]),
        ("pair", FIVE, [*PAIRS, *WITH_HUB[:5]]),
        ("coalition", FIVE, [*PAIRS, *WITH_HUB]),
        ("bank+shop", TWO, ["bank+shop"]),
        # Without a committee the coordinator joins nobody.
        ("everyone", ALONE, ["analyst", "coordinator", "bank", "shop"]),
        ("everyone", owners_only(3), ["analyst", "coordinator", "o0", "o1", "o2", *THREE_ALONE]),
        ("pair", owners_only(3), THREE_ALONE),
        ("coordinator+o0", owners_only(3), ["coordinator+o0"]),
    ],
)
def test_budgets_are_for_whom_they_name(who: str, trust: Trust, labels: list[str]) -> None:
    (budget,) = parse_budgets(1.0 if who == "everyone" else {who: 1.0}, 1e-5, trust)
    assert sorted(seen.label for seen in budget.observers(trust)) == sorted(labels)


def test_bad_budgets_are_refused_and_unknown_observers_with_the_possible_ones() -> None:
    for epsilon in (0, -1.0, math.inf, math.nan, True, "1"):
        refused(PrivacyError, "PR064|PR065", parse_budgets, epsilon, 1e-5)
    for delta in (0, 1, -1e-5, math.nan, 2.0):
        refused(PrivacyError, "PR066", parse_budgets, {"analyst": 1.0}, delta)
    refused(PrivacyError, "PR063", parse_budgets, {}, 1e-5)
    known = ("analyst", "coordinator", "party", "bank", "shop")
    refused(PrivacyError, "PR061", "insurer", known, parse_budgets, {"insurer": 1.0}, 1e-5, TWO)
    for trust in (TWO, ALONE):
        refused(PrivacyError, "PR062", "pair", parse_budgets, {"pair": 1.0}, 1e-5, trust)
    event = told(ALONE, "bank", 10**6, ("shop", "coordinator"))  # is told nothing alone
    refused(PrivacyError, "PR034", view, event, Observer.party("shop"), ALONE)


# --- studies without a committee


@pytest.mark.parametrize("count", [3, 4, 5])
def test_without_a_committee_every_group_short_of_all_is_listed(count: int) -> None:
    trust = owners_only(count)
    expected = {Observer.coalition(*names) for size in range(3, count) for names in combinations(trust.owners, size)}
    assert set(trust.larger_coalitions()) == expected


def test_without_a_committee_a_thousand_owners_make_a_short_table() -> None:
    trust = owners_only(1000)
    pooled = set(trust.larger_coalitions(lambda name: name == "o0"))
    assert [len(seen.names) for seen in pooled] == [999, 999]  # all but one of those alike, and all of these
    assert all(trust.broken(seen) is None for seen in pooled)
    statement = Statement.of([told(trust, "o0", 10**6)], trust, 1e-5)
    assert len(statement.rows) < 12
    assert [row.others for row in statement.rows if row.observer == Observer.party("o1")] == [998]


def told(trust: Trust, owner: str, variance: int, to: tuple[str, ...] | None = None) -> DiscreteGaussianRelease:
    """What one owner tells about its own columns, under noise of its own."""
    others = tuple(name for name in trust.owners if name != owner) if to is None else to
    return DiscreteGaussianRelease(
        name=f"messages of {owner}", shares=((owner, Fraction(variance)),), dimension=9, l1=900, l2_squared=10_000,
        replace_l1=900, replace_l2_squared=10_000, tail=0.0, theorem="exchange-sensitivity", audience=others,
        about=(owner,),
    )  # fmt: skip


def heard(events, observer: Observer, trust: Trust) -> Fraction:
    """What an observer gets to see, as a sum of squared sensitivities over variances."""
    seen = [view(event, observer, trust) for event in events]
    return sum((Fraction(one.l2_squared) / one.noise for one in seen if not one.empty), Fraction(0))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.data())
def test_without_a_committee_nobody_hears_more_than_some_row_says(count: int, data) -> None:
    """Whatever is told to whom."""
    trust, events = owners_only(count), []
    for owner in trust.owners:
        rest = st.sampled_from([name for name in trust.owners if name != owner])
        to = data.draw(st.none() | st.lists(rest, min_size=1, unique=True).map(tuple))
        events.append(told(trust, owner, data.draw(st.sampled_from([10**4, 10**5, 10**6])), to))
    owners = (names for size in range(1, count) for names in combinations(trust.owners, size))
    groups = [Observer.coalition(*names, *hub) for names in owners for hub in ((), ("coordinator",))]
    same = exchange_key((event, trust) for event in events)
    for table in (trust.standard_observers(same), trust.standard_observers(larger=same)):
        listed = (heard(events, seen, trust) for seen in table if trust.broken(seen) is None)
        assert max(listed) == max(heard(events, seen, trust) for seen in groups)
    assert heard(events, Observer.analyst(), trust) == heard(events, Observer.coordinator(), trust) == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 6), st.data())
def test_owners_with_equal_messages_are_exchangeable_and_no_others(count: int, data) -> None:
    """One coalition of each pattern stands for all: every other one of the pattern hears exactly as much."""
    trust = owners_only(count)
    sizes = data.draw(st.lists(st.sampled_from([10**4, 10**6]), min_size=count, max_size=count))
    repeats, to = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([None, ()]))
    events = [told(trust, name, size, to) for name, size in zip(trust.owners, sizes, strict=True)]
    events = [RepeatedRelease(event, repeats) if event.noise > 10**5 else event for event in events]
    named = data.draw(st.sampled_from([(), ("o0", "o1")]))
    if named:
        events.append(told(trust, "o0", 10**5, ("o1",)))
    key = exchange_key((event, trust) for event in events)
    kinds = {name: (size, name if name in named else "") for name, size in zip(trust.owners, sizes, strict=True)}
    for one, other in combinations(trust.owners, 2):
        assert (key(one) == key(other)) == (kinds[one] == kinds[other])
    patterns: dict[tuple, set] = {}
    for names in (names for size in range(1, count) for names in combinations(trust.owners, size)):
        pattern = tuple(sorted(repr(key(name)) for name in names))
        seen = (repr(view(event, Observer.coalition(*names), trust)) for event in events)
        patterns.setdefault(pattern, set()).add(tuple(sorted(seen)))
    assert all(len(found) == 1 for found in patterns.values())


def test_who_received_messages_of_one_study_is_not_alike_who_took_part_in_another_only() -> None:
    first, second = Trust(("a", "b", "c"), (), 0), Trust(("a", "d", "c"), (), 0)
    key = exchange_key([(told(first, "a", 10**6), first), (told(second, "a", 10**6), second)])
    assert len({key("a"), key("b"), key("c"), key("d")}) == 4
    assert key("nobody") == ()


# --- what is left of a promise if owners draw no noise: every figure is recomputed from the shares that are drawn


NAMES = ("bank", "shop", "clinic", "school", "town", "lab", "court")
MOVED = Sensitivity(3, 5, 4, 8)
REACH = 200
EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def trust_of(owners: int, threshold: int = 1, **given: object) -> Trust:
    names = NAMES[:owners]
    return Trust(names, names if owners > 2 else (*names, COORDINATOR), threshold, **given)


def release(law: LawName, scale: int, trust: Trust, known: int = 0) -> Event:
    return AdditiveNoise(law, scale, trust.owners, known).release("sums", 2, MOVED, theorem="moments-sensitivity")


def drawn_by(event: Event, names) -> Event:
    """The same release if nobody but these owners draws noise."""
    return replace(event, shares=tuple(share for share in event.shares if share[0] in names))


# --- the laws, share by share


def one_share(event: Event, size: Fraction):
    """The mass of one owner's share from -REACH to REACH, by its definition."""
    places = np.arange(-REACH, REACH + 1)
    if isinstance(event, DiscreteGaussianRelease):
        mass = np.exp(-(places**2) / (2 * float(size)))
        return np.asarray(mass / mass.sum())
    counts = np.arange(2 * REACH + 1)
    if isinstance(event, SkellamRelease):
        log = counts * math.log(size) - float(size)
        count = np.exp(log - np.array([math.lgamma(k + 1) for k in counts]))
    else:
        assert isinstance(event, DiscreteLaplaceRelease)
        p, weight = math.exp(-1 / event.scale), float(size)
        log = weight * math.log1p(-p) + counts * math.log(p) - math.lgamma(weight)
        count = np.exp(log + np.array([math.lgamma(weight + k) - math.lgamma(k + 1) for k in counts]))
    return np.convolve(count, count[::-1])[len(counts) - 1 - REACH : len(counts) + REACH]


def summed(event: Event, names):
    """The mass of all shares of these owners together."""
    found = np.eye(1, 2 * REACH + 1, REACH)[0]
    for owner, size in event.shares:
        if owner in names:
            found = np.convolve(found, one_share(event, size))[REACH : 3 * REACH + 1]
    return found


def true_deltas(noise, change):
    """The exact delta at each epsilon, if numbers move by this, each with independent noise of this law."""
    base, moved = np.ones(1), np.ones(1)
    for step in change:
        base = np.outer(base, noise).reshape(-1)
        moved = np.outer(moved, np.roll(noise, step)).reshape(-1)
    return np.array([np.maximum(moved - math.exp(epsilon) * base, 0).sum() for epsilon in EPSILONS])


UNEVEN: dict[LawName, tuple[int | Fraction, ...]] = {
    "skellam": (90, 20, 50, 30),
    "discrete-gaussian": (90, 20, 50, 30),
    "discrete-laplace": (Fraction(3, 2), 1, 2, Fraction(5, 4)),
}
SEEN = ((Observer.analyst(), (1, 2)), (Observer.party("shop"), (2, 2)))
"""Observers, and how far a person moves two numbers under their relation."""


def uneven(law: LawName) -> Event:
    shares = tuple(zip(NAMES[:4], UNEVEN[law], strict=True))
    return replace(release(law, 4, trust_of(4)), shares=shares)


@pytest.mark.parametrize("law", UNEVEN)
def test_no_set_of_owners_without_noise_tells_more_than_is_stated(law: LawName) -> None:
    trust, event = trust_of(4), uneven(law)
    for observer, change in SEEN:
        others = [name for name in trust.owners if name not in observer.names]
        for missing in (0, 1, 2):
            promised = accountant.profile([view(event, observer, trust, missing=missing)], EPSILONS)
            for left in combinations(others, len(others) - missing):
                noise = summed(event, left)
                # Those without noise may deal any other number: here a coin of their own between two of them.
                cheated = np.convolve(noise, [0.5, *[0.0] * 9, 0.5])[: len(noise)]
                for found in (true_deltas(noise, change), true_deltas(cheated, change)):
                    assert (found <= promised + 1e-9).all()
        # The check can fail: an eighth of the least share is too little.
        little = one_share(event, Fraction(min(UNEVEN[law])) / 8)
        assert (true_deltas(little, change) > promised + 1e-3).any()


@pytest.mark.parametrize("law", UNEVEN)
def test_of_uneven_shares_the_largest_are_missing(law: LawName) -> None:
    trust, event = trust_of(4), uneven(law)
    for (observer, _), missing in product(SEEN, (1, 2)):
        others = [name for name in trust.owners if name not in observer.names]
        stated = accountant.epsilon([view(event, observer, trust, missing=missing)], 1e-5).epsilon
        each = [
            accountant.epsilon([view(drawn_by(event, left), observer, trust)], 1e-5).epsilon
            for left in combinations(others, len(others) - missing)
        ]
        assert stated == max(each) < math.inf


# --- rows


def test_every_statement_has_rows_for_owners_without_noise() -> None:
    trust = trust_of(5, 2)
    event = release("skellam", 10**4, trust)
    statement = Statement.of([event], trust, 1e-5)
    assert [(row.who, row.missing) for row in statement.missing_noise] == [
        (who, missing) for missing in (1, 2) for who in ("analyst", COORDINATOR, "any other party")
    ]
    for row in statement.missing_noise:
        left = [name for name in trust.owners if name not in row.observer.names][row.missing :]
        alone = Statement.of([drawn_by(event, left)], trust, 1e-5)
        assert row.epsilon == alone.epsilon(row.observer) == statement.epsilon(row.observer, missing=row.missing)
        assert row.epsilon > statement.epsilon(row.observer)
        assert (row.status, "missing-noise" in row.theorem) == (PROVEN, True)
    assert "if 2 owners draw no noise\n" in str(statement)
    assert "<td>analyst, if 1 owner draws no noise</td>" in statement._repr_html_()


def test_two_owners_protect_each_other_and_each_gives_away_its_own_columns() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    analyst, coordinator, party = statement.missing_noise
    assert analyst.epsilon == Statement.of([drawn_by(EVENT, ["shop"])], TWO, 1e-5).epsilon("analyst")
    assert coordinator.epsilon == statement.epsilon("bank")  # half of the noise, and a person replaced, as for a party
    assert (party.who, party.epsilon, party.status) == ("any other party", math.inf, NO_GUARANTEE)
    assert "any other party if 1 owner draws no noise: nobody is left who draws noise" in str(statement)


def test_rows_about_missing_noise_are_written_read_and_cannot_be_improved() -> None:
    statement = Statement.of([EVENT], TWO, 1e-5)
    value = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert [row.get("missing") for row in (*value["rows"], *value["missing_noise"])] == [None] * 7 + [1] * 3
    assert Statement.from_dict(value).missing_noise == statement.missing_noise
    earlier = {name: content for name, content in value.items() if name != "missing_noise"}
    assert Statement.from_dict(earlier).missing_noise == ()
    assert Statement.from_dict(earlier).to_dict() == earlier
    value["missing_noise"][0]["epsilon"] /= 2
    refused(PrivacyError, "PR106", "analyst", Statement.from_dict, value)


def test_messages_of_one_owner_have_no_such_rows() -> None:
    told = AdditiveNoise("discrete-gaussian", 10**6, ("shop",)).release(
        "scores of shop", 5, MOVED, theorem="exchange-sensitivity", audience=("bank",), about=("shop",)
    )
    assert Statement.of([told], Trust(NAMES[:3], (), 0), 1e-5).missing_noise == ()
    bank, seated, plain = Observer.party("bank"), trust_of(3, security="active"), trust_of(3)
    # Beside a committee it counts as it is: whoever leaves out noise on its own columns tells no others.
    assert views([told], bank, seated) == views([told], bank, plain)
    # On columns of others somebody else must draw noise too.
    lonely = replace(told, about=())
    assert "may all leave it out" in view(lonely, bank, seated).reason
    assert not view(lonely, bank, plain).reason


# --- budgets


@pytest.mark.parametrize(("owners", "threshold"), [(2, 1), (3, 1), (5, 2)])
@pytest.mark.parametrize("law", UNEVEN)
def test_active_studies_meet_every_budget_without_the_noise_of_some(law: LawName, owners: int, threshold: int) -> None:
    trust = trust_of(owners, threshold, security="active")
    plain = replace(trust, security="semi-honest")
    budgets = parse_budgets({"analyst": 0.7, COORDINATOR: 1.5, "party": 2.0}, 1e-6, trust)
    known, parts = (largest_known_noise(trust, budgets), 1) if law == FUNCTIONAL else (0, owners)

    def kept(scale: int, budget: Budget, observer: Observer) -> bool:
        """Whether it is met, by a list of who draws noise and without a word about missing noise."""
        others = [name for name in trust.owners if name not in observer.names]
        drawing = others[min(trust.missing, len(others) - 1) :]
        seen = [view(drawn_by(release(law, scale, trust, known), drawing), observer, plain)]
        return accountant.epsilon(seen, budget.delta).epsilon <= budget.epsilon

    promised = [(budget, observer) for budget in budgets for observer in budget.observers(plain)]
    least = least_noise(lambda scale: release(law, scale, trust, known), trust, budgets, owners=parts)
    assert all(kept(least, *each) for each in promised)
    assert least == parts or not all(kept(int(least * 0.999) // parts * parts, *each) for each in promised)


def test_what_robust_noise_costs() -> None:
    def noise(budget: dict[str, float], owners: int, **given: object) -> int:
        trust = trust_of(owners, **given)
        budgets = parse_budgets(budget, 1e-6, trust)
        return least_noise(lambda scale: release("skellam", scale, trust), trust, budgets, owners=owners)

    for owners, who, ratio in ((3, "party", 2), (4, "party", 3 / 2), (3, "analyst", 3 / 2), (4, "analyst", 4 / 3)):
        plain, active = noise({who: 0.2}, owners), noise({who: 0.2}, owners, security="active")
        assert active == noise({who: 0.2}, owners, noise_missing=1) == pytest.approx(ratio * plain, rel=1e-2)
        assert noise({who: 0.2}, owners, security="active", noise_missing=0) == plain


def test_laplace_noise_has_a_whole_variable_left_only_where_missing_shares_are_counted() -> None:
    for security, finite in (("semi-honest", False), ("active", True)):
        trust = trust_of(3, security=security)
        known = largest_known_noise(trust, parse_budgets(1.0, 1e-6, trust))
        assert known == 1 + finite
        analyst, _, party = Statement.of([release(FUNCTIONAL, 8, trust, known)], trust, 1e-6).missing_noise[-3:]
        assert analyst.epsilon == pytest.approx(3 / 8, rel=1e-3)
        assert math.isfinite(party.epsilon) == finite
        assert finite or "known or missing of the Laplace noise" in party.reason


def test_rows_ledgers_and_budgets_of_an_active_study_agree(tmp_path) -> None:
    trust = trust_of(3, security="active")
    event = RepeatedRelease(release("skellam", 6000, trust), 4)
    statement, unsafe = (Statement.of([event], each, 1e-5) for each in (trust, replace(trust, noise_missing=0)))
    everybody = [row for row in statement.missing_noise if row.missing == 0]
    assert [row.condition for row in everybody] == ["if every owner draws its noise"] * 3
    for row, fewer in zip(statement.missing_noise[3:], everybody, strict=True):
        assert row.epsilon == statement.epsilon(row.observer) > fewer.epsilon
    assert "rows without an if hold even if an owner draws no noise" in " ".join(statement.assumptions)
    assert "which nobody checks" in " ".join(unsafe.assumptions)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve("study", "a" * 64, [event], trust, [Budget("analyst", 50.0, 1e-5)])
    assert ledger.epsilon_spent(Observer.analyst(), 1e-5) == statement.epsilon("analyst")
    assert Ledger(ledger.path).entries()[0].trust == trust


def test_how_much_may_be_missing_is_checked_and_written() -> None:
    active = {"security": "active"}
    for more, missing in (({}, 0), (active, 2), ({"noise_missing": 1}, 1), (active | {"noise_missing": 0}, 0)):
        trust = trust_of(5, 2, **more)
        assert trust.missing == missing
        assert Trust.from_json(trust.to_json()) == trust
        assert ("noise_missing" in trust.to_dict()) == ("noise_missing" in more)
    for wrong in (-1, 3, True, 1.0, "1"):
        refused(PrivacyError, "PR055", "2", trust_of, 5, 2, noise_missing=wrong)
    refused(PrivacyError, "PR055", "0", Trust, NAMES[:2], (), 0, noise_missing=1)
    with pytest.raises(PrivacyError):
        Trust.from_dict(trust_of(3).to_dict() | {"noise_missing": "many"})
