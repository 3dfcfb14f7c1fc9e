from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy import Adjacency, Observer, Sensitivity, Trust, events
from colonnade.privacy.events import exchange_key, view
from colonnade.privacy.noise import TAIL
from colonnade.privacy.noise_laws import (
    AdditiveNoise,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    NonPrivate,
    PoissonSampled,
    PostProcessing,
    RandomisedResponse,
    RepeatedRelease,
    SkellamRelease,
)
from tests.support.errors import raises, refused

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
BIG = 10**40 + 7
RELEASE = SkellamRelease(
    "moments",
    (("bank", Fraction(1, 3)), ("shop", Fraction(2)), ("clinic", Fraction(BIG))),
    9, 6, BIG, 12, 2 * BIG, tail=1e-30, theorem="moments-sensitivity",
)  # fmt: skip
LAPLACE = DiscreteLaplaceRelease(
    "coefficients", tuple((name, Fraction(1, 2)) for name in TRUST.owners), 10, Fraction(40), 20, 30, tail=1e-30
)
RESPONSE = RandomisedResponse("labels", Fraction(27, 10), 4, "bank", audience=("shop", "clinic"))


@pytest.mark.parametrize(
    "event",
    [
        RELEASE,
        DiscreteGaussianRelease(
            "counts", (("bank", Fraction(7)),), 1, 1, 1, 2, 4, tail=0.0, theorem="x", unproven="cited only"
        ),
        NonPrivate("the row count was published", "rows", ("bank",)),
        NonPrivate("labels in the clear", "labels", ("bank",), ("shop", "clinic")),
        LAPLACE,
        RESPONSE,
        PostProcessing("eigenvectors"),
        PoissonSampled(RELEASE, Fraction(1, 1000), ("bank", "shop")),
        RepeatedRelease(PoissonSampled(LAPLACE, Fraction(1, 3)), 5000),
        replace(RELEASE, tail=Fraction(1, 3)),  # a float not below it
        replace(RELEASE, lost=Fraction(1, 3)),
        RepeatedRelease(replace(RELEASE, audience=("bank",), about=("shop",), others=(("bank", 3, BIG),)), 7),
    ],
)
def test_events_round_trip_exactly(event: events.Event) -> None:
    again = events.from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert type(again) is type(event)
    assert hash(again) == hash(event)


def test_numbers_become_floats_not_below_them_and_first_versions_are_read() -> None:
    third = replace(RELEASE, tail=Fraction(1, 3), lost=Fraction(1, 3), shares=(("bank", 5),))
    assert min(Fraction(third.tail), Fraction(third.lost)) >= Fraction(1, 3)
    assert third.shares == (("bank", Fraction(5)),)
    value = RELEASE.to_dict() | {"version": 1}
    for label in ("audience", "about", "others"):
        del value[label]
    assert "lost" not in value, "written only where there is one"
    assert events.from_dict(value) == RELEASE


FINER = [("-400", "400"), ("0", "-400"), ("0", "400"), (1.9, "4"), (True, "4"), ("1/2", "4")]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 3}, "PR027"),
        ({"version": None}, "PR027"),
        ({"kind": "laplace"}, ("PR028", "laplace")),
        ({"kind": None}, "PR028"),
        *(({"l1": wrong}, "PR*") for wrong in ("six", None, True, 100.0, "0")),
        *(({"tail": wrong}, "PR*") for wrong in ("0.5", True, math.inf)),
        *(({"shares": wrong}, "PR*") for wrong in ("none", [["bank", "1/0"]], [["a", 1.5]], [["a", True]], [[1, "5"]])),
        *(({"dimension": wrong}, "PR*") for wrong in ("9", True)),
        *(({"others": [["bank", *numbers]]}, "PR*") for numbers in FINER),
        ({"replace_l2_squared": "0"}, "PR*"),
        ({"surprise": 1}, ("PR029", "surprise")),
        ({"audience": "bank"}, "PR030"),
        ({"name": 3}, "PR030"),
        ({"lost": "much"}, "PR030"),
        ({"lost": 1.0}, "PR074"),
    ],
)
def test_what_is_not_understood_is_refused(change, match: str) -> None:
    refused(PrivacyError, match, events.from_dict, json.loads(json.dumps(RELEASE.to_dict() | change)))


def test_missing_fields_impossible_rates_and_other_json_are_refused() -> None:
    value = RELEASE.to_dict()
    del value["tail"]
    refused(PrivacyError, "PR030", events.from_dict, value)
    for rate in ("1e400", "-1/2", 0.5, "0"):
        refused(PrivacyError, "PR*", events.from_dict, PoissonSampled(RELEASE, 1).to_dict() | {"rate": rate})
    for wrong in ([], 3, {"version": 1, "kind": "non_private"}):
        refused(PrivacyError, "PR*", events.from_dict, wrong)


