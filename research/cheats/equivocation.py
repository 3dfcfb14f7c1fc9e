"""An attack on gradients that works where participants are trusted to follow the protocol, with what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.errors import ShareError
from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.least_squares import GradientDescent
from colonnade.kinds.regression.task import GradientTask
from colonnade.mpc.residues import Residues
from colonnade.mpc.shamir import evaluate_at
from colonnade.protocols.roles import Role
from colonnade.protocols.rows import ColumnBlock
from research.cheats.deviation import Array, everybody, perform, replace_method
from research.cheats.known import CHEATER, GAMMA, Attack, record, rows_within, score, trust_of
from research.cheats.stage import StagePlace


def equivocation(seed: int = 1, victims: int = 16, **security: Any) -> Attack:
    """Who opens for the others tells them different numbers; the next opening shows a cell of a known crowd's victim.

    The attacker knows every row but one cell of one person, as differential privacy lets it. Seats that have different
    weights compute shares of no polynomial of degree two, and what is opened is a sum with known factors as large as
    the modulus, which noise does not hide.
    """
    rng, rows = np.random.default_rng(seed), 6
    owners = (CHEATER, "bank", "shop")
    blocks = tuple(ColumnBlock(owner, ("c0",), 1.0) for owner in owners)
    task = GradientTask(
        blocks, label_owner="shop", classes=1, trust=trust_of(owners, security), gamma=GAMMA, scale=1.0, expansion=1,
        weight_bound=4.0, learning_rate=2.0, sampling="disjoint", rows=rows, batch=rows, rounds=2, noise=10**9,
        rows_at_most=1000, block_rows=rows,
    )  # fmt: skip
    found: list[Attack] = []
    for _ in range(victims):
        held = {name: rows_within(rng, rows, 1) for name in owners}
        labels = rng.integers(0, 2, (rows, 1)).astype(float)
        found.append(_equivocate(task, held, labels))
    truth, guess = (np.array([getattr(one, name) for one in found]) for name in ("cells", "read"))
    return score(guess.astype(float), truth.astype(float), found[-1].outcome)


def _equivocate(task: GradientTask, held: dict[str, Array], labels: Array) -> Attack:
    """One run; ``read`` is the guess of the bank's first cell, ``cells`` the truth."""
    system = task.committee.system
    seen: list[Residues] = []
    openings: list[dict[str, Residues]] = []
    descents = {name: GradientDescent(task) for name in task.owners}

    def deviate(me: Role, place: StagePlace) -> None:
        record(me, len(labels), task.entries, seen, openings)

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

        replace_method(me.engine, "receive_opening", going_on)
        replace_method(me.engine, "send_opened", tell)
        replace_method(me.engine, "deal", deal)

    outcome = perform(task, everybody(gradients, task, held, labels), CHEATER, deviate)
    truth = int(np.rint(held["bank"][0, 0] * task.gamma))
    if len(openings) < 2:
        return Attack(0, truth, 0.0, outcome)
    whole = {name: np.rint(held[name] * task.gamma) for name in task.owners}
    whole["shop"] = np.hstack([whole["shop"], labels])
    mine = np.concatenate(seen[:3], axis=2)
    points = {task.committee.point(seat): values for seat, values in openings[1].items()}
    opened = evaluate_at(system, [points[1], points[2], points[3]], (1, 2, 3), 0)
    residuals = {}
    for guess in range(-task.gamma, task.gamma + 1):
        whole["bank"][0, 0] = guess
        secret = system.to_residues(np.hstack([whole[name] for name in task.owners]))
        seats = [evaluate_at(system, [secret, mine], (0, 1), point) for point in (1, 2, 3)]
        parts = [_seat_gradient(task, x, descents[name]) for x, name in zip(seats, task.owners, strict=True)]
        off = system.reduce(opened - evaluate_at(system, parts, (1, 2, 3), 0))
        size = system.to_integers(off, system.modulus).astype(object)
        residuals[guess] = max(abs(int(value)) for value in size)
    return Attack(min(residuals, key=lambda guess: residuals[guess]), truth, 1.0, outcome)


def _seat_gradient(task: GradientTask, kept: Residues, descent: GradientDescent) -> Residues:
    """What a seat with these shares and weights computes in a round (linear sigmoid), before masks and noise."""
    system, c = task.committee.system, 2 * task.gamma**2
    constant = np.broadcast_to(system.constant(task.constant, 3), (*kept.shape[:2], 1))
    x = np.concatenate([kept[:, :, :3], constant], axis=2)
    label = system.reduce(system.reduce(kept[:, :, 3:] * system.constant(-2 * c, 3)) + system.constant(c, 3))
    weight = system.to_residues(descent.integer_weights.T.astype(np.float64))
    score = system.reduce(label + system.inner(x.transpose(0, 2, 1), weight))
    return system.inner(x, score).reshape(len(kept), -1)


ATTACKS: dict[str, Callable[..., Attack]] = {
    "an opener that tells seats different numbers, to read cells from the next opening": equivocation,
}
"""What is played, by its name."""
