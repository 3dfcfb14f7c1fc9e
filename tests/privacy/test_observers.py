from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.privacy import DiscreteGaussianRelease, Repeated, Statement
from colonnade.privacy.events import alike, view
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust, parse_budgets
from tests.support.errors import raises

TWO = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
FIVE = Trust(("a", "b", "c", "d", "e"), ("a", "b", "c", "d", "e"), 2)


def test_labels_round_trip_and_coalitions_of_one_collapse() -> None:
    for label in ("analyst", "coordinator", "bank", "bank+shop", "bank+coordinator"):
        assert Observer.parse(label).label == label
    assert Observer.coalition("bank") == Observer.party("bank")
    assert Observer.coalition("coordinator") == Observer.coordinator()
    assert Observer.coalition("shop", "bank", "shop") == Observer.parse("bank+shop")
    assert len({Observer.coalition("a", "b"), Observer.coalition("b", "a")}) == 1


def test_observers_are_ordered_from_outside_in() -> None:
    seen = [Observer.parse(text) for text in ("bank+shop", "shop", "bank", "coordinator", "analyst")]
    assert [str(each) for each in sorted(seen)] == ["analyst", "coordinator", "bank", "shop", "bank+shop"]


@pytest.mark.parametrize("names", [(), ("",), ("a+b",), (" bank",), ("analyst", "bank"), ("everyone",)])
def test_bad_names_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(PrivacyError):
        Observer.coalition(*names)


@pytest.mark.parametrize(
    ("owners", "committee", "threshold"),
    [
        (("bank",), ("bank", "coordinator", "x"), 1),
        (("bank", "bank"), ("bank", "coordinator"), 1),
        (("bank", "shop"), ("bank", "shop"), 1),
        (("bank", "shop"), ("bank", "shop", "stranger"), 1),
        (("bank", "shop"), ("bank", "shop", "coordinator"), 0),
        (("bank", "shop"), ("bank", "shop", "coordinator"), 2),
        (tuple("abcdefgh"), tuple("abcdefgh"), 3),
        (("bank", "coordinator"), ("bank", "coordinator"), 1),
        (("bank", "shop"), (), 1),
        (("bank", "shop"), (), -1),
        (("bank",), (), 0),
        (("bank", "bank"), (), 0),
    ],
)
def test_impossible_arrangements_are_refused(
    owners: tuple[str, ...], committee: tuple[str, ...], threshold: int
) -> None:
    with pytest.raises(PrivacyError):
        Trust(owners, committee, threshold)


def test_each_observer_has_its_neighbouring_relation() -> None:
    assert TWO.adjacency(Observer.analyst()) is Adjacency.ADD_REMOVE
    assert TWO.adjacency(Observer.coordinator()) is Adjacency.REPLACE
    for label in ("bank", "bank+shop", "bank+coordinator"):
        assert TWO.adjacency(Observer.parse(label)) is Adjacency.REPLACE_OTHERS


def test_above_the_threshold_is_broken_and_says_why() -> None:
    reason = TWO.broken(Observer.parse("bank+shop"))
    assert reason == ("bank and shop together hold 2 of 3 shares; more than the threshold 1 reveals every input")
    assert TWO.broken(Observer.parse("bank+coordinator")) is not None
    assert TWO.broken(Observer.party("bank")) is None
    assert FIVE.broken(Observer.parse("a+b")) is None
    assert FIVE.broken(Observer.parse("a+b+c")) is not None
    wide = Trust(("a", "b", "c"), ("a", "coordinator", "b"), 1)
    assert wide.broken(Observer.parse("a+c")) is None


def test_all_owners_together_are_broken_even_with_few_seats() -> None:
    seats = Trust(tuple("abc"), ("a", "b", "coordinator"), 1)
    assert "reveals every input" in str(seats.broken(Observer.parse("a+b+c")))
    five = Trust(("a", "b"), ("a", "b", "coordinator"), 1)
    assert five.broken(Observer.parse("a+b"))


def test_standard_observers_and_their_patterns_agree() -> None:
    labels = [seen.label for seen in TWO.standard_observers()]
    assert labels == [
        "analyst",
        "coordinator",
        "bank",
        "shop",
        "bank+shop",
        "bank+coordinator",
        "coordinator+shop",
    ]
    many = Trust(tuple(f"o{k}" for k in range(300)), ("o0", "o1", "o2"), 1)
    patterns = many.standard_observers(alike=lambda _name: 0)
    small, pooled = patterns[:9], patterns[9:]
    assert [seen.label for seen in small] == [
        "analyst", "coordinator", "o0", "o3", "o0+o1", "o0+o3", "coordinator+o0", "o3+o4", "coordinator+o3",
    ]  # fmt: skip
    assert [len(seen.names) for seen in pooled] == [297 + 1, 1 + 297 + 1]
    assert all(many.broken(seen) is None for seen in pooled)


