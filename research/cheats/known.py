"""Attacks that work where participants are trusted to follow the protocol, each with what it reads.

They are played against whole protocols, with honest or with checked seats. Where seats do not check each other the
attacker must succeed: otherwise that it is caught elsewhere would mean nothing. Those on moments are here; kinds have
those on their own protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.mpc.shamir import evaluate_at, lagrange_weights
from colonnade.privacy import Budget, Trust
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Role
from colonnade.protocols.rows import ColumnBlock
from research.cheats.deviation import Array, Dealt, Outcome, everybody, on_every_hand, perform, replace_method
from research.cheats.overdealing import Overdealing, cells_of_victims, overdealing_owner
from research.cheats.stage import Message, StagePlace

CHEATER, GAMMA = "mallory", 64
"""Who attacks, and what values are scaled by."""


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


def trust_of(owners: tuple[str, ...], changes: dict[str, Any]) -> Trust:
    """All owners with a seat, one of which may deviate; ``changes`` say how they check each other."""
    return Trust(owners, owners, 1, **changes)


def rows_within(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows within a ball of radius 1 that need no rounding."""
    whole = rng.integers(-GAMMA // 2, GAMMA // 2 + 1, (rows, columns)) / np.sqrt(columns)
    return np.asarray(np.trunc(whole) / GAMMA)


def score(guess: Array, truth: Array, outcome: Outcome) -> Attack:
    """How many cells were guessed exactly, and how well all of them."""
    exact = int((np.rint(guess) == truth).sum())
    spread = float(np.std(guess))
    correlation = float(np.corrcoef(guess.reshape(-1), truth.reshape(-1))[0, 1]) if spread > 0 else 0.0
    return Attack(exact, truth.size, correlation, outcome)


def beyond_bounds(people: int = 50_000, epsilon: float = 1.0, seed: int = 1, **security: Any) -> Attack:
    """An owner deals one cell of each victim many times beyond its bound: opened entries are the victims' rows.

    With its noise it takes away what these cells would show in the products of its own columns.
    """
    rng = np.random.default_rng(seed)
    victims = rng.choice(people, 8, replace=False)
    owners, widths = ("bank", "shop", CHEATER), (1, 1, len(victims))
    blocks = tuple(ColumnBlock(o, tuple(f"c{i}" for i in range(w)), 1.0) for o, w in zip(owners, widths, strict=True))
    task = Moments(blocks, trust_of(owners, security), GAMMA, GAMMA // 2, rows_at_most=people, noise=3)
    task = task.calibrate([Budget("analyst", epsilon, 1e-5)])
    held = {name: rows_within(rng, people, width) for name, width in zip(owners, widths, strict=True)}
    held[CHEATER][:] = 0.0
    factor = people // 8 * GAMMA

    owner = overdealing_owner(moments, Overdealing(cells_of_victims(victims.tolist(), factor)))
    programs = everybody(moments, task, held) | {CHEATER: lambda me: owner(me, Dealt(held[CHEATER]), task)}
    openings: list[dict[str, Residues]] = []
    outcome = perform(task, programs, CHEATER, lambda me, _: record(me, 0, task.entries, [], openings))
    truth = np.column_stack([np.rint(held[name][victims, 0] * GAMMA) for name in ("bank", "shop")])
    if not outcome.accepted:
        return Attack(0, truth.size, 0.0, outcome, opened=bool(openings))
    full = np.zeros((task.width, task.width))
    full[np.triu_indices(task.width)] = next(iter(outcome.accepted.values())).opened / task.weights
    return score(full[:2, 2:-1].T / factor, truth, outcome)


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
    blocks = tuple(ColumnBlock(o, tuple(f"c{i}" for i in range(w)), 1.0) for o, w in zip(owners, widths, strict=True))
    task = Moments(blocks, trust_of(owners, security), GAMMA, GAMMA // 2, rows_at_most=1000, noise=10**9)
    held = {name: rows_within(rng, rows, width) for name, width in zip(owners, widths, strict=True)}
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
        record(me, rows, task.entries, seen, openings)

    outcome = perform(task, everybody(moments, task, held), CHEATER, deviate)
    truth = np.hstack([np.rint(held[name] * GAMMA) for name in owners[:3]])
    if not openings:
        return Attack(0, truth.size, 0.0, outcome, opened=False)
    point = task.committee.point(target)
    last = len(owners)
    shares = {task.committee.point(seat): values for seat, values in openings[0].items()}
    base = tuple(range(1, last))
    off = evaluate_at(system, [shares[p] for p in base], base, last) - shares[last]
    upper = np.zeros((len(system.primes), task.width, task.width))
    upper[(slice(None), *np.triu_indices(task.width))] = system.reduce(off)
    inverse = [
        pow(task.copies * lagrange_weights(prime, base, last)[base.index(point)], -1, prime) for prime in system.primes
    ]
    across = upper[:, :6, 6 : 6 + rows].transpose(0, 2, 1)
    theirs = system.reduce(across * np.array(inverse, dtype=np.float64)[:, None, None])
    mine = np.concatenate(seen[:3], axis=2)
    guess = system.to_integers(evaluate_at(system, [theirs, mine], (point, last), 0), system.modulus).astype(np.float64)
    return score(guess, truth, outcome)


def record(me: Role, rows: int, entries: int, seen: list[Residues], openings: list[dict[str, Residues]]) -> None:
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

    def change(hand: ShareEngine) -> None:
        replace_method(hand, "receive", receive)
        replace_method(hand, "_gathered", gathered)

    on_every_hand(me.engine, change)


ATTACKS: dict[str, Callable[..., Attack]] = {
    "a cell beyond its bound, to read victims' rows from opened moments": beyond_bounds,
    "shares on no polynomial, to read cells from whether an opening fits": parity,
}
"""What is played on moments, by its name."""
