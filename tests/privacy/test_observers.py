from __future__ import annotations

import math
from itertools import combinations

import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust, parse_budgets

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
    with pytest.raises(PrivacyError, match=r"no observer insurer.*analyst, coordinator, party.*bank, shop"):
        parse_budgets({"insurer": 1.0}, 1e-5, TWO)
    with pytest.raises(PrivacyError, match="no pair stays within the threshold"):
        parse_budgets({"pair": 1.0}, 1e-5, TWO)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, True, "1"])
def test_bad_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        parse_budgets(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan, 2.0])
def test_bad_deltas_are_refused(delta: float) -> None:
    with pytest.raises(PrivacyError, match="delta"):
        parse_budgets({"analyst": 1.0}, delta)


def test_an_empty_mapping_is_refused() -> None:
    with pytest.raises(PrivacyError, match="empty"):
        parse_budgets({}, 1e-5)


def test_trust_round_trips() -> None:
    assert Trust.from_json(FIVE.to_json()) == FIVE
    with pytest.raises(PrivacyError):
        Trust.from_dict({"owners": ["a", "b"]})
