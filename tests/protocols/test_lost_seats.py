"""Seats that vanish before an opening, or send something else: who goes on, with what, and who is told what."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PeerLost, PeerStopped, ShareError
from colonnade.kinds.pca.directions import programs as power
from colonnade.kinds.pca.directions.task import Directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.prediction.scores import programs as scores
from colonnade.kinds.regression.gradients import programs as gradients
from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.mpc import Shares
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import spare
from tests.support.protocols import (
    directions_task,
    gradients_task,
    integers,
    moments_task,
    noise_drawn,
    outcomes,
    polynomial_task,
    programs_of,
    scores_task,
    tables_of,
)

OWNERS = tuple(f"o{i}" for i in range(5))


class SwitchedOff(BaseException):
    """The machine is gone; nothing more happens there."""


def vanish_before_opening(me, opening=0):
    """From its so manieth opening on, this participant is not there any more."""
    real, before = me.hand.send_opening, []

    def send(shares, to):
        if len(before) == opening:
            raise SwitchedOff
        before.append(to)
        real(shares, to)

    me.hand.send_opening = send


def vanish_while_opening(me):
    """Some recipients have its share and others do not."""
    real = me.hand.send_opening

    def send(shares, to):
        real(shares, to[:2])
        raise SwitchedOff

    me.hand.send_opening = send


def send_something_else(me):
    """The same number is added for every prime, so that no value becomes too large to be honest."""
    real = me.hand.send_opening

    def send(shares, to):
        real(Shares(me.hand.system.reduce(shares.values + 1.0), shares.degree), to)

    me.hand.send_opening = send


def run(task, programs, changes=(), steps=None):
    """Everybody's end; whoever vanishes says nothing, as a machine that is switched off."""
    changes = dict(changes)

    def changed(name):
        def program(me):
            changes[name](me)
            return programs[name](me)

        return program

    return outcomes(
        task,
        programs | {name: changed(name) for name in changes},
        progress=lambda *step: None if steps is None else steps.append(step),
        mute=[name for name, change in changes.items() if change is not send_something_else],
    )


def moments_of(owners=5, threshold=1, seats=None):
    return moments_task((2,) * owners, seats, threshold)


def run_moments(task, changes=(), steps=None):
    tables = tables_of(task, 30)
    ended = run(task, programs_of(moments, task, tables), changes, steps)
    return ended, moments.reference(integers(task, tables), task)


def assert_others_opened(ended, lost, want):
    assert all(isinstance(ended[name], SwitchedOff) for name in lost)
    assert all(np.array_equal(ended[name].result.opened, want) for name in {*ended} - {*lost})


@pytest.mark.parametrize("lost", [("o3",), ("o0", "o4")])
@pytest.mark.parametrize("how", [vanish_before_opening, vanish_while_opening])
def test_spare_seats_may_vanish_before_the_opening(exact, lost, how):
    steps = []
    ended, want = run_moments(moments_of(), dict.fromkeys(lost, how), steps)
    assert_others_opened(ended, lost, want)
    assert ended[COORDINATOR].lost == lost
    if how is vanish_before_opening:
        said = {step for step in steps if step[1].startswith("without")}
        assert said == {(name, f"without {one}", 1, 1) for name in {*ended} - {*lost} for one in lost}
        assert all(ended[name].lost == lost for name in OWNERS if name not in lost)


def test_nobody_is_missed_where_nobody_is_lost(exact):
    ended, want = run_moments(moments_of())
    assert all(np.array_equal(played.result.opened, want) and played.lost == () for played in ended.values())


def test_more_losses_than_there_are_spare_seats(exact):
    ended, _ = run_moments(moments_of(), dict.fromkeys(("o1", "o2", "o3"), vanish_before_opening))
    for name in ("o0", "o4", COORDINATOR):
        assert isinstance(ended[name], PeerLost | PeerStopped)
        assert "o1, o2, o3 are lost: 2 of 5 seats are left, and this opening takes 3" in str(ended[name])


