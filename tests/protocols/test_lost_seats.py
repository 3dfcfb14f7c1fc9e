"""Seats that vanish before an opening, or send something else: who goes on, with what, and who is told what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PeerLost, PeerStopped, ShareError
from colonnade.mpc import Shares
from colonnade.privacy import Trust
from colonnade.privacy.noise import rounding
from colonnade.protocols.directions import programs as power
from colonnade.protocols.directions.task import Directions
from colonnade.protocols.gradients import programs as gradients
from colonnade.protocols.gradients.task import Gradients
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.polynomial import programs as polynomial
from colonnade.protocols.polynomial.expressions import parse
from colonnade.protocols.polynomial.task import Holding, Polynomials, frozen
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import Block
from colonnade.protocols.scores import programs as scores
from colonnade.protocols.scores.task import Part, Scores
from colonnade.protocols.session import play, spare
from colonnade.wire import Room

OWNERS = tuple(f"o{i}" for i in range(5))


class Rows:
    """Encoded rows with ids, as a table would give them."""

    places = None

    def __init__(self, values):
        self.values = values
        self.ids = [f"p{i:04}" for i in range(len(values))]

    def blocks(self, rows):
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


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
    """Everybody's part in a thread: what it has in hand in the end, or why it has nothing."""
    room, changes = Room(programs), dict(changes)

    def part(name):
        place = room.place(name)

        def program(me):
            changes.get(name, lambda me: None)(me)
            return programs[name](me)

        if name in changes and changes[name] is not send_something_else:
            place.abort = lambda reason: None  # a machine that is switched off says nothing
        try:
            return play(place, task, program, lambda *step: None if steps is None else steps.append((name, *step)))
        except BaseException as error:
            return error

    with ThreadPoolExecutor(len(programs)) as pool:
        return dict(zip(programs, pool.map(part, programs), strict=True))


@pytest.fixture
def exact(monkeypatch):
    """Protocols without noise and without the coins of rounding, so that the sums can be compared."""
    monkeypatch.setattr(moments, "noise_share", lambda task, stream: np.zeros(task.entries, dtype=np.int64))
    monkeypatch.setattr(rounding, "stochastic_round", lambda values, stream: np.rint(values))
    monkeypatch.setattr(gradients, "noise_shares", lambda task, n, stream: np.zeros((n, task.entries), np.int64))
    monkeypatch.setattr(rounding, "stochastic_round", lambda values, stream: np.rint(values))


def tables_of(task, rows=30, seed=5):
    rng = np.random.default_rng(seed)
    return {block.owner: rng.uniform(-0.5, 0.5, (rows, len(block.columns))) for block in task.blocks}


def blocks(owners):
    return tuple(Block(owner, ("x", "y"), 1.0) for owner in owners)


def moments_of(owners=OWNERS, seats=OWNERS, threshold=1):
    trust = Trust(owners, seats, threshold)
    return Moments(blocks(owners), trust, gamma=64, constant=32, rows_at_most=1000, noise=3 * len(owners))


def run_moments(task, changes=(), steps=None):
    tables = tables_of(task)
    programs = {name: (lambda me, n=name: moments.owner(me, Rows(tables[n]), task)) for name in task.owners}
    programs[COORDINATOR] = lambda me: moments.coordinator(me, task)
    whole = {name: np.rint(values * task.gamma).astype(np.int64) for name, values in tables.items()}
    return run(task, programs, changes, steps), moments.reference(whole, task)


