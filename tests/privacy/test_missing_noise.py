"""What is left of a promise if owners draw no noise: every figure is recomputed from the shares that are drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy import (
    Budget,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Event,
    Ledger,
    Observer,
    Repeated,
    Sensitivity,
    SkellamRelease,
    Statement,
    Trust,
    accountant,
    least_noise,
    parse_budgets,
    view,
    views,
)
from colonnade.privacy.additive import LAPLACE, AdditiveNoise, Law
from colonnade.privacy.observers import COORDINATOR, most_known
from colonnade.privacy.rows import NO_GUARANTEE, PROVEN
from tests.support.errors import raises

from .conftest import EVENT, TRUST as TWO

Pmf = NDArray[np.float64]
NAMES = ("bank", "shop", "clinic", "school", "town", "lab", "court")
MOVED = Sensitivity(3, 5, 4, 8)
REACH = 200
EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def trust_of(owners: int, threshold: int = 1, **given: object) -> Trust:
    names = NAMES[:owners]
    return Trust(names, names if owners > 2 else (*names, COORDINATOR), threshold, **given)


def release(law: Law, scale: int, trust: Trust, known: int = 0) -> Event:
    return AdditiveNoise(law, scale, trust.owners, known).release("sums", 2, MOVED, theorem="moments-sensitivity")


def drawn_by(event: Event, names: Sequence[str]) -> Event:
    """The same release if nobody but these owners draws noise."""
    return replace(event, shares=tuple(share for share in event.shares if share[0] in names))


# --- the laws, share by share


def one_share(event: Event, size: Fraction) -> Pmf:
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


def summed(event: Event, names: Sequence[str]) -> Pmf:
    """The mass of all shares of these owners together."""
    found = np.eye(1, 2 * REACH + 1, REACH)[0]
    for owner, size in event.shares:
        if owner in names:
            found = np.convolve(found, one_share(event, size))[REACH : 3 * REACH + 1]
    return found


def true_deltas(noise: Pmf, change: Sequence[int]) -> Pmf:
    """The exact delta at each epsilon, if numbers move by this, each with independent noise of this law."""
    base, moved = np.ones(1), np.ones(1)
    for step in change:
        base = np.outer(base, noise).reshape(-1)
        moved = np.outer(moved, np.roll(noise, step)).reshape(-1)
    return np.array([np.maximum(moved - math.exp(epsilon) * base, 0).sum() for epsilon in EPSILONS])


UNEVEN: dict[Law, tuple[int | Fraction, ...]] = {
    "skellam": (90, 20, 50, 30),
    "discrete-gaussian": (90, 20, 50, 30),
    "discrete-laplace": (Fraction(3, 2), 1, 2, Fraction(5, 4)),
}
SEEN = ((Observer.analyst(), (1, 2)), (Observer.party("shop"), (2, 2)))
"""Observers, and how far a person moves two numbers under their relation."""


def uneven(law: Law) -> Event:
    trust = trust_of(4)
    shares = tuple(zip(trust.owners, UNEVEN[law], strict=True))
    return replace(release(law, 4, trust), shares=shares)


@pytest.mark.parametrize("law", UNEVEN)
def test_no_set_of_owners_without_noise_tells_more_than_is_stated(law: Law) -> None:
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
def test_of_uneven_shares_the_largest_are_missing(law: Law) -> None:
    trust, event = trust_of(4), uneven(law)
    for observer, _ in SEEN:
        others = [name for name in trust.owners if name not in observer.names]
        for missing in (1, 2):
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
        assert row.status == PROVEN
        assert "missing-noise" in row.theorem
    text, page = str(statement), statement._repr_html_()
    assert "if 1 owner draws no noise\n" in text
    assert "if 2 owners draw no noise\n" in text
    assert "<td>analyst, if 1 owner draws no noise</td>" in page


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
    assert [row["missing"] for row in value["missing_noise"]] == [1, 1, 1]
    assert all("missing" not in row for row in value["rows"])
    again = Statement.from_dict(value)
    assert again == statement
    assert again.missing_noise == statement.missing_noise
    earlier = {name: content for name, content in value.items() if name != "missing_noise"}
    assert Statement.from_dict(earlier).missing_noise == ()
    assert Statement.from_dict(earlier).to_dict() == earlier
    value["missing_noise"][0]["epsilon"] /= 2
    with raises(PrivacyError, "PR106", "analyst"):
        Statement.from_dict(value)


def test_messages_of_one_owner_have_no_such_rows() -> None:
    owners = NAMES[:3]
    noise = AdditiveNoise("discrete-gaussian", 10**6, ("shop",))
    told = noise.release(
        "scores of shop", 5, MOVED, theorem="exchange-sensitivity", audience=("bank",), about=("shop",)
    )
    trust = Trust(owners, (), 0)
    assert Statement.of([told], trust, 1e-5).missing_noise == ()
    # Beside a committee it counts as it is: whoever leaves out noise on its own columns tells no others.
    seated = trust_of(3, security="active")
    assert views([told], Observer.party("bank"), seated) == views([told], Observer.party("bank"), trust_of(3))
    # On columns of others somebody else must draw noise too.
    lonely = replace(told, about=())
    seen = view(lonely, Observer.party("bank"), seated)
    assert "may all leave it out" in seen.reason
    assert not view(lonely, Observer.party("bank"), trust_of(3)).reason


# --- budgets


@pytest.mark.parametrize(("owners", "threshold"), [(2, 1), (3, 1), (4, 1), (5, 2), (7, 3)])
@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian", "discrete-laplace"])
def test_active_studies_meet_every_budget_without_the_noise_of_some(law: Law, owners: int, threshold: int) -> None:
    trust = trust_of(owners, threshold, security="active")
    plain = replace(trust, security="semi-honest")
    budgets = parse_budgets({"analyst": 0.7, COORDINATOR: 1.5, "party": 2.0}, 1e-6, trust)
    known = most_known(trust, budgets) if law == LAPLACE else 0
    parts = 1 if law == LAPLACE else owners

    def kept(scale: int) -> bool:
        """Whether every budget is met, by a list of who draws noise and without a word about missing noise."""
        event = release(law, scale, trust, known)
        for budget in budgets:
            for observer in budget.observers(plain):
                others = [name for name in trust.owners if name not in observer.names]
                drawing = others[min(trust.missing, len(others) - 1) :]
                seen = [view(drawn_by(event, drawing), observer, plain)]
                if accountant.epsilon(seen, budget.delta).epsilon > budget.epsilon:
                    return False
        return True

    least = least_noise(lambda scale: release(law, scale, trust, known), trust, budgets, owners=parts)
    assert kept(least)
    assert least == parts or not kept(int(least * 0.999) // parts * parts)


def test_what_robust_noise_costs() -> None:
    def noise(trust: Trust, epsilon: float | dict[str, float]) -> int:
        budgets = parse_budgets(epsilon, 1e-6, trust)
        return least_noise(
            lambda scale: Repeated(release("skellam", scale, trust), 100), trust, budgets, owners=len(trust.owners)
        )

    for owners in (2, 3, 4):
        plain, active = trust_of(owners), trust_of(owners, security="active")
        assert noise(trust_of(owners, security="active", noise_missing=0), 1.0) == noise(plain, 1.0)
        assert noise(trust_of(owners, noise_missing=1), 1.0) == noise(active, 1.0)
        ratio = 1 if owners == 2 else (owners - 1) / (owners - 2)
        assert noise(active, 1.0) == pytest.approx(ratio * noise(plain, 1.0), rel=1e-2)
        only = {"analyst": 1.0}
        assert noise(active, only) == pytest.approx(owners / (owners - 1) * noise(plain, only), rel=1e-2)


def test_laplace_noise_has_a_whole_variable_left_only_where_missing_shares_are_counted() -> None:
    for security, finite in (("semi-honest", False), ("active", True)):
        trust = trust_of(3, security=security)
        known = most_known(trust, parse_budgets(1.0, 1e-6, trust))
        statement = Statement.of([release(LAPLACE, 8, trust, known)], trust, 1e-6)
        analyst, _, party = statement.missing_noise[-3:]
        assert known == 1 + finite
        assert analyst.epsilon == pytest.approx(3 / 8, rel=1e-3)
        assert math.isfinite(party.epsilon) == finite
        assert finite or "known or missing of the Laplace noise" in party.reason


def test_rows_ledgers_and_budgets_of_an_active_study_agree(tmp_path) -> None:
    trust = trust_of(3, security="active")
    event = Repeated(release("skellam", 6000, trust), 4)
    statement = Statement.of([event], trust, 1e-5)
    everybody = [row for row in statement.missing_noise if row.missing == 0]
    assert [row.condition for row in everybody] == ["if every owner draws its noise"] * 3
    for row, fewer in zip(statement.missing_noise[3:], everybody, strict=True):
        assert row.epsilon == statement.epsilon(row.observer) > fewer.epsilon
    assert any(
        text.startswith("rows without an if hold even if an owner draws no noise") for text in statement.assumptions
    )
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.commit(ledger.mark_sent(ledger.reserve("study", "a" * 64, [event], trust, [Budget("analyst", 50.0, 1e-5)])))
    assert ledger.spent(Observer.analyst(), 1e-5) == statement.epsilon("analyst")
    assert Ledger(ledger.path).entries()[0].trust == trust
    unsafe = replace(trust, noise_missing=0)
    assert any("which nobody checks" in text for text in Statement.of([event], unsafe, 1e-5).assumptions)


def test_how_much_may_be_missing_is_checked_and_written() -> None:
    assert [trust_of(5, 2, **given).missing for given in ({}, {"security": "active"}, {"noise_missing": 1})] == [
        0,
        2,
        1,
    ]
    assert trust_of(5, 2, security="active", noise_missing=0).missing == 0
    for wrong in (-1, 3, True, 1.0, "1"):
        with raises(PrivacyError, "PR055", "2"):
            trust_of(5, 2, noise_missing=wrong)
    with raises(PrivacyError, "PR055", "0"):
        Trust(NAMES[:2], (), 0, noise_missing=1)
    for trust in (trust_of(3), trust_of(3, noise_missing=0), trust_of(3, security="active", noise_missing=1)):
        assert Trust.from_json(trust.to_json()) == trust
    assert set(trust_of(3).to_dict()) == {"owners", "committee", "threshold"}
    with pytest.raises(PrivacyError):
        Trust.from_dict(trust_of(3).to_dict() | {"noise_missing": "many"})