def test_an_owner_that_has_not_dealt_everything_is_needed(exact):
    def vanish_before_its_noise(me):
        real, dealt = me.hand.deal, []

        def deal(values, **kwargs):
            if dealt:
                raise SwitchedOff
            dealt.append(values)
            return real(values, **kwargs)

        me.hand.deal = deal

    ended, _ = run_moments(moments_of(), {"o2": vanish_before_its_noise})
    for name in ("o0", "o1", "o3", "o4", COORDINATOR):
        assert isinstance(ended[name], PeerLost | PeerStopped)
        assert "o2 has left the study, and more was expected from it" in str(ended[name])


def test_an_owner_without_a_seat_is_not_needed_for_an_opening(exact):
    task = moments_of(seats=OWNERS[:4])

    def vanish_when_all_is_dealt(me):
        def receive(*args, **kwargs):
            raise SwitchedOff

        me.hand.receive_opening = receive

    ended, want = run_moments(task, {"o4": vanish_when_all_is_dealt})
    assert all(np.array_equal(ended[name].result.opened, want) for name in (*OWNERS[:4], COORDINATOR))
    assert ended[COORDINATOR].lost == ("o4",)


@pytest.mark.parametrize(("owners", "threshold"), [(3, 1), (5, 2)])
def test_without_a_spare_seat_every_loss_ends_the_study(exact, owners, threshold):
    task = moments_of(owners, threshold)
    assert spare(task) == ()
    ended, _ = run_moments(task, {"o1": vanish_before_opening})
    for name in ("o0", "o2", COORDINATOR):
        assert isinstance(ended[name], PeerLost | PeerStopped)
        assert "o1 has left the study, and more was expected from it" in str(ended[name])


def test_a_changed_share_stops_the_study_where_there_is_a_spare_one(exact):
    ended, _ = run_moments(moments_of(), {"o2": send_something_else})
    said = "the shares of o0, o1, o2, o3, o4 do not lie on one polynomial"
    stopped = [ended[name] for name in ("o0", "o1", "o3", "o4", COORDINATOR)]
    assert all(isinstance(error, ShareError | PeerStopped) and said in str(error) for error in stopped)
    assert any(isinstance(error, ShareError) for error in stopped)


def test_a_changed_share_is_not_noticed_where_all_are_needed(exact):
    ended, want = run_moments(moments_of(3), {"o2": send_something_else})
    assert np.array_equal(ended["o0"].result.opened, ended["o1"].result.opened)
    assert not np.array_equal(ended["o0"].result.opened, want)


def test_what_is_left_of_the_spare_shares_still_tells_a_changed_one(exact):
    changes = {"o1": vanish_before_opening, "o2": send_something_else}
    ended, _ = run_moments(moments_of(), changes)
    for name in ("o0", "o3", "o4", COORDINATOR):
        assert isinstance(ended[name], ShareError | PeerStopped)
        assert "the shares of o0, o2, o3, o4 do not lie on one polynomial" in str(ended[name])


def test_scores_are_opened_without_a_spare_seat():
    task = scores_task(5, classes=1)
    values = np.random.default_rng(1).uniform(-0.9, 0.9, (5, 20, 1))
    own = {name: scores.Parts([f"p{i:02}" for i in range(20)], part) for name, part in zip(OWNERS, values, strict=True)}
    ended = run(task, programs_of(scores, task, own), dict.fromkeys(("o1", "o2", "o3"), vanish_before_opening))
    want = scores.reference({name: part.values for name, part in own.items()}, task)
    assert np.array_equal(ended["o0"].result.others, want)
    assert ended["o0"].lost == ended[COORDINATOR].lost == ("o1", "o2", "o3")


def run_gradients(task, changes):
    labels = np.random.default_rng(2).integers(0, 2, (40, 1)).astype(float)
    return run(task, programs_of(gradients, task, tables_of(task, 40), labels), changes)


def gradients_of():
    return gradients_task((2,) * 5, scale=0.4, rounds=6, noise=15, rows_at_most=100, block_rows=8192)