@pytest.mark.parametrize(("owners", "seats", "threshold"), [(3, 3, 1), (7, 7, 3), (10, 7, 3), (10, 3, 1), (9, 5, 2)])
def test_nobody_within_the_threshold_learns_more_than_the_table_says(owners, seats, threshold) -> None:
    """With equal shares of the noise, the largest coalition that is not broken is the worst observer of all."""
    names = tuple(f"o{k}" for k in range(owners))
    trust = Trust(names, names[:seats], threshold)
    most = max(
        len(set(seen.names) & set(names))
        for size in range(1, owners + 1)
        for seen in trust.coalitions(size)
        if trust.broken(seen) is None
    )
    table = trust.standard_observers()
    assert max(len(set(seen.names) & set(names)) for seen in table if trust.broken(seen) is None) == most
    promised = Budget("everyone", 1.0, 1e-5).observers(trust)
    assert max(len(set(seen.names) & set(names)) for seen in promised) == min(most, max(2, threshold))
    pooled = Budget("coalition", 1.0, 1e-5).observers(trust)
    assert max(len(set(seen.names) & set(names)) for seen in pooled) == most


def test_a_number_means_everyone_within_the_threshold() -> None:
    (budget,) = parse_budgets(1.0, 1e-5)
    assert {seen.label for seen in budget.observers(TWO)} == {"analyst", "coordinator", "bank", "shop"}
    assert len(budget.observers(FIVE)) == 2 + 5 + 10 + 5 + 10  # the last are two owners with the coordinator


def test_a_mapping_names_observers() -> None:
    budgets = parse_budgets({"analyst": 1, "party": 2.5, "a+b": 4}, 1e-6, FIVE)
    found = [[seen.label for seen in budget.observers(FIVE)] for budget in budgets]
    assert found == [["analyst"], ["a", "b", "c", "d", "e"], ["a+b"]]
    pairs = {seen.label for seen in Budget("pair", 1, 0.1).observers(FIVE)}
    assert {seen.label for seen in Budget("coalition", 1, 0.1).observers(FIVE)} == pairs | {
        f"{one}+{other}" for one, other in ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de")
    } | {"+".join(sorted([one, other, "coordinator"])) for one, other in combinations("abcde", 2)}
    assert Budget("bank+shop", 1, 0.1).observers(TWO) == (Observer.parse("bank+shop"),)


def test_unknown_observers_are_refused_with_the_possible_ones() -> None:
    with raises(PrivacyError, "PR061", "insurer", "analyst", "coordinator", "party", "bank", "shop"):
        parse_budgets({"insurer": 1.0}, 1e-5, TWO)
    with raises(PrivacyError, "PR062", "pair"):
        parse_budgets({"pair": 1.0}, 1e-5, TWO)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, True, "1"])
def test_bad_epsilons_are_refused(epsilon: float) -> None:
    with raises(PrivacyError, "PR064|PR065"):
        parse_budgets(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan, 2.0])
def test_bad_deltas_are_refused(delta: float) -> None:
    with raises(PrivacyError, "PR066"):
        parse_budgets({"analyst": 1.0}, delta)


def test_an_empty_mapping_is_refused() -> None:
    with raises(PrivacyError, "PR063"):
        parse_budgets({}, 1e-5)


def test_trust_round_trips() -> None:
    assert Trust.from_json(FIVE.to_json()) == FIVE
    with pytest.raises(PrivacyError):
        Trust.from_dict({"owners": ["a", "b"]})


# --- studies without a committee


ALONE = Trust(("bank", "shop"), (), 0)


def owners_only(count: int) -> Trust:
    return Trust(tuple(f"o{k}" for k in range(count)), (), 0)


def labels(seen) -> list[str]:
    return [one.label for one in seen]


def test_without_a_committee_the_number_of_rows_is_public_to_all() -> None:
    assert ALONE.adjacency(Observer.analyst()) is Adjacency.REPLACE
    assert ALONE.adjacency(Observer.coordinator()) is Adjacency.REPLACE
    assert ALONE.adjacency(Observer.party("bank")) is Adjacency.REPLACE_OTHERS
    assert Trust.from_json(ALONE.to_json()) == ALONE


def test_without_a_committee_only_all_owners_together_are_unprotected() -> None:
    three = owners_only(3)
    assert three.broken(Observer.parse("o0+o1+coordinator")) is None
    assert "every column" in str(three.broken(Observer.parse("o0+o1+o2")))
    assert ALONE.broken(Observer.parse("bank+coordinator")) is None
    assert ALONE.broken(Observer.parse("bank+shop")) is not None


def test_without_a_committee_the_coordinator_joins_nobody() -> None:
    assert labels(ALONE.standard_observers()) == ["analyst", "coordinator", "bank", "shop", "bank+shop"]
    assert labels(Budget("everyone", 1.0, 1e-5).observers(ALONE)) == ["analyst", "bank", "shop", "coordinator"]
    three = owners_only(3)
    pairs = ["o0+o1", "o0+o2", "o1+o2"]
    assert labels(Budget("everyone", 1.0, 1e-5).observers(three)) == [
        "analyst", "o0", "o1", "o2", "coordinator", *pairs,
    ]  # fmt: skip
    assert labels(Budget("pair", 1.0, 1e-5).observers(three)) == pairs
    assert labels(Budget("coordinator+o0", 1.0, 1e-5).observers(three)) == ["coordinator+o0"]
    with raises(PrivacyError, "PR062", "pair"):
        Budget("pair", 1.0, 1e-5).observers(ALONE)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_without_a_committee_every_group_short_of_all_is_listed(count: int) -> None:
    trust = owners_only(count)
    expected = {Observer.coalition(*names) for size in range(3, count) for names in combinations(trust.owners, size)}
    assert set(trust.larger_coalitions()) == expected