@pytest.mark.parametrize("lost", [("o3",), ("o0", "o4")])
@pytest.mark.parametrize("how", [vanish_before_opening, vanish_while_opening])
def test_spare_seats_may_vanish_before_the_opening(exact, lost, how):
    steps = []
    ended, want = run_moments(moments_of(), dict.fromkeys(lost, how), steps)
    for name in (*OWNERS, COORDINATOR):
        if name in lost:
            assert isinstance(ended[name], SwitchedOff)
        else:
            assert np.array_equal(ended[name].result.opened, want)
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
    task = moments_of(seats=("o0", "o1", "o2", "o3"))

    def vanish_when_all_is_dealt(me):
        def receive(*args, **kwargs):
            raise SwitchedOff

        me.hand.receive_opening = receive

    ended, want = run_moments(task, {"o4": vanish_when_all_is_dealt})
    assert all(np.array_equal(ended[name].result.opened, want) for name in (*OWNERS[:4], COORDINATOR))
    assert ended[COORDINATOR].lost == ("o4",)


@pytest.mark.parametrize(("owners", "threshold"), [(3, 1), (5, 2)])
def test_without_a_spare_seat_every_loss_ends_the_study(exact, owners, threshold):
    task = moments_of(OWNERS[:owners], OWNERS[:owners], threshold)
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
    ended, want = run_moments(moments_of(OWNERS[:3], OWNERS[:3]), {"o2": send_something_else})
    assert np.array_equal(ended["o0"].result.opened, ended["o1"].result.opened)
    assert not np.array_equal(ended["o0"].result.opened, want)


def test_what_is_left_of_the_spare_shares_still_tells_a_changed_one(exact):
    changes = {"o1": vanish_before_opening, "o2": send_something_else}
    ended, _ = run_moments(moments_of(), changes)
    for name in ("o0", "o3", "o4", COORDINATOR):
        assert isinstance(ended[name], ShareError | PeerStopped)
        assert "the shares of o0, o2, o3, o4 do not lie on one polynomial" in str(ended[name])


def test_scores_are_opened_without_a_spare_seat():
    parts = tuple(Part(owner, (-256,), (256,)) for owner in OWNERS)
    task = Scores(parts, Trust(OWNERS, OWNERS, 1), to="o0", gamma=256, rows_at_most=100)
    values = np.random.default_rng(1).uniform(-0.9, 0.9, (5, 20, 1))
    own = {name: scores.Parts([f"p{i:02}" for i in range(20)], part) for name, part in zip(OWNERS, values, strict=True)}
    programs = {name: (lambda me, n=name: scores.owner(me, own[n], task)) for name in OWNERS}
    programs[COORDINATOR] = lambda me: scores.coordinator(me, task)
    ended = run(task, programs, dict.fromkeys(("o1", "o2", "o3"), vanish_before_opening))
    want = scores.reference({name: part.values for name, part in own.items()}, task)
    assert np.array_equal(ended["o0"].result.others, want)
    assert ended["o0"].lost == ended[COORDINATOR].lost == ("o1", "o2", "o3")


def run_gradients(task, changes):
    tables, labels = tables_of(task, 40), np.random.default_rng(2).integers(0, 2, (40, 1)).astype(float)

    def program(name):
        own = labels if name == task.label_owner else None
        return lambda me: gradients.owner(me, Rows(tables[name]), own, task)

    programs = {name: program(name) for name in OWNERS}
    programs[COORDINATOR] = lambda me: gradients.coordinator(me, task)
    return run(task, programs, changes)


def gradients_of(**changes):
    task = Gradients(
        blocks(OWNERS), label_owner="o4", classes=1, trust=Trust(OWNERS, OWNERS, 1), gamma=64, scale=0.4, expansion=1,
        weight_bound=4.0, learning_rate=2.0, sampling="poisson", rows=40, batch=10, rounds=6, noise=15,
        rows_at_most=100,
    )  # fmt: skip
    return replace(task, **changes)


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
    drawn, real = [], power.noise_shares

    def watched(task, rounds, stream):
        drawn.append(real(task, rounds, stream))
        return drawn[-1]

    monkeypatch.setattr(power, "noise_shares", watched)
    monkeypatch.setattr(rounding, "stochastic_round", lambda values, stream: np.rint(values))
    task = Directions(
        blocks(OWNERS), Trust(OWNERS, OWNERS, 1), gamma=64, constant=32, rows_at_most=1000, directions=3, rounds=3,
        noise=5 * 10**6, reach=1024,
    )  # fmt: skip
    tables = tables_of(task)
    programs = {name: (lambda me, n=name: power.owner(me, Rows(tables[n]), task)) for name in OWNERS}
    programs[COORDINATOR] = lambda me: power.coordinator(me, task)
    ended = run(task, programs, changes)
    whole = {name: np.rint(values * task.gamma).astype(np.int64) for name, values in tables.items()}
    return ended, lambda asked: np.array(power.reference(whole, asked, task)) + sum(drawn)


