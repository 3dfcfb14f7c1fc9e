"""Seats that are lost, that check each other or cheat, noise that is left out: who goes on, and who is told what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colonnade import PCA, Federation, Party, Schema, number
from colonnade.errors import ColonnadeError, PeerLost, PeerStopped, ShareError
from colonnade.kinds.pca import programs as power
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.prediction import programs as scores
from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.least_squares import GradientDescent
from colonnade.kinds.regression.task import GradientTask
from colonnade.kinds.tables import programs as marginals
from colonnade.mpc import Shares
from colonnade.protocols import iteration
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import spare_owners
from tests.support import protocols as kit
from tests.support.errors import refused

OWNERS = tuple(f"o{i}" for i in range(5))


class SwitchedOff(BaseException):
    """The machine is gone; nothing more happens there."""


def vanish_before_opening(me, opening=0):
    """From its so manieth opening on, this participant is not there any more."""
    real, before = me.engine.send_opening, []

    def send(shares, to):
        if len(before) == opening:
            raise SwitchedOff
        before.append(to)
        real(shares, to)

    me.engine.send_opening = send


def vanish_while_opening(me):
    """Some recipients have its share and others do not."""
    real = me.engine.send_opening

    def send(shares, to):
        real(shares, to[:2])
        raise SwitchedOff

    me.engine.send_opening = send


def vanish_before_its_noise(me):
    real, before = me.engine.deal, []

    def deal(values, **kwargs):
        if before:
            raise SwitchedOff
        before.append(values)
        return real(values, **kwargs)

    me.engine.deal = deal


def vanish_when_all_is_dealt(me):
    def receive(*args, **kwargs):
        raise SwitchedOff

    me.engine.receive_opening = receive


def send_something_else(me):
    """The same number is added for every prime, so that no value becomes too large to be honest."""
    real = me.engine.send_opening

    def send(shares, to):
        real(Shares(me.engine.system.reduce(shares.values + 1.0), shares.degree), to)

    me.engine.send_opening = send


def run(task, programs, changes=(), steps=None, vanishing=True):
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
        mute=[name for name, change in changes.items() if vanishing and change is not send_something_else],
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
    assert (spare_owners(task) == ()) == case.startswith("none")
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


@pytest.mark.parametrize(
    ("owners", "lost", "opening", "ahead"),
    [
        (5, "o3", 2, None),
        (5, "o0", 2, 64),  # who opens
        (5, "o3", 2, 3),  # who still has noise to deal
        *((4, "o3", opening, None) for opening in (1, 4, 12)),  # where seats check each other: in checks or between
    ],
)
def test_rounds_go_on_without_a_spare_seat_and_not_without_whoever_is_needed_in_them(
    exact, monkeypatch, owners, lost, opening, ahead
):
    task = kit.gradients_task((2,) * owners, scale=0.4, rounds=6, noise=3 * owners, rows_at_most=100)
    if owners == 4:
        task = kit.active(replace(task, sampling="disjoint", batch=20))
    monkeypatch.setattr(GradientTask, "rounds_checked", 2)
    monkeypatch.setattr(gradients, "new_key", lambda: KEY)
    programs = kit.programs_of(gradients, task, kit.tables_of(task, 40), labels_for(task, 40))
    want = run(task, programs)["o0"].result.weights
    assert np.any(want)
    if ahead is not None:
        monkeypatch.setattr(GradientTask, "rounds_ahead", ahead)
    ended = run(task, programs, {lost: lambda me: vanish_before_opening(me, opening)})
    if ahead is None:
        go_on(ended, [lost], lambda result: result.weights, want)
    else:
        stop(ended, [lost], f"{lost} has left the study")


SEATINGS = [(3, 1), (4, 1), (5, 2), (7, 3)]


KEY = bytes(range(32))


DISJOINT = {"sampling": "disjoint"}


def labels_for(task, rows):
    return np.random.default_rng(2).integers(0, 2, (rows, task.classes)).astype(float)


WITH_PROOFS = [
    ((2, 0, 1, 1), seats, 1, {"classes": 2}, inputs)
    for seats, inputs in ((None, "proven"), (("o0", "o1", "o2"), "proven"), (("o2", "o1", COORDINATOR), "proven"))
]


# --- the same numbers as in the clear


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "changes", "inputs"),
    [
        *(((1,) * owners, None, threshold, {}, "unproven") for owners, threshold in SEATINGS[:3]),
        *(
            ((1,) * 3, None, 1, changes, "unproven")
            for changes in ({"expansion": 3, "gamma": 16, "rounds": 3}, DISJOINT)
        ),
        *WITH_PROOFS,
    ],
)
def test_gradients_equal_the_reference(exact, monkeypatch, widths, seats, threshold, changes, inputs):
    task = kit.active(kit.gradients_task(widths, seats, threshold, **changes), inputs=inputs)
    assert inputs == "unproven" or set(task.proven) == {"o0", "o2", "o3"}
    tables, labels = kit.tables_of(task, 40), labels_for(task, 40)
    seen: dict[str, list] = {}
    drawn: set[bytes] = set()
    open_, settled = gradients._open, gradients._settled
    monkeypatch.setattr(
        gradients, "_open", lambda me, *rest: seen.setdefault(me.name, []).append(open_(me, *rest)) or seen[me.name][-1]
    )
    monkeypatch.setattr(gradients, "_settled", lambda *given: drawn.add(found := settled(*given)) or found)
    results = kit.execute(gradients, task, tables, labels)
    (secret,) = drawn
    whole = np.hstack(
        [np.rint(tables[o] * (task.gamma * task.scale)) for o in task.owners] + [np.full((40, 1), task.constant)]
    )
    descent = GradientDescent(task)
    for turn, batch in enumerate(gradients.iterate_batches(task, 40, secret)):
        rows, own = whole[batch].astype(np.int64), labels[batch].astype(np.int64)
        want = gradients.reference(rows, own, descent.integer_weights, task)
        assert all((opened[turn] == want).all() for opened in seen.values())
        descent.step(want)
    assert set(seen) == {*task.trust.committee}
    assert all(np.array_equal(result.weights, descent.learned.weights) for result in results.values())


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "inputs"),
    [
        *(((2,) * owners, None, threshold, "unproven") for owners, threshold in SEATINGS[:3]),
        *(((2, 1, 3, 0), seats, 1, "proven") for seats in (None, ("o2", "o1", COORDINATOR))),
    ],
)
def test_products_with_directions_equal_the_reference(exact, monkeypatch, widths, seats, threshold, inputs):
    monkeypatch.setattr(iteration, "_HELD", 1)
    task = kit.active(kit.directions_task(widths, seats, threshold, block_rows=7), inputs=inputs)
    assert inputs == "unproven" or task.proven["o0"].rows == 7
    tables = kit.tables_of(task, 30)
    results = kit.execute(power, task, tables)
    want = power.reference(kit.integers(task, tables), results[COORDINATOR].directions, task)
    for result in results.values():
        assert all(np.array_equal(*pair) for pair in zip(result.opened, want, strict=True))


# --- owners that break their bounds


def beyond(column, value):
    """An owner deals one number that is larger than its bound, in its first block."""

    def cheat(me):
        real, before = me.engine.deal, []

        def deal(values, **how):
            if not before:
                values = values.copy()
                values[0, column] = value
            before.append(values)
            return real(values, **how)

        me.engine.deal = deal

    return cheat


# --- cheats


def run_with(module, task, cheats, words=(), rows=40):
    """Some participants do something else: no honest one has a result, and one of these words is told to each."""
    labels = labels_for(task, rows) if hasattr(task, "classes") else None
    ended = run(task, kit.programs_of(module, task, kit.tables_of(task, rows), labels), cheats, vanishing=False)
    honest = {name: end for name, end in ended.items() if name not in cheats}
    assert all(isinstance(end, ColonnadeError) for end in honest.values()), honest
    assert not words or all(any(word in str(end) for word in words) for end in honest.values()), honest


def lies(whom, kind, field, change):
    """It tells one participant something else in messages of a kind."""

    def cheat(me):
        link = me.link(whom)
        real = link.send
        link.send = lambda sent, **told: real(sent, **told | ({field: change(told[field])} if sent == kind else {}))

    return cheat


@pytest.mark.parametrize(
    ("inputs", "owner", "column", "value"),
    [
        ("proven", "o0", 0, 2.0**40),
        ("proven", "o2", -1, 2.0**40),
        ("proven", "o2", 0, -(2.0**21)),
        ("proven", "o0", 0, 65.0),
        ("proven", "o2", -1, 2.0),
        ("proven", "o2", -1, -1.0),
    ],
)
def test_a_number_that_is_too_large_is_found(monkeypatch, exact, inputs, owner, column, value):
    """One that is far too large is found before the first round."""
    if abs(value) > 100:
        monkeypatch.setattr(gradients, "_open", lambda me, *rest: pytest.fail("a gradient was opened"))
    task = kit.active(kit.gradients_task(), inputs=inputs)
    run_with(gradients, task, {owner: beyond(column, value)}, ("bounds", "computed"))


def tell_one_seat_something_else(whom, at):
    """The opener tells one participant other numbers, in its so manieth opening, and goes on whatever it opens."""

    def cheat(me):
        real, count = me.engine.send_opened, []
        opening = me.engine.receive_opening

        def receive(shape, **how):
            try:
                return opening(shape, **how)
            except ShareError:
                return np.zeros(shape, dtype=np.int64)

        me.engine.receive_opening = receive

        def tell(values, to):
            count.append(0)
            if len(count) == at + 1:
                real(values, [name for name in to if name != whom])
                real(values + 1, [whom])
            else:
                real(values, to)

        me.engine.send_opened = tell

    return cheat


def open_something_else(me):
    """One seat adds a number to its share of every opening of a product."""
    real = me.engine.send_opening

    def send(shares, to):
        if shares.degree > me.engine.committee.threshold:
            shares = Shares(me.engine.system.reduce(shares.values + 1.0), shares.degree)
        real(shares, to)

    me.engine.send_opening = send


TOLD = ("were told different numbers",)


CHEATS = {
    **{
        f"another gradient {at}, {owners} owners": (
            gradients, lambda o=owners, t=t: kit.gradients_task((1,) * o, None, t), "o0",
            tell_one_seat_something_else("o1", at), TOLD,
        )
        for at, owners, t in [(0, 3, 1), (6, 3, 1), (0, 4, 1), (3, 5, 2)]
    },
    **{
        f"another product {at}, to {whom} of {owners}": (
            power, lambda o=owners: kit.directions_task((2,) * o), "o0",
            tell_one_seat_something_else(whom, at), ("were told", "computed"),
        )
        for at, whom, owners in [(0, "o1", 3), (2, "o1", 5), (2, COORDINATOR, 3)]
    },
    "computes another gradient": (gradients, kit.gradients_task, "o1", open_something_else, ("computed",)),
    "computes another product": (power, kit.directions_task, "o1", open_something_else, ("computed",)),
    "publishes other weights": (
        gradients, lambda: kit.gradients_task((1,) * 4, ("o0", "o1", "o2")), "o0",
        lies("o3", "weights", "weights", lambda weights: weights + 0.25), ("were told different results",),
    ),
    **{
        f"asks seats for different directions, {owners}": (
            power, lambda o=owners: kit.directions_task((2,) * o), "o0",
            lies("o1", "directions", "values", np.zeros_like), (),
        )
        for owners in (3, 4)
    },
    **{
        f"tells seats different batches, {owners}": (
            gradients, lambda o=owners: kit.gradients_task((1,) * o, **DISJOINT), "o0",
            lies("o1", "draw", "secret", lambda secret: secret[4:] + secret[:4]), TOLD,
        )
        for owners in (3, 4)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_whoever_computes_or_tells_something_else_is_found(name):
    """Owners without a seat, and the coordinator, compare what they were told with what every seat has."""
    module, make, who, cheat, words = CHEATS[name]
    run_with(module, kit.active(make()), {who: cheat}, words)


def one_cheats(patch: pytest.MonkeyPatch, programs: ModuleType, offset: int | None = None) -> list[kit.Array]:
    """The first owner that draws noise deals none or, with an offset, adds that; the list gets what the others drew."""
    home, name = kit.noise_of(programs)
    real, turns, drawn = getattr(home, name), count(), []

    def draw(*given: Any, **named: Any) -> kit.Array:
        noise = real(*given, **named)
        if next(turns) == 0:
            return np.zeros_like(noise) if offset is None else noise + offset
        drawn.append(noise)
        return noise

    patch.setattr(home, name, draw)
    return drawn


def too_large(task: Any) -> int:
    """A number between the largest that honest owners could open and half of the modulus, where it would wrap."""
    half = task.committee.system.modulus // 2
    assert half > 2 * task.bound
    return (half + task.bound) // 2


@pytest.mark.parametrize("owners", [2, 3])
def test_what_is_opened_has_the_noise_of_all_others(monkeypatch, owners):
    kit.nearest(monkeypatch)
    task = kit.moments_task((2,) * owners, noise=50 * owners)
    tables = kit.tables_of(task, 30)
    drawn = one_cheats(monkeypatch, moments)
    found = kit.execute(moments, task, tables)
    want = moments.reference(kit.integers(task, tables), task) + np.sum(drawn, axis=0)
    assert len(drawn) == owners - 1
    assert all(np.array_equal(one.opened, want) for one in found.values())


def codes_held(task: Any) -> dict[str, Any]:
    return {name: kit.Rows(values) for name, values in kit.codes_of(task, 20).items()}


def parts_held(task: Any) -> dict[str, scores.OwnScoreParts]:
    ids = tuple(f"p{k:06d}" for k in range(20))
    return {name: scores.OwnScoreParts(ids, np.zeros((20, task.classes))) for name in task.owners}


rows_held = partial(kit.tables_of, rows=40)
NOISY = {
    "moments": (moments, kit.moments_task, rows_held),
    "directions": (power, kit.directions_task, rows_held),
    "gradients": (gradients, kit.gradients_task, rows_held),
    "polynomial": (polynomial, lambda: kit.polynomial_task((1, 1, 1), ["o0.c0 * o1.c0"]), rows_held),
    "marginals": (marginals, kit.marginals_task, codes_held),
    "scores": (scores, lambda: kit.scores_task(3, noise=100), parts_held),
}


@pytest.mark.parametrize("scene", NOISY)
def test_a_number_that_no_honest_noise_could_give_is_refused_by_everybody(monkeypatch, scene):
    programs, make, hold = NOISY[scene]
    task = make()
    one_cheats(monkeypatch, programs, too_large(task))
    labels = np.zeros((40, 1)) if scene == "gradients" else None
    ended = kit.outcomes(task, kit.programs_of(programs, task, hold(task), labels))
    refused = [error for error in ended.values() if isinstance(error, ShareError)]
    assert refused
    assert all("larger than any honest one could be" in str(error) for error in refused)
    # Whoever opens nothing itself hears of it, and has no result either.
    assert all(
        isinstance(found, ShareError | PeerStopped | PeerLost) for found in ended.values() if found not in refused
    )


def test_what_was_opened_and_refused_is_counted(monkeypatch):
    rng, ids = np.random.default_rng(5), [f"p{k}" for k in range(60)]
    tables = {name: pa.table({"id": ids, name: rng.uniform(-1, 1, 60)}) for name in ("bank", "shop", "clinic")}
    people = Federation(
        [Party(name, table, schema=Schema({name: number(-1, 1)}), id="id") for name, table in tables.items()]
    )
    model = PCA(1, epsilon=1.0, rows_at_most=100)
    offset = too_large(model.plan(people.roster))
    with monkeypatch.context() as patch:
        one_cheats(patch, moments, offset)
        refused(ShareError, "SH005", model.fit, people)
    assert people.privacy_.computations == 1
    spent = people.privacy_.epsilon("analyst")
    assert spent == model.fit(people).privacy_.epsilon("analyst")
    assert people.privacy_.epsilon("analyst") > spent