def test_without_a_committee_a_thousand_owners_make_a_short_table() -> None:
    trust = owners_only(1000)
    pooled = list(trust.larger_coalitions(lambda name: name == "o0"))
    assert {len(seen.names) for seen in pooled} == {999}
    assert len(set(pooled)) == 2  # all but one of those alike, and all of these
    assert all(trust.broken(seen) is None for seen in pooled)
    statement = Statement.of([told(trust, owner, 10**6) for owner in trust.owners[:1]], trust, 1e-5)
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
@given(st.integers(2, 7), st.data())
def test_without_a_committee_nobody_hears_more_than_some_row_says(count: int, data) -> None:
    """Passive owners tell the active one, or everybody; it tells all: one alone hears all that a group could use."""
    trust = owners_only(count)
    sizes = data.draw(st.lists(st.sampled_from([10**4, 10**5, 10**6]), min_size=count, max_size=count))
    to = data.draw(st.sampled_from([None, ("o0",)]))
    pairs = zip(trust.owners, sizes, strict=True)
    events = [told(trust, name, size, to if k else None) for k, (name, size) in enumerate(pairs)]
    table = trust.standard_observers(larger=alike((event, trust) for event in events))
    listed = max(heard(events, seen, trust) for seen in table if trust.broken(seen) is None)
    groups = (
        Observer.coalition(*names, *hub)
        for size in range(1, count)
        for names in combinations(trust.owners, size)
        for hub in ((), ("coordinator",))
    )
    assert max(heard(events, seen, trust) for seen in groups) == listed
    assert heard(events, Observer.analyst(), trust) == heard(events, Observer.coordinator(), trust) == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 5), st.data())
def test_without_a_committee_a_small_table_misses_no_group_whatever_is_told_to_whom(count: int, data) -> None:
    trust = owners_only(count)
    events = []
    for owner in trust.owners:
        rest = [name for name in trust.owners if name != owner]
        to = data.draw(st.lists(st.sampled_from(rest), min_size=1, unique=True))
        events.append(told(trust, owner, data.draw(st.sampled_from([10**4, 10**6])), tuple(to)))
    same = alike((event, trust) for event in events)
    listed = max(heard(events, seen, trust) for seen in trust.standard_observers(same) if trust.broken(seen) is None)
    groups = (Observer.coalition(*names) for size in range(1, count) for names in combinations(trust.owners, size))
    assert max(heard(events, seen, trust) for seen in groups) == listed


def test_without_a_committee_nothing_is_told_to_the_coordinator_alone() -> None:
    event = told(ALONE, "bank", 10**6, ("shop", "coordinator"))
    with raises(PrivacyError, "PR034"):
        view(event, Observer.party("shop"), ALONE)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 6), st.data())
def test_owners_with_equal_messages_are_exchangeable_and_no_others(count: int, data) -> None:
    """One coalition of each pattern stands for all: every other one of the pattern hears exactly as much."""
    trust = owners_only(count)
    few = st.lists(st.sampled_from([10**4, 10**6]), min_size=count, max_size=count)
    sizes, repeats, published = data.draw(few), data.draw(st.integers(1, 2)), data.draw(st.booleans())
    events = [
        told(trust, name, size, () if published else None) for name, size in zip(trust.owners, sizes, strict=True)
    ]
    events = [Repeated(event, repeats) if event.noise > 10**5 else event for event in events]
    uneven = data.draw(st.sampled_from([None, "o1"]))
    if uneven:
        events.append(told(trust, "o0", 10**5, (uneven,)))
    key = alike((event, trust) for event in events)
    named = ("o0", "o1") if uneven else ()
    kinds = [(size, name if name in named else "") for name, size in zip(trust.owners, sizes, strict=True)]
    for one, other in combinations(range(count), 2):
        same = key(trust.owners[one]) == key(trust.owners[other])
        assert same == (kinds[one] == kinds[other])
    for size in range(1, count):
        patterns: dict[tuple, set] = {}
        for names in combinations(trust.owners, size):
            pattern = tuple(sorted(repr(key(name)) for name in names))
            views = [view(event, Observer.coalition(*names), trust) for event in events]
            patterns.setdefault(pattern, set()).add(tuple(sorted(map(repr, views))))
        assert all(len(found) == 1 for found in patterns.values())


def test_who_received_messages_of_one_study_is_not_alike_who_took_part_in_another_only() -> None:
    first, second = Trust(("a", "b", "c"), (), 0), Trust(("a", "d", "c"), (), 0)
    key = alike([(told(first, "a", 10**6), first), (told(second, "a", 10**6), second)])
    assert key("b") != key("d")
    assert key("b") != key("c")
    assert key("a") != key("c")
    assert key("nobody") == ()
