"""Protocols with rounds, polynomials and scores where seats check each other: same numbers, and cheats are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PrivacyError, ShareError
from colonnade.kinds.pca.directions import programs as power
from colonnade.kinds.pca.directions.checks import OpenedProducts
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.integers import OwnColumns
from colonnade.kinds.prediction.scores import programs as scores
from colonnade.kinds.regression.gradients import programs as gradients
from colonnade.kinds.regression.gradients.checks import OpenedRounds
from colonnade.kinds.regression.gradients.descent import Descent
from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.mpc import Hand, Shares
from colonnade.mpc.accelerator.held import HeldRows
from colonnade.mpc.shamir import interpolate
from colonnade.protocols import proving
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.support import protocols as kit
from tests.support.errors import raises

from .test_lost_seats import SwitchedOff, run, vanish_before_opening

SEATINGS = [(3, 1), (4, 1), (5, 2), (7, 3)]


KEY = bytes(range(32))
DISJOINT = {"sampling": "disjoint"}


def active(task, inputs="unproven"):
    return replace(task, trust=replace(task.trust, security="active", inputs=inputs))


def labels_for(task, rows):
    return np.random.default_rng(2).integers(0, 2, (rows, task.classes)).astype(float)


# --- what is checked afterwards


def dealt(system, points, values, rng):
    """Shares of degree 1 of integers, for each point."""
    secret = system.split(np.asarray(values))
    slope = np.stack([rng.integers(0, prime, secret.shape[1:]) for prime in system.primes]).astype(float)
    return {point: system.reduce(secret + point * slope) for point in points}


def opened_vectors(system, checks):
    """Whether claims that seats would ask hold in the clear, for each prime and repetition."""
    by_point = {point: check.asked(system, Stream(KEY), 3) for point, check in checks.items()}
    parts = ({p: getattr(found, part) for p, found in by_point.items()} for part in ("left", "right", "product"))
    a, b, c = (interpolate(system, shares, 1) for shares in parts)
    return [
        [int(a[k, r].astype(object) @ b[k, r].astype(object) - int(c[k, r])) % prime == 0 for r in range(a.shape[1])]
        for k, prime in enumerate(system.primes)
    ]


@pytest.mark.parametrize("classes", [1, 3])
def test_right_gradients_of_many_rounds_are_one_inner_product_and_wrong_ones_are_not(classes):
    task, rng = active(kit.gradients_task(classes=classes, rounds=5)), np.random.default_rng(1)
    system, names = task.committee.system, task.trust.committee
    x = rng.integers(-60, 60, (40, task.width))
    rows = dealt(system, (1, 2, 3), np.hstack([x, np.zeros((40, classes), int)]), rng)
    kept = {point: shares.transpose(1, 0, 2).astype(np.int32) for point, shares in rows.items()}
    checks = {p: OpenedRounds(Hand(names[p - 1], task.committee, {}), task, kept[p]) for p in (1, 2, 3)}
    for _ in range(5):
        batch = np.flatnonzero(rng.random(40) < 0.4)
        score, noise = rng.integers(-99, 99, (len(batch), classes)), rng.integers(-9, 9, task.entries)
        scored, noisy = dealt(system, (1, 2, 3), score, rng), dealt(system, (1, 2, 3), noise, rng)
        values = (x[batch].T @ score).reshape(-1) + noise
        for point, check in checks.items():
            check.multiplied(batch, scored[point])
            check._sums.append(system.reduce(system.split(values) - noisy[point]))
    assert checks[1].asked(system, Stream(KEY), 3).left.shape == (len(system.primes), 3, 40)
    assert opened_vectors(system, checks) == [[True] * 3] * len(system.primes)
    for check in checks.values():
        check._sums[3][0, -1] += 1.0
    assert opened_vectors(system, checks) == [[False] * 3] + [[True] * 3] * (len(system.primes) - 1)


def test_right_products_of_many_rounds_are_one_inner_product_and_wrong_ones_are_not():
    task, rng = active(kit.directions_task()), np.random.default_rng(1)
    system = task.committee.system
    z = rng.integers(-60, 60, (30, task.width))
    rows = {point: shares.astype(np.int32) for point, shares in dealt(system, (1, 2, 3), z, rng).items()}
    checks = {p: OpenedProducts(Hand(task.trust.committee[p - 1], task.committee, {}), task) for p in (1, 2, 3)}
    for _ in range(task.rounds):
        asked = rng.integers(-500, 500, (task.width, task.directions)).astype(np.int32)
        noise = rng.integers(-9, 9, task.entries)
        noisy = dealt(system, (1, 2, 3), noise, rng)
        values = np.append((z.T @ (z @ asked.astype(int))).reshape(-1), 0) + noise
        for point, check in checks.items():
            check.opened(asked, values, Shares(noisy[point], 1))
            check._rows = HeldRows(system, [rows[point][:, :11], rows[point][:, 11:]], 7)
    assert opened_vectors(system, checks) == [[True] * 3] * len(system.primes)
    for check in checks.values():
        check._sums[1][-1, 0, 0] += 1.0
    assert opened_vectors(system, checks) == [[True] * 3] * (len(system.primes) - 1) + [[False] * 3]


WITH_PROOFS = [
    ((2, 0, 1, 1), seats, 1, {"classes": 2}, inputs)
    for seats in (None, ("o0", "o1", "o2"), ("o2", "o1", COORDINATOR))
    for inputs in ("covert", "proven")
]


# --- the same numbers as in the clear


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "changes", "inputs"),
    [
        *(((1,) * owners, None, threshold, {}, "unproven") for owners, threshold in SEATINGS),
        *(
            ((1,) * 3, None, 1, changes, "unproven")
            for changes in ({"expansion": 3, "gamma": 16, "rounds": 3}, DISJOINT)
        ),
        ((1,) * 5, None, 2, DISJOINT, "unproven"),
        *WITH_PROOFS,
    ],
)
def test_gradients_equal_the_reference(exact, monkeypatch, widths, seats, threshold, changes, inputs):
    task = active(kit.gradients_task(widths, seats, threshold, **changes), inputs)
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
    descent = Descent(task)
    for number, batch in enumerate(gradients.batches(task, 40, secret)):
        rows, own = whole[batch].astype(np.int64), labels[batch].astype(np.int64)
        want = gradients.reference(rows, own, descent.integer_weights, task)
        assert all((opened[number] == want).all() for opened in seen.values())
        descent.step(want)
    assert set(seen) == {*task.trust.committee}
    assert all(np.array_equal(result.weights, descent.learned.weights) for result in results.values())


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "inputs"),
    [
        *(((2,) * owners, None, threshold, "unproven") for owners, threshold in SEATINGS),
        *(((2, 1, 3, 0), seats, 1, "proven") for seats in (None, ("o2", "o1", COORDINATOR))),
    ],
)
def test_products_with_directions_equal_the_reference(exact, monkeypatch, widths, seats, threshold, inputs):
    monkeypatch.setattr(proving, "_HELD", 1)
    task = active(kit.directions_task(widths, seats, threshold, block_rows=7), inputs)
    assert inputs == "unproven" or task.proven["o0"].rows == 7
    tables = kit.tables_of(task, 30)
    results = kit.execute(power, task, tables)
    want = power.reference(kit.integers(task, tables), results[COORDINATOR].asked, task)
    for result in results.values():
        assert all(np.array_equal(*pair) for pair in zip(result.opened, want, strict=True))


@pytest.mark.parametrize(("owners", "threshold"), SEATINGS)
def test_polynomials_equal_the_reference(exact, owners, threshold):
    names = [f"o{i}.c0" for i in range(owners)]
    texts = [" * ".join(names) + " - 2 * o0.c0^2 + 1/3", "o0.c0 * o1.c0 + o1.c0 * o2.c0", "o2.c0"]
    task = active(kit.polynomial_task((1,) * owners, texts, None, threshold, block_rows=7, gamma=8))
    tables = kit.tables_of(task, 20)
    results = kit.execute(polynomial, task, tables)
    whole = {name: OwnColumns(task, name).quantise(values, Stream(KEY)) for name, values in tables.items()}
    assert all(result.opened.tolist() == polynomial.reference(whole, task) for result in results.values())


@pytest.mark.parametrize(("owners", "threshold"), SEATINGS)
def test_scores_equal_the_reference(owners, threshold):
    task, rng = active(kit.scores_task(owners, None, threshold)), np.random.default_rng(3)
    values = {name: rng.uniform(-1, 1, (9, task.classes)) for name in task.owners}
    parts = {name: scores.Parts([f"p{i}" for i in range(9)], own) for name, own in values.items()}
    found = kit.execute(scores, task, parts)["o0"]
    assert np.array_equal(found.others, scores.reference(values, task))


# --- seats that are lost


@pytest.mark.parametrize("opening", [1, 4, 9, 12])
def test_rounds_go_on_without_a_spare_seat(exact, monkeypatch, opening):
    """Wherever it is lost: in checks or between them."""
    task = active(kit.gradients_task((1,) * 4, sampling="disjoint", batch=20, rounds=6))
    monkeypatch.setattr(Gradients, "rounds_checked", 2)
    monkeypatch.setattr(gradients, "new_key", lambda: KEY)
    programs = kit.programs_of(gradients, task, kit.tables_of(task, 40), labels_for(task, 40))
    whole = kit.results(task, programs)["o0"].weights
    ended = run(task, programs, {"o3": lambda me: vanish_before_opening(me, opening)})
    assert isinstance(ended["o3"], SwitchedOff)
    assert all(np.array_equal(ended[name].result.weights, whole) for name in ended if name != "o3")
    assert ended["o0"].lost == ("o3",)


# --- owners that break their bounds


def beyond(column, value):
    """An owner deals one number that is larger than its bound, in its first block."""

    def cheat(me):
        real, before = me.hand.deal, []

        def deal(values, **how):
            if not before:
                values = values.copy()
                values[0, column] = value
            before.append(values)
            return real(values, **how)

        me.hand.deal = deal

    return cheat


# --- cheats


def run_with(module, task, cheats, words=(), rows=40):
    """Some participants do something else: no honest one has a result, and one of these words is told to each."""
    labels = labels_for(task, rows) if hasattr(task, "classes") else None
    programs = kit.programs_of(module, task, kit.tables_of(task, rows), labels)

    def cheating(name):
        def program(me):
            cheats[name](me)
            return programs[name](me)

        return program

    ended = kit.outcomes(task, programs | {name: cheating(name) for name in cheats})
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
        *((inputs, "o0", 0, 2.0**40) for inputs in ("covert", "proven")),
        *((inputs, "o2", -1, 2.0**40) for inputs in ("covert", "proven")),
        *((inputs, "o2", 0, -(2.0**21)) for inputs in ("covert", "proven")),
        ("proven", "o0", 0, 65.0),
        ("proven", "o2", -1, 2.0),
        ("proven", "o2", -1, -1.0),
    ],
)
def test_a_number_that_is_too_large_is_found(monkeypatch, exact, inputs, owner, column, value):
    """One that is far too large is found before the first round."""
    if abs(value) > 100:
        monkeypatch.setattr(gradients, "_open", lambda me, *rest: pytest.fail("a gradient was opened"))
    task = active(kit.gradients_task(), inputs)
    run_with(gradients, task, {owner: beyond(column, value)}, ("bounds", "computed"))


def tell_one_seat_something_else(whom, at):
    """The opener tells one participant other numbers, in its so manieth opening, and goes on whatever it opens."""

    def cheat(me):
        real, count = me.hand.tell_opened, []
        opening = me.hand.receive_opening

        def receive(shape, **how):
            try:
                return opening(shape, **how)
            except ShareError:
                return np.zeros(shape, dtype=np.int64)

        me.hand.receive_opening = receive

        def tell(values, to):
            count.append(0)
            if len(count) == at + 1:
                real(values, [name for name in to if name != whom])
                real(values + 1, [whom])
            else:
                real(values, to)

        me.hand.tell_opened = tell

    return cheat


def open_something_else(me):
    """One seat adds a number to its share of every opening of a product."""
    real = me.hand.send_opening

    def send(shares, to):
        if shares.degree > me.hand.committee.threshold:
            shares = Shares(me.hand.system.reduce(shares.values + 1.0), shares.degree)
        real(shares, to)

    me.hand.send_opening = send


TOLD = ("were told different numbers",)


CHEATS = {
    **{
        f"another gradient {at}, {owners} owners": (
            gradients, lambda o=owners, t=t: kit.gradients_task((1,) * o, None, t), "o0",
            tell_one_seat_something_else("o1", at), TOLD,
        )
        for at, owners, t in [(0, 3, 1), (3, 3, 1), (6, 3, 1), (0, 4, 1), (3, 5, 2), (6, 7, 3)]
    },
    **{
        f"another product {at}, to {whom} of {owners}": (
            power, lambda o=owners: kit.directions_task((2,) * o), "o0",
            tell_one_seat_something_else(whom, at), ("were told", "computed"),
        )
        for at, whom, owners in [(0, "o1", 3), (2, "o1", 5), (0, COORDINATOR, 5), (2, COORDINATOR, 3)]
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
        for owners in (3, 4, 7)
    },
    **{
        f"tells seats different batches, {owners}": (
            gradients, lambda o=owners: kit.gradients_task((1,) * o, **DISJOINT), "o0",
            lies("o1", "draw", "secret", lambda secret: secret[4:] + secret[:4]), TOLD,
        )
        for owners in (3, 4, 7)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_whoever_computes_or_tells_something_else_is_found(name):
    """Owners without a seat, and the coordinator, compare what they were told with what every seat has."""
    module, make, who, cheat, words = CHEATS[name]
    run_with(module, active(make()), {who: cheat}, words)


@pytest.mark.parametrize("expansion", [1, 3])
@pytest.mark.parametrize("rate", [2.0, 1e9])
def test_whatever_is_opened_weights_stay_within_what_the_sensitivity_counts_on(expansion, rate):
    task = kit.gradients_task(expansion=expansion, gamma=16, learning_rate=rate, classes=2)
    rng = np.random.default_rng(5)
    for most in (task.bound, 2**62 - 1, 2**63 - 1):
        descent = Descent(task)
        for _ in range(20):
            forced = [
                int(sign) * (most >> int(shift))
                for sign, shift in zip(
                    rng.integers(-1, 2, task.entries), rng.integers(0, 62, task.entries), strict=True
                )
            ]
            descent.step(np.array(forced, dtype=object if most >= 2**63 else np.int64))
            try:
                whole = descent.integer_weights.astype(object)
            except PrivacyError:
                break  # nothing more is revealed
            assert all(int(row @ row) <= task.weights_squared for row in whole)


def test_weights_that_are_no_numbers_reveal_nothing():
    descent = Descent(kit.gradients_task())
    for value in (np.nan, np.inf):
        descent.weights[0, 0] = value
        with raises(PrivacyError, "PR114"):
            descent.integer_weights  # noqa: B018


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_opened_directions_stay_within_reach_or_the_search_ends(seed):
    task, rng = kit.directions_task(rounds=3), np.random.default_rng(seed)
    asked, opened = power.AskedDirections(task), []
    for _ in range(task.rounds):
        try:
            asked.add(power._wanted(task, asked, opened, Stream(KEY)))
        except ColonnadeError:
            break
        columns = np.hstack(asked.rounds).astype(object)
        assert max(np.abs(columns.T @ columns).sum(axis=1)) <= task.reach**2
        opened.append(rng.integers(-(2**62), 2**62, task.entries) >> rng.integers(0, 62, task.entries))
