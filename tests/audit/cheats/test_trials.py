"""The catalogue: every cheat is caught where seats check each other, and the games notice a check that is missing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.audit.cheats.catalogue import CHEATS
from colonnade.audit.cheats.scenes import COMMITTEES
from colonnade.audit.cheats.trials import HONEST, Job, Row, all_scenes, jobs, occasions, play, play_all
from colonnade.mpc import Shares
from colonnade.mpc.verify.agreement import Agreement
from colonnade.mpc.verify.bits import BitClaims
from colonnade.mpc.verify.claims import Claims
from colonnade.mpc.verify.ranges import Ranges

SCENES = all_scenes()


def row(scene: str, cheat: str, seats: int = 3, checked: bool = True, trials: int = 2) -> Row:
    return play(Job(scene, cheat, seats, (seats - 1) // 2, checked, trials, 7))


SCENE = {"inner product": (3, 1), "dealing": (4, 1)}


@pytest.mark.parametrize("scene", sorted(SCENE))
def test_every_cheat_in_an_operation_of_a_committee_is_caught(scene: str) -> None:
    """A check lets a cheat through with a chance of at most 2^-40."""
    check_all(scene, *SCENE[scene])


@pytest.mark.slow
@pytest.mark.parametrize(("seats", "threshold"), COMMITTEES)
@pytest.mark.parametrize("scene", sorted(SCENES))
def test_every_cheat_everywhere_is_caught(scene: str, seats: int, threshold: int) -> None:
    check_all(scene, seats, threshold)


def check_all(scene: str, seats: int, threshold: int) -> None:
    played = [found for _, found in play_all(jobs([SCENES[scene]], 1, committees=[(seats, threshold)], seed=3))]
    assert [found.cheat for found in played if not found.good] == []
    assert sum(found.caught for found in played) >= (5 if SCENES[scene].checked else 0)


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_honest_runs_open_what_the_plain_computation_gives(scene: str) -> None:
    for seats, checked in ((3, False), (4, SCENES[scene].checked)):
        found = play(Job(scene, HONEST, seats, 1, checked, 1, 1))
        assert found.idle == found.trials == 1, (seats, checked, found.reasons)


def test_where_nobody_checks_a_wrong_product_changes_the_result() -> None:
    for scene in ("inner product", "products in a row", "polynomial", "hidden members"):
        found = row(scene, "a sharing of a product plus one", checked=False)
        assert found.missed == found.trials == 2, scene
        assert found.good  # a twin: nothing else was to be expected


def test_the_games_notice_a_zero_test_that_is_opened_before_its_degree_is_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for the other shares could then choose its own so that zero is opened."""

    def opened_at_once(self: Claims, values: Any, *_: Any) -> None:
        hand, t = self._hand, self._hand.committee.threshold
        product = hand.multiply(hand.random(values.shape[1:]), Shares(values, t))
        masked = hand.add([product, hand.zero(product.shape, 2 * t)])
        assert not np.any(hand.open_residues(masked.values, masked.degree))

    cheat = "a wrong product hidden by waiting for others"
    assert row("inner product", cheat).caught == 2
    monkeypatch.setattr(Claims, "_test_zero", opened_at_once)
    broken = row("inner product", cheat)
    assert broken.missed == 2
    assert not broken.good


def test_the_games_notice_seats_that_settle_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claims, "settle", lambda self: None)
    assert not row("products in a row", "a sharing of a product plus one").good


def test_the_games_notice_a_proof_of_bounds_that_does_not_look_at_sums_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liar makes every equation true modulo every prime: only that its bits are large gives it away."""
    cheat = "a number a thousand times its bound, with squares and bits modulo every prime"
    assert row("proof of bounds", cheat, trials=1).caught == 1
    monkeypatch.setattr(Ranges, "window", property(lambda self: (-(2**999), 2**999)))
    assert row("proof of bounds", cheat, trials=1).missed == 1


def test_the_games_notice_seats_that_open_before_all_have_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds its part back until another seat has opened then chooses what is opened."""
    held = (
        ("inner product", "a wrong product hidden by a part held back"),
        ("moments", "noise held back until others open"),
    )
    for scene, cheat in held:
        assert row(scene, cheat).caught == 2
    monkeypatch.setattr(Agreement, "agree", lambda self: None)
    scene, cheat = held[0]
    for seats in (3, 5):
        assert row(scene, cheat, seats, trials=4).missed > 0, seats
    # Moments are settled at the end, after everybody's noise: whoever holds its noise back waits for itself.
    assert row(*held[1], 3, trials=4).missed == 0


def test_the_games_notice_a_check_of_bits_that_is_opened_before_all_have_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheat = "a wrong AND hidden by a part held back"
    assert row("comparison", cheat).caught == 2
    real = BitClaims._lower

    def no_coin_after(self: BitClaims, values: Any) -> Any:
        coin = self._coin
        if values.size == 1:

            def once() -> Any:
                self._coin = coin

            self._coin = once
        return real(self, values)

    monkeypatch.setattr(BitClaims, "_lower", no_coin_after)
    broken = row("comparison", cheat, trials=6)
    assert broken.caught == 0
    assert broken.missed > 0


@pytest.mark.parametrize("cheat", ["a coin drawn again until it suits", "a comparison asked for again and again"])
def test_the_games_notice_seats_that_repeat_a_coin_as_often_as_one_likes(
    cheat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One try in 32 is liked at once, so that eight of them are has a chance of 2^-40."""
    assert row("products in a row", cheat, trials=8).caught > 0
    monkeypatch.setattr(Agreement, "_repeat", lambda self: None)
    assert row("products in a row", cheat, trials=8).missed > 0


def test_as_many_seats_deviate_at_once_as_the_threshold_says() -> None:
    todo = jobs([SCENES["products in a row"]], 1, committees=[(5, 2)])
    assert {job.deviating for job in todo} == {1, 2}
    several = [play(job) for job in todo if job.deviating == 2]
    assert [found.cheat for found in several if not found.good] == []
    assert sum(found.caught for found in several) >= 10
    assert Job("dealing", CHEATS[0].name, 7, 3, True, 1, 0, 3).cheaters == ("o0", "o1", "o2")


def test_leaving_noise_out_is_allowed_and_counted_as_such() -> None:
    found = row("polynomial", "no noise")
    assert found.allowed
    assert found.good
    assert found.caught == 0


def test_scenes_keep_the_order_of_the_committed_page() -> None:
    """Seeds count jobs, so that another order would be other trials."""
    page = Path(__file__).parents[3] / "benchmarks" / "results" / "cheats.csv"
    with page.open(encoding="utf-8", newline="") as lines:
        assert list(SCENES) == list(dict.fromkeys(line["protocol"] for line in csv.DictReader(lines)))


def test_names_of_cheats_are_different_and_each_has_an_occasion_somewhere() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
    for cheat in CHEATS:
        if cheat.needs == "lies":
            continue
        scenes = ("products in a row", "gradients", "directions", "comparison")
        assert any(occasions(Job(name, cheat.name, 4, 1, True, 0, 0)) for name in scenes), cheat.name
