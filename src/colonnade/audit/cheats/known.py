"""Three attacks that work where participants are trusted to follow the protocol, each with what it reads.

They are played against whole protocols, with honest or with checked seats. Where seats do not check each other the
attacker must succeed: otherwise that it is caught elsewhere would mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from colonnade.audit.cheats.deviation import Array, Outcome, everybody, on_every_hand, perform, replace_method
from colonnade.audit.cheats.stage import Message, StagePlace
from colonnade.errors import ShareError
from colonnade.mpc import Hand, Shares
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.mpc.shamir import combine, weights
from colonnade.privacy import Budget, Trust
from colonnade.protocols.gradients import programs as gradients
from colonnade.protocols.gradients.descent import Descent
from colonnade.protocols.gradients.task import Gradients
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Role
from colonnade.protocols.rows import Block

CHEATER = "mallory"
_GAMMA = 64


@dataclass(frozen=True)
class Attack:
    """What an attack found out: how many cells of honest owners it read, of how many, and how well."""

    read: int
    cells: int
    correlation: float
    outcome: Outcome
    opened: bool = True
    """Whether the attacker saw shares of any result."""

    @property
    def succeeded(self) -> bool:
        """Whether nearly everything was read."""
        return self.correlation > 0.99


def _trust(owners: tuple[str, ...], changes: dict[str, Any]) -> Trust:
    return Trust(owners, owners, 1, **changes)


def _rows(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows within a ball of radius 1 that need no rounding."""
    whole = rng.integers(-_GAMMA // 2, _GAMMA // 2 + 1, (rows, columns)) / np.sqrt(columns)
    return np.asarray(np.trunc(whole) / _GAMMA)


def _score(guess: Array, truth: Array, outcome: Outcome) -> Attack:
    exact = int((np.rint(guess) == truth).sum())
    spread = float(np.std(guess))
    correlation = float(np.corrcoef(guess.reshape(-1), truth.reshape(-1))[0, 1]) if spread > 0 else 0.0
    return Attack(exact, truth.size, correlation, outcome)


def beyond_bounds(people: int = 50_000, epsilon: float = 1.0, seed: int = 1, **security: Any) -> Attack:
    """An owner deals one cell of each victim many times beyond its bound: opened entries are the victims' rows.

    Where seats check products, it deals products of its own columns that fit these cells; they must stay below what an
    opened number can be, so the cells are smaller there.
    """
    rng = np.random.default_rng(seed)
    victims = rng.choice(people, 8, replace=False)
    owners, widths = ("bank", "shop", CHEATER), (1, 1, len(victims))
    blocks = tuple(Block(o, tuple(f"c{i}" for i in range(w)), 1.0) for o, w in zip(owners, widths, strict=True))
    task = Moments(blocks, _trust(owners, security), _GAMMA, _GAMMA // 2, rows_at_most=people, noise=3)
    task = task.calibrated([Budget("analyst", epsilon, 1e-5)])
    held = {name: _rows(rng, people, width) for name, width in zip(owners, widths, strict=True)}
    held[CHEATER][:] = 0.0
    own = len(victims)
    factor = (isqrt(people) // 2 if task.trust.active else people // 8) * _GAMMA

    def deviate(me: Role, place: StagePlace) -> None:
        dealt, window = 0, np.zeros((0, own))

        def deal(real: Callable[..., Any]) -> Callable[..., Any]:
            def changed(values: Array, **how: Any) -> Any:
                nonlocal dealt, window
                if values.ndim == 2 and values.shape[1] == own:
                    values = np.array(values, dtype=np.float64)
                    for column, victim in enumerate(victims):
                        if dealt <= victim < dealt + len(values):
                            values[victim - dealt, column] = factor
                    dealt += len(values)
                    window = np.concatenate([window, values])
                elif task.trust.active and values.shape == (own * (own + 1) // 2 + own,):
                    gram = (window.T @ window).astype(np.int64)[np.triu_indices(own)]
                    values = np.concatenate([gram, task.constant * window.sum(axis=0).astype(np.int64)])
                    window = np.zeros((0, own))
                return real(values, **how)

            return changed

        on_every_hand(me.hand, lambda hand: replace_method(hand, "deal", deal))

    outcome = perform(task, everybody(moments, task, held), CHEATER, deviate)
    truth = np.column_stack([np.rint(held[name][victims, 0] * _GAMMA) for name in ("bank", "shop")])
    if not outcome.accepted:
        return Attack(0, truth.size, 0.0, outcome)
    full = np.zeros((task.width, task.width))
    full[np.triu_indices(task.width)] = next(iter(outcome.accepted.values())).opened / task.weights
    return _score(full[:2, 2 : 2 + own].T / factor, truth, outcome)


def _plus_one(words: Array, places: list[int], system: ResidueSystem) -> Array:
    """Residues as they are sent, unpacked, with 1 added at these places modulo every prime."""
    out = np.array(words)
    for row, prime in zip(out, system.primes, strict=True):
        row[places] = (row[places].astype(np.int64) + 1 + prime // 2) % prime - prime // 2
    return out


def parity(seed: int = 1, **security: Any) -> Attack:
    """An owner deals cells that lie on no polynomial: whether opened shares fit shows honest cells without noise."""
    rng, rows = np.random.default_rng(seed), 8
    owners = ("bank", "shop", "clinic", CHEATER)
    widths = (2, 2, 2, rows)
    blocks = tuple(Block(o, tuple(f"c{i}" for i in range(w)), 1.0) for o, w in zip(owners, widths, strict=True))
    task = Moments(blocks, _trust(owners, security), _GAMMA, _GAMMA // 2, rows_at_most=1000, noise=10**9)
    held = {name: _rows(rng, rows, width) for name, width in zip(owners, widths, strict=True)}
    system, target = task.committee.system, "shop"
    seen: list[Residues] = []
    openings: list[dict[str, Residues]] = []

    def deviate(me: Role, place: StagePlace) -> None:
        sent = 0

        def outgoing(peer: str, kind: str, fields: dict[str, Any]) -> tuple[Message, ...]:
            nonlocal sent
            if kind == "share" and peer == target and "words" in fields:
                sent += 1
                if sent == 1:
                    diagonal = [row * rows + row for row in range(rows)]
                    fields = {"words": _plus_one(fields["words"], diagonal, system)}
            return ((kind, fields),)

        place.outgoing = outgoing
        _record(me, rows, task.entries, seen, openings)

    outcome = perform(task, everybody(moments, task, held), CHEATER, deviate)
    truth = np.hstack([np.rint(held[name] * _GAMMA) for name in owners[:3]])
    if not openings:
        return Attack(0, truth.size, 0.0, outcome, opened=False)
    point = task.committee.point(target)
    last = len(owners)
    shares = {task.committee.point(seat): values for seat, values in openings[0].items()}
    base = tuple(range(1, last))
    off = combine(system, [shares[p] for p in base], base, last) - shares[last]
    upper = np.zeros((len(system.primes), task.width, task.width))
    upper[(slice(None), *np.triu_indices(task.width))] = system.reduce(off)
    inverse = [pow(task.copies * weights(prime, base, last)[base.index(point)], -1, prime) for prime in system.primes]
    across = upper[:, :6, 6 : 6 + rows].transpose(0, 2, 1)
    theirs = system.reduce(across * np.array(inverse, dtype=np.float64)[:, None, None])
    mine = np.concatenate(seen[:3], axis=2)
    guess = system.join(combine(system, [theirs, mine], (point, last), 0), system.modulus).astype(np.float64)
    return _score(guess, truth, outcome)


def _record(me: Role, rows: int, entries: int, seen: list[Residues], openings: list[dict[str, Residues]]) -> None:
    """Let a participant take down the shares of rows that it gets, and those of opened results of two inputs."""

    def receive(real: Callable[..., Shares]) -> Callable[..., Shares]:
        def changed(dealer: str, shape: Any, **how: Any) -> Shares:
            found = real(dealer, shape, **how)
            if len(shape) == 2 and shape[0] == rows:
                seen.append(found.values)
            return found

        return changed

    def gathered(real: Callable[..., dict[str, Residues]]) -> Callable[..., dict[str, Residues]]:
        def changed(shape: Any, degree: int, own: Shares | None) -> dict[str, Residues]:
            found = real(shape, degree, own)
            if tuple(shape) == (entries,) and degree == me.opening_degree:
                openings.append(found)
            return found

        return changed

    def change(hand: Hand) -> None:
        replace_method(hand, "receive", receive)
        replace_method(hand, "_gathered", gathered)

    on_every_hand(me.hand, change)


def equivocation(seed: int = 1, victims: int = 16, **security: Any) -> Attack:
    """Who opens for the others tells them different numbers; the next opening shows a cell of a known crowd's victim.

    The attacker knows every row but one cell of one person, as differential privacy lets it. Seats that have different
    weights compute shares of no polynomial of degree two, and what is opened is a sum with known factors as large as
    the modulus, which noise does not hide.
    """
    rng, rows = np.random.default_rng(seed), 6
    owners = (CHEATER, "bank", "shop")
    blocks = tuple(Block(owner, ("c0",), 1.0) for owner in owners)
    task = Gradients(
        blocks, label_owner="shop", classes=1, trust=_trust(owners, security), gamma=_GAMMA, scale=1.0, expansion=1,
        weight_bound=4.0, learning_rate=2.0, sampling="disjoint", rows=rows, batch=rows, rounds=2, noise=10**9,
        rows_at_most=1000, block_rows=rows,
    )  # fmt: skip
    found: list[Attack] = []
    for _ in range(victims):
        held = {name: _rows(rng, rows, 1) for name in owners}
        labels = rng.integers(0, 2, (rows, 1)).astype(float)
        found.append(_equivocate(task, held, labels))
    truth, guess = (np.array([getattr(one, name) for one in found]) for name in ("cells", "read"))
    return _score(guess.astype(float), truth.astype(float), found[-1].outcome)


def _equivocate(task: Gradients, held: dict[str, Array], labels: Array) -> Attack:
    """One run; ``read`` is the guess of the bank's first cell, ``cells`` the truth."""
    system = task.committee.system
    seen: list[Residues] = []
    openings: list[dict[str, Residues]] = []
    descents = {name: Descent(task) for name in task.owners}

    def deviate(me: Role, place: StagePlace) -> None:
        _record(me, len(labels), task.entries, seen, openings)

        def tell(real: Callable[..., None]) -> Callable[..., None]:
            def changed(values: Array, to: Any) -> None:
                for name in to:
                    told = values if name != "shop" else np.full_like(values, -(task.bound // 2))
                    if len(openings) == 1:
                        descents[name].step(told)
                    if name != me.name:
                        real(told, [name])

            return changed

        def deal(real: Callable[..., Any]) -> Callable[..., Any]:
            def changed(values: Array, **how: Any) -> Any:
                mine = real(values, **how)
                if values.shape == (len(labels), 1) and mine is not None:
                    seen.append(mine.values)
                return mine

            return changed

        def going_on(real: Callable[..., Array]) -> Callable[..., Array]:
            def changed(shape: Any, **how: Any) -> Array:
                try:
                    return real(shape, **how)
                except ShareError:
                    return np.zeros(tuple(shape), dtype=np.int64)

            return changed

        replace_method(me.hand, "receive_opening", going_on)
        replace_method(me.hand, "tell_opened", tell)
        replace_method(me.hand, "deal", deal)

    outcome = perform(task, everybody(gradients, task, held, labels), CHEATER, deviate)
    truth = int(np.rint(held["bank"][0, 0] * task.gamma))
    if len(openings) < 2:
        return Attack(0, truth, 0.0, outcome)
    whole = {name: np.rint(held[name] * task.gamma) for name in task.owners}
    whole["shop"] = np.hstack([whole["shop"], labels])
    mine = np.concatenate(seen[:3], axis=2)
    points = {task.committee.point(seat): values for seat, values in openings[1].items()}
    opened = combine(system, [points[1], points[2], points[3]], (1, 2, 3), 0)
    residuals = {}
    for guess in range(-task.gamma, task.gamma + 1):
        whole["bank"][0, 0] = guess
        secret = system.split(np.hstack([whole[name] for name in task.owners]))
        seats = [combine(system, [secret, mine], (0, 1), point) for point in (1, 2, 3)]
        parts = [_seat_gradient(task, x, descents[name]) for x, name in zip(seats, task.owners, strict=True)]
        off = system.reduce(opened - combine(system, parts, (1, 2, 3), 0))
        size = system.join(off, system.modulus).astype(object)
        residuals[guess] = max(abs(int(value)) for value in size)
    return Attack(min(residuals, key=lambda guess: residuals[guess]), truth, 1.0, outcome)


def _seat_gradient(task: Gradients, kept: Residues, descent: Descent) -> Residues:
    """What a seat with these shares and weights computes in a round (linear sigmoid), before masks and noise."""
    system, c = task.committee.system, 2 * task.gamma**2
    constant = np.broadcast_to(system.constant(task.constant, 3), (*kept.shape[:2], 1))
    x = np.concatenate([kept[:, :, :3], constant], axis=2)
    label = system.reduce(system.reduce(kept[:, :, 3:] * system.constant(-2 * c, 3)) + system.constant(c, 3))
    weight = system.split(descent.integer_weights.T.astype(np.float64))
    score = system.reduce(label + system.inner(x.transpose(0, 2, 1), weight))
    return system.inner(x, score).reshape(len(kept), -1)


ATTACKS: dict[str, Callable[..., Attack]] = {
    "a cell beyond its bound, to read victims' rows from opened moments": beyond_bounds,
    "shares on no polynomial, to read cells from whether an opening fits": parity,
    "an opener that tells seats different numbers, to read cells from the next opening": equivocation,
}
"""What is played, by its name."""