def test_rounds_go_on_without_a_spare_seat(exact, monkeypatch):
    monkeypatch.setattr(gradients, "new_key", lambda: bytes(range(32)))
    task = gradients_of()
    whole = run_gradients(task, {})
    ended = run_gradients(task, {"o3": lambda me: vanish_before_opening(me, 2)})
    want = whole["o0"].result.weights
    assert np.any(want)
    for name in ("o0", "o1", "o2", "o4", COORDINATOR):
        assert np.array_equal(ended[name].result.weights, want)
    assert ended["o0"].lost == ended[COORDINATOR].lost == ("o3",)


@pytest.mark.parametrize(("lost", "ahead"), [("o0", 64), ("o3", 3)], ids=["who opens", "who still has noise to deal"])
def test_rounds_do_not_go_on_without_whoever_is_needed_in_them(exact, monkeypatch, lost, ahead):
    monkeypatch.setattr(Gradients, "rounds_ahead", ahead)
    ended = run_gradients(gradients_of(), {lost: lambda me: vanish_before_opening(me, 2)})
    for name in (*OWNERS, COORDINATOR):
        if name != lost:
            assert isinstance(ended[name], ColonnadeError)
            assert f"{lost} has left the study" in str(ended[name])


def run_power(monkeypatch, changes):
    """Everybody's end, and what each round opens: the products with the directions that were asked, and the noise."""
    drawn = noise_drawn(monkeypatch, power)
    task = directions_task((2,) * 5, directions=3, noise=5 * 10**6)
    tables = tables_of(task, 30)
    ended = run(task, programs_of(power, task, tables), changes)
    return ended, lambda asked: np.array(power.reference(integers(task, tables), asked, task)) + sum(drawn)


@pytest.mark.parametrize(("lost", "opening"), [((), 0), (("o3",), 0), (("o3",), 2), (("o1", "o4"), 1)])
def test_products_with_directions_are_opened_without_spare_seats(nearest, monkeypatch, lost, opening):
    """Whose noise was dealt is in every opened number, whether or not it is still there."""
    ended, opened = run_power(monkeypatch, dict.fromkeys(lost, lambda me: vanish_before_opening(me, opening)))
    want = opened(ended["o0"].result.asked)
    assert_others_opened(ended, lost, want)
    assert ended["o0"].lost == ended[COORDINATOR].lost == lost


@pytest.mark.parametrize(
    ("lost", "ahead", "opening"),
    [("o0", 3, 0), ("o0", 3, 2), ("o3", 1, 1)],
    ids=["who opens", "who opens, last", "who still has noise to deal"],
)
def test_directions_are_not_asked_without_whoever_is_needed(nearest, monkeypatch, lost, ahead, opening):
    monkeypatch.setattr(Directions, "rounds_ahead", ahead)
    ended, _ = run_power(monkeypatch, {lost: lambda me: vanish_before_opening(me, opening)})
    for name in (*OWNERS, COORDINATOR):
        if name != lost:
            assert isinstance(ended[name], PeerLost | PeerStopped)
            assert f"{lost} has left the study" in str(ended[name])


@pytest.mark.parametrize(("factors", "needed"), [(2, 3), (4, 5)])
def test_how_many_seats_a_sum_of_products_takes_depends_on_their_factors(exact, factors, needed):
    product = " * ".join(f"{owner}.c0" for owner in OWNERS[:factors])
    task = polynomial_task((1,) * 5, [product], gamma=4, noise=20, rounding="nearest")
    assert task.degree == needed - 1
    tables = tables_of(task, 20)
    ended = run(task, programs_of(polynomial, task, tables), {"o1": vanish_before_opening})
    whole = integers(task, tables)
    for name in ("o0", "o2", "o3", "o4", COORDINATOR):
        if needed < len(OWNERS):
            assert ended[name].result.opened.tolist() == polynomial.reference(whole, task)
        else:
            assert isinstance(ended[name], PeerLost | PeerStopped)
            assert "o1 has left the study" in str(ended[name])