def test_an_observer_subtracts_the_noise_it_knows() -> None:
    noise, third = RELEASE.noise, Fraction(1, 3)
    for who, left, parts, square, relation in (
        ("analyst", noise, 3, BIG, Adjacency.ADD_REMOVE),
        ("coordinator", noise, 3, 2 * BIG, Adjacency.REPLACE),
        ("bank", BIG + 2, 2, 2 * BIG, Adjacency.REPLACE_OTHERS),
        ("coordinator+shop", BIG + third, 2, 2 * BIG, Adjacency.REPLACE_OTHERS),
        ("insurer", noise, 3, 2 * BIG, Adjacency.REPLACE_OTHERS),  # sees the result only
    ):
        seen = view(RELEASE, Observer.parse(who), TRUST)
        assert (seen.noise, seen.parts, seen.l2_squared, seen.adjacency) == (left, parts, square, relation)
        assert (seen.l1, seen.draws) == (6 if who == "analyst" else 12, 9 * parts)
        assert seen.smallest == (2 if who == "bank" else third)


def test_above_the_threshold_nothing_is_hidden() -> None:
    seen = view(RELEASE, Observer.parse("bank+shop"), TRUST)
    assert "reveals every input" in seen.reason
    alone = replace(RELEASE, shares=(("bank", Fraction(4)),))
    assert "every share of the noise" in view(alone, Observer.party("bank"), TRUST).reason
    assert view(NonPrivate("it leaked"), Observer.analyst(), TRUST).reason == "it leaked"


def test_unknown_events_and_strangers_are_refused() -> None:
    refused(PrivacyError, "PR032", view, "a string", Observer.analyst(), TRUST)
    with raises(PrivacyError, "PR033", "ghost"):
        view(replace(RELEASE, shares=(("ghost", Fraction(1)),)), Observer.analyst(), TRUST)


def test_owners_with_equal_shares_and_seats_are_alike() -> None:
    shares = tuple((name, Fraction(2 if name == "e" else 1)) for name in "abcde")
    key = exchange_key([(replace(RELEASE, shares=shares), Trust(tuple("abcde"), tuple("abc"), 1))])
    assert key("a") == key("b")
    assert len({key("a"), key("d"), key("e"), key("stranger")}) == 4
    even = replace(RELEASE, shares=tuple((name, 1) for name in TRUST.owners))
    knowing = exchange_key([(PoissonSampled(even, 1, ("bank",)), TRUST)])
    assert knowing("shop") == knowing("clinic") != knowing("bank"), "who knows the batch is not like the others"


def test_what_was_sent_to_others_is_not_seen() -> None:
    sealed = replace(RELEASE, audience=("bank",))
    for who in ("shop", "analyst", "coordinator", "bank", "coordinator+bank"):
        assert view(sealed, Observer.parse(who), TRUST).empty == ("bank" not in who)
    leak = NonPrivate("labels in the clear", audience=("shop",))
    assert view(leak, Observer.party("bank"), TRUST).empty
    assert view(leak, Observer.party("shop"), TRUST).reason == "labels in the clear"


def test_what_depends_on_ones_own_columns_tells_nothing_new() -> None:
    own, told = replace(RELEASE, about=("bank",)), Trust(TRUST.owners, (), 0)
    labels = NonPrivate("labels in the clear", audience=("shop", "clinic"), about=("bank",))
    wider = replace(labels, about=("bank", "clinic"))
    for event, who, trust, empty in (
        (own, "bank", TRUST, True),
        (own, "shop", TRUST, False),
        (RESPONSE, "bank", TRUST, True),
        (labels, "bank+shop", told, True),
        (labels, "shop", told, False),
        (wider, "bank+shop", told, False),
    ):
        assert view(event, Observer.parse(who), trust).empty == empty


def test_what_is_about_everybody_is_written_as_before_and_read_again() -> None:
    leak = NonPrivate("it leaked", "rows", ("bank",))
    written = {"version": 2, "kind": "non_private", "reason": "it leaked", "name": "rows", "audience": ["bank"]}
    assert leak.to_dict() == written
    assert events.from_dict(written | {"about": ["shop"]}) == replace(leak, about=("shop",))
    refused(PrivacyError, "PR030", events.from_dict, written | {"about": "shop"})


def test_a_narrower_change_is_used_where_it_is_known() -> None:
    finer = replace(RELEASE, others=(("bank", 7, BIG + 1), ("shop", 99, 9 * BIG)))
    bank = view(finer, Observer.party("bank"), TRUST)
    assert (bank.l1, bank.l2_squared) == (7, BIG + 1)
    assert view(finer, Observer.party("shop"), TRUST).l2_squared == 2 * BIG
    assert view(finer, Observer.coordinator(), TRUST).l1 == 12
    assert view(finer, Observer.analyst(), TRUST).l2_squared == BIG


