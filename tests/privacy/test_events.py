from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy import events
from colonnade.privacy.events import DiscreteGaussianRelease, NonPrivate, SkellamRelease, alike, view
from colonnade.privacy.observers import Adjacency, Observer, Trust

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
BIG = 10**40 + 7
RELEASE = SkellamRelease(
    "moments",
    (("bank", Fraction(1, 3)), ("shop", Fraction(2)), ("clinic", Fraction(BIG))),
    9, 6, BIG, 12, 2 * BIG, 1e-30, "moments-sensitivity",
)  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        RELEASE,
        DiscreteGaussianRelease("counts", (("bank", Fraction(7)),), 1, 1, 1, 2, 4, 0.0, "x", "cited only"),
        NonPrivate("the row count was published", "rows"),
    ],
)
def test_events_round_trip_exactly(event: events.Event) -> None:
    again = events.from_json(event.to_json())
    assert again == event
    assert type(again) is type(event)
    assert hash(again) == hash(event)


def test_an_exact_sampler_distance_becomes_a_float_not_below_it() -> None:
    third = replace(RELEASE, tail=Fraction(1, 3))
    assert isinstance(third.tail, float)
    assert Fraction(third.tail) >= Fraction(1, 3)
    assert events.from_json(third.to_json()) == third


def test_plain_integers_are_accepted_as_shares() -> None:
    assert replace(RELEASE, shares=(("bank", 5),)).shares == (("bank", Fraction(5)),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, "version"),
        ({"version": None}, "version"),
        ({"kind": "laplace"}, "unknown privacy event 'laplace'"),
        ({"kind": None}, "unknown"),
        ({"l1": "six"}, "malformed"),
        ({"l1": None}, "malformed"),
        ({"shares": [["bank", "1/0"]]}, "malformed"),
        ({"shares": "none"}, "malformed"),
        ({"dimension": "9"}, "whole number"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(PrivacyError, match=match):
        events.from_dict(RELEASE.to_dict() | change)


def test_missing_fields_and_broken_json_are_refused() -> None:
    value = RELEASE.to_dict()
    del value["tail"]
    with pytest.raises(PrivacyError, match="incomplete"):
        events.from_dict(value)
    for text in ("{", "[]", "3", json.dumps({"version": 1, "kind": "non_private"})):
        with pytest.raises(PrivacyError):
            events.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"shares": ()},
        {"shares": (("bank", Fraction(1)), ("bank", Fraction(1)))},
        {"shares": (("bank", Fraction(0)),)},
        {"dimension": 0},
        {"l1": -1},
        {"l2_squared": 2.5},
        {"tail": -1e-9},
        {"tail": float("nan")},
    ],
)
def test_impossible_releases_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        replace(RELEASE, **change)


def test_an_observer_subtracts_the_noise_it_knows() -> None:
    outside = view(RELEASE, Observer.analyst(), TRUST)
    assert (outside.noise, outside.parts, outside.draws) == (RELEASE.noise, 3, 27)
    assert (outside.l1, outside.l2_squared, outside.adjacency) == (6, BIG, Adjacency.ADD_REMOVE)
    hub = view(RELEASE, Observer.coordinator(), TRUST)
    assert (hub.noise, hub.l2_squared, hub.adjacency) == (RELEASE.noise, 2 * BIG, Adjacency.REPLACE)
    bank = view(RELEASE, Observer.party("bank"), TRUST)
    assert (bank.noise, bank.parts, bank.smallest, bank.l1) == (BIG + 2, 2, 2, 12)
    assert bank.adjacency is Adjacency.REPLACE_OTHERS
    both = view(RELEASE, Observer.parse("coordinator+shop"), TRUST)
    assert both.noise == BIG + Fraction(1, 3)


def test_above_the_threshold_nothing_is_hidden() -> None:
    seen = view(RELEASE, Observer.parse("bank+shop"), TRUST)
    assert "reveals every input" in seen.reason
    alone = replace(RELEASE, shares=(("bank", Fraction(4)),))
    assert "every share of the noise" in view(alone, Observer.party("bank"), TRUST).reason
    assert view(NonPrivate("it leaked"), Observer.analyst(), TRUST).reason == "it leaked"


def test_a_party_outside_the_study_sees_the_result_only() -> None:
    seen = view(RELEASE, Observer.party("insurer"), TRUST)
    assert (seen.noise, seen.l2_squared) == (RELEASE.noise, 2 * BIG)


def test_unknown_events_and_strangers_are_refused() -> None:
    with pytest.raises(PrivacyError, match="unknown privacy event"):
        view("a string", Observer.analyst(), TRUST)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="noise from ghost"):
        view(replace(RELEASE, shares=(("ghost", Fraction(1)),)), Observer.analyst(), TRUST)


def test_owners_with_equal_shares_and_seats_are_alike() -> None:
    owners = ("a", "b", "c", "d", "e")
    trust = Trust(owners, ("a", "b", "c"), 1)
    shares = tuple((name, Fraction(2 if name == "e" else 1)) for name in owners)
    key = alike([(replace(RELEASE, shares=shares), trust)])
    assert key("a") == key("b")
    assert len({key("a"), key("d"), key("e"), key("stranger")}) == 4
