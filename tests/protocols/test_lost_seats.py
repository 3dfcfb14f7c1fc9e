"""Seats that vanish before an opening, or send something else: who goes on, with what, and who is told what."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import PeerLost, PeerStopped, ShareError
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
from tests.support import protocols as kit

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


def vanish_before_its_noise(me):
    real, before = me.hand.deal, []

    def deal(values, **kwargs):
        if before:
            raise SwitchedOff
        before.append(values)
        return real(values, **kwargs)

    me.hand.deal = deal


def vanish_when_all_is_dealt(me):
    def receive(*args, **kwargs):
        raise SwitchedOff

    me.hand.receive_opening = receive


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

    return kit.outcomes(
        task,
        programs | {name: changed(name) for name in changes},
        progress=lambda *step: None if steps is None else steps.append(step),
        mute=[name for name, change in changes.items() if change is not send_something_else],
    )


def go_on(ended, lost, read, want):
    """All others have the result, and know who is lost."""
    assert all(isinstance(ended[name], SwitchedOff) for name in lost)
    assert all(np.array_equal(read(ended[name].result), want) for name in ended if name not in lost)
    assert ended[COORDINATOR].lost == tuple(lost)


def stop(ended, changed, said):
    """Nobody else has a result, and all are told why; who finds out that a share is wrong says so first."""
    others = [end for name, end in ended.items() if name not in changed]
    assert all(isinstance(end, ShareError | PeerLost | PeerStopped) for end in others)
    assert all(said in str(end) for end in others)
    assert not all(isinstance(end, PeerStopped) for end in others)


LEFT = "{} has left the study, and more was expected from it".format
MOMENTS = {
    "nobody": (5, 1, None, {}, ""),
    "one": (5, 1, None, {"o3": vanish_before_opening}, ""),
    "two": (5, 1, None, dict.fromkeys(("o0", "o4"), vanish_before_opening), ""),
    "one, while it opens": (5, 1, None, {"o3": vanish_while_opening}, ""),
    "two, while they open": (5, 1, None, dict.fromkeys(("o0", "o4"), vanish_while_opening), ""),
    "an owner without a seat": (5, 1, OWNERS[:4], {"o4": vanish_when_all_is_dealt}, ""),
    "more than are spare": (
        5, 1, None, dict.fromkeys(("o1", "o2", "o3"), vanish_before_opening),
        "o1, o2, o3 are lost: 2 of 5 seats are left, and this opening takes 3",
    ),
    "an owner that has more to deal": (5, 1, None, {"o2": vanish_before_its_noise}, LEFT("o2")),
    "none of three is spare": (3, 1, None, {"o1": vanish_before_opening}, LEFT("o1")),
    "none of five is spare": (5, 2, None, {"o1": vanish_before_opening}, LEFT("o1")),
    "a changed share": (
        5, 1, None, {"o2": send_something_else}, "the shares of o0, o1, o2, o3, o4 do not lie on one polynomial",
    ),
    "one, and a changed share": (
        5, 1, None, {"o1": vanish_before_opening, "o2": send_something_else},
        "the shares of o0, o2, o3, o4 do not lie on one polynomial",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MOMENTS)
def test_moments_are_opened_without_spare_seats_and_not_without_others(exact, case):
    owners, threshold, seats, changes, said = MOMENTS[case]
    task, steps = kit.moments_task((2,) * owners, seats, threshold), []
    assert (spare(task) == ()) == case.startswith("none")
    tables = kit.tables_of(task, 30)
    ended = run(task, kit.programs_of(moments, task, tables), changes, steps)
    if said:
        stop(ended, changes, said)
        return
    go_on(ended, [*changes], lambda result: result.opened, moments.reference(kit.integers(task, tables), task))
    if set(changes.values()) == {vanish_before_opening}:
        missed = {(name, f"without {one}", 1, 1) for name in ended if name not in changes for one in changes}
        assert {step for step in steps if step[1].startswith("without")} == missed
        assert all(ended[name].lost == tuple(changes) for name in OWNERS if name not in changes)


def test_a_changed_share_is_not_noticed_where_all_are_needed(exact):
    task = kit.moments_task((2,) * 3)
    tables = kit.tables_of(task, 30)
    ended = run(task, kit.programs_of(moments, task, tables), {"o2": send_something_else})
    first, second = (ended[name].result.opened for name in ("o0", "o1"))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, moments.reference(kit.integers(task, tables), task))


def test_scores_are_opened_without_a_spare_seat():
    task, lost = kit.scores_task(5, classes=1), ("o1", "o2", "o3")
    values = dict(zip(OWNERS, np.random.default_rng(1).uniform(-0.9, 0.9, (5, 20, 1)), strict=True))
    own = {name: scores.Parts([f"p{i:02}" for i in range(20)], part) for name, part in values.items()}
    ended = run(task, kit.programs_of(scores, task, own), dict.fromkeys(lost, vanish_before_opening))
    assert np.array_equal(ended["o0"].result.others, scores.reference(values, task))
    assert ended["o0"].lost == ended[COORDINATOR].lost == lost


@pytest.mark.parametrize(
    ("lost", "ahead"), [("o3", None), ("o0", 64), ("o3", 3)], ids=["spare", "who opens", "who still has noise to deal"]
)
def test_rounds_go_on_without_a_spare_seat_and_not_without_whoever_is_needed_in_them(exact, monkeypatch, lost, ahead):
    monkeypatch.setattr(gradients, "new_key", lambda: bytes(range(32)))
    task = kit.gradients_task((2,) * 5, scale=0.4, rounds=6, noise=15, rows_at_most=100, block_rows=8192)
    labels = np.random.default_rng(2).integers(0, 2, (40, 1)).astype(float)
    programs = kit.programs_of(gradients, task, kit.tables_of(task, 40), labels)
    want = run(task, programs)["o0"].result.weights
    assert np.any(want)
    if ahead is not None:
        monkeypatch.setattr(Gradients, "rounds_ahead", ahead)
    ended = run(task, programs, {lost: lambda me: vanish_before_opening(me, 2)})
    if ahead is None:
        go_on(ended, [lost], lambda result: result.weights, want)
    else:
        stop(ended, [lost], f"{lost} has left the study")


@pytest.mark.parametrize(
    ("lost", "opening", "ahead"),
    [
        ((), 0, None),
        (("o3",), 0, None),
        (("o3",), 2, None),
        (("o1", "o4"), 1, None),
        (("o0",), 0, 3),  # who opens
        (("o0",), 2, 3),
        (("o3",), 1, 1),  # who still has noise to deal
    ],
)
def test_products_with_directions_are_opened_without_spare_seats(nearest, monkeypatch, lost, opening, ahead):
    """Whose noise was dealt is in every opened number, whether or not it is still there."""
    if ahead is not None:
        monkeypatch.setattr(Directions, "rounds_ahead", ahead)
    drawn = kit.noise_drawn(monkeypatch, power)
    task = kit.directions_task((2,) * 5, directions=3, noise=5 * 10**6)
    tables = kit.tables_of(task, 30)
    changes = dict.fromkeys(lost, lambda me: vanish_before_opening(me, opening))
    ended = run(task, kit.programs_of(power, task, tables), changes)
    if ahead is not None:
        stop(ended, lost, f"{lost[0]} has left the study")
        return
    asked = ended[COORDINATOR].result.asked
    want = np.array(power.reference(kit.integers(task, tables), asked, task)) + sum(drawn)
    go_on(ended, lost, lambda result: result.opened, want)


@pytest.mark.parametrize(("factors", "needed"), [(2, 3), (4, 5)])
def test_how_many_seats_a_sum_of_products_takes_depends_on_their_factors(exact, factors, needed):
    product = " * ".join(f"{owner}.c0" for owner in OWNERS[:factors])
    task = kit.polynomial_task((1,) * 5, [product], gamma=4, noise=20, rounding="nearest")
    assert task.degree == needed - 1
    tables = kit.tables_of(task, 20)
    ended = run(task, kit.programs_of(polynomial, task, tables), {"o1": vanish_before_opening})
    if needed < len(OWNERS):
        want = polynomial.reference(kit.integers(task, tables), task)
        go_on(ended, ["o1"], lambda result: result.opened.tolist(), want)
    else:
        stop(ended, ["o1"], "o1 has left the study")