@pytest.mark.parametrize(("lost", "opening"), [((), 0), (("o3",), 0), (("o3",), 2), (("o1", "o4"), 1)])
def test_products_with_directions_are_opened_without_spare_seats(monkeypatch, lost, opening):
    """Whose noise was dealt is in every opened number, whether or not it is still there."""
    ended, opened = run_power(monkeypatch, dict.fromkeys(lost, lambda me: vanish_before_opening(me, opening)))
    want = opened(ended["o0"].result.asked)
    for name in (*OWNERS, COORDINATOR):
        if name in lost:
            assert isinstance(ended[name], SwitchedOff)
        else:
            assert np.array_equal(ended[name].result.opened, want)
    assert ended["o0"].lost == ended[COORDINATOR].lost == lost


@pytest.mark.parametrize(
    ("lost", "ahead", "opening"),
    [("o0", 3, 0), ("o0", 3, 2), ("o3", 1, 1)],
    ids=["who opens", "who opens, last", "who still has noise to deal"],
)
def test_directions_are_not_asked_without_whoever_is_needed(monkeypatch, lost, ahead, opening):
    monkeypatch.setattr(Directions, "rounds_ahead", ahead)
    ended, _ = run_power(monkeypatch, {lost: lambda me: vanish_before_opening(me, opening)})
    for name in (*OWNERS, COORDINATOR):
        if name != lost:
            assert isinstance(ended[name], PeerLost | PeerStopped)
            assert f"{lost} has left the study" in str(ended[name])


@pytest.mark.parametrize(("factors", "needed"), [(2, 3), (4, 5)])
def test_how_many_seats_a_sum_of_products_takes_depends_on_their_factors(monkeypatch, factors, needed):
    monkeypatch.setattr(polynomial, "noise_share", lambda task, _: np.zeros(len(task.polynomials), dtype=np.int64))
    holdings = tuple(Holding(owner, ("x",), 1.0, 1, (False,)) for owner in OWNERS)
    product = parse(" * ".join(f"{owner}.x" for owner in OWNERS[:factors]), [f"{owner}.x" for owner in OWNERS])
    trust = Trust(OWNERS, OWNERS, 1)
    task = Polynomials(holdings, trust, (frozen(product),), gamma=4, rows_at_most=100, noise=20, rounding="nearest")
    assert task.degree == needed - 1
    tables = {name: np.random.default_rng(place).uniform(-1, 1, (20, 1)) for place, name in enumerate(OWNERS)}
    programs = {name: (lambda me, n=name: polynomial.owner(me, Rows(tables[n]), task)) for name in OWNERS}
    programs[COORDINATOR] = lambda me: polynomial.coordinator(me, task)
    ended = run(task, programs, {"o1": vanish_before_opening})
    whole = {name: np.rint(values * task.gamma).astype(np.int64) for name, values in tables.items()}
    for name in ("o0", "o2", "o3", "o4", COORDINATOR):
        if needed < len(OWNERS):
            assert ended[name].result.opened.tolist() == polynomial.reference(whole, task)
        else:
            assert isinstance(ended[name], PeerLost | PeerStopped)
            assert "o1 has left the study" in str(ended[name])