def test_laplace_noise_protects_while_one_whole_variable_is_left() -> None:
    thin = replace(LAPLACE, shares=tuple((name, Fraction(1, 3)) for name in TRUST.owners))
    outside, bank = view(LAPLACE, Observer.analyst(), TRUST), view(LAPLACE, Observer.party("bank"), TRUST)
    assert (outside.kind, outside.pure, outside.noise) == (events.PURE, 0.5, Fraction(3, 2))
    assert (bank.pure, bank.single_pure, bank.noise) == (0.75, 0.5, 1)
    assert view(thin, Observer.analyst(), TRUST).pure == 0.5
    assert "less than one whole variable" in view(thin, Observer.party("bank"), TRUST).reason


def test_randomised_response_tells_the_number_of_people() -> None:
    shop = view(RESPONSE, Observer.party("shop"), TRUST)
    assert shop.pure == pytest.approx(0.99325177, rel=1e-6)
    assert shop.pure >= 0.9932517730102834
    published = replace(RESPONSE, audience=())
    assert "how many" in view(published, Observer.analyst(), TRUST).reason
    assert view(published, Observer.coordinator(), TRUST).pure == shop.pure


def test_whoever_drew_the_batch_knows_it() -> None:
    event = RepeatedRelease(PoissonSampled(RELEASE, Fraction(1, 10), ("bank",)), 20)
    outside, bank = view(event, Observer.analyst(), TRUST), view(event, Observer.party("bank"), TRUST)
    assert (outside.secret_batch, bank.secret_batch) == (True, False)
    assert (outside.times, outside.rate, outside.draws) == (20, Fraction(1, 10), 20 * 27)
    assert bank.coins_known
    assert view(event, Observer.parse("bank+coordinator"), TRUST).coins_known


def test_impossible_events_are_refused() -> None:
    once = (("bank", Fraction(1)),)
    for make, *given in (
        (PoissonSampled, RELEASE, Fraction(0)),
        (PoissonSampled, RELEASE, Fraction(3, 2)),
        (PoissonSampled, RepeatedRelease(RELEASE, 2), Fraction(1, 2)),
        (RepeatedRelease, RELEASE, 0),
        (RepeatedRelease, PostProcessing("x"), 2),
    ):
        refused(PrivacyError, "PR*", make, *given)
    for event, change in (
        (LAPLACE, {"scale": Fraction(0)}),
        (LAPLACE, {"l1": -1}),
        (RESPONSE, {"odds": Fraction(1, 2)}),
        (RESPONSE, {"categories": 1}),
        (RELEASE, {"shares": ()}),
        (RELEASE, {"shares": once * 2}),
        (RELEASE, {"shares": (("bank", Fraction(0)),)}),
        (RELEASE, {"dimension": 0}),
        (RELEASE, {"l1": -1}),
        (RELEASE, {"l2_squared": 2.5}),
        (RELEASE, {"tail": -1e-9}),
        (RELEASE, {"tail": float("nan")}),
    ):
        refused(PrivacyError, "PR*", replace, event, **change)


# --- noise of several owners: what its law says about it holds for what is drawn, released and reached


LAWS = ("skellam", "discrete-gaussian", "discrete-laplace")
MOVED = Sensitivity(3, 5, 6, 20)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("copies", [1, 2])
def test_the_parts_of_all_owners_have_the_variance_that_is_claimed(stream, law, copies):
    noise = AdditiveNoise(law, 60, TRUST.owners, known=1)
    drawn = sum(noise.draw((200, 100), stream, copies) for _ in TRUST.owners)
    assert (drawn.shape, drawn.dtype) == ((200, 100), np.int64)
    assert np.mean(drawn.astype(float) ** 2) == pytest.approx(copies * noise.variance, rel=0.1)
    assert noise.deviation == pytest.approx(math.sqrt(noise.variance))
    assert np.abs(drawn).max() <= noise.reach(copies)


@pytest.mark.parametrize("law", LAWS)
def test_a_release_says_what_each_owner_adds_and_how_far_a_person_moves_it(law):
    noise = AdditiveNoise(law, 60, TRUST.owners, known=1)
    event = noise.release(
        "sums", 4, MOVED, theorem="proof", audience=("shop",), about=("bank",), others=(("bank", 1, 1),)
    )
    each = Fraction(1, 2) if noise.pure else Fraction(20)
    assert event.kind == law.replace("-", "_")
    assert event.shares == tuple((owner, each) for owner in TRUST.owners)
    assert (event.name, event.dimension, event.theorem, event.tail) == ("sums", 4, "proof", float(TAIL))
    assert (event.audience, event.about, event.others) == (("shop",), ("bank",), (("bank", 1, 1),))
    assert (event.l1, event.replace_l1) == (MOVED.l1, MOVED.replace_l1)
    if noise.pure:
        assert event.scale == 60
    else:
        assert (event.l2_squared, event.replace_l2_squared) == (MOVED.l2_squared, MOVED.replace_l2_squared)
    assert AdditiveNoise(law, 60, TRUST.owners).parts == (1 if noise.pure else 3), (
        "only Laplace noise has no even split"
    )
