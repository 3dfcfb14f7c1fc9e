"""Sensitivity of fits that take turns over exchanged scores and slopes (docs/theory/alternating-fits.md).

In each round the active party minimises a penalised loss given what it received and sends slopes; each passive party
minimises a penalised quadratic of the slopes it received over a ball, and sends scores. All bounds hold given
everything that the side received, and for minimisers whose gradient is wrong by at most ``slack``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.sensitivity.exact import checked_whole, rational, root_up


@dataclass(frozen=True)
class PassiveFits:
    """A passive party's rounds: rows of norm ``row_norm``, slopes clipped to ``received``, weights in a ball.

    Scores are clipped to ``score`` before they are sent. ``curvature`` is that of the quadratic, ``ridge`` its penalty.
    Of a row, a part of norm ``changing`` (all of it, if not given) is a person's; the rest is the same for everybody.
    """

    rounds: int
    rows: int
    row_norm: float
    weight_norm: float
    received: float
    score: float
    curvature: float
    ridge: float
    slack: float = 0.0
    changing: float | None = None

    def __post_init__(self) -> None:
        checked_whole(self.rounds, "rounds of fits", 1)
        checked_whole(self.rows, "rows of fits", 1)
        for name in ("row_norm", "weight_norm", "received", "score", "slack"):
            rational(getattr(self, name), f"{name} of fits")
        if self.changing is not None:
            rational(self.changing, "changing part of fits")
        for name in ("curvature", "ridge"):
            if not rational(getattr(self, name), f"{name} of fits"):
                raise ValueError(f"fits that take turns need a positive {name} [VA122]")

    def pull(self, number: int) -> Fraction:
        """How far the changed row can move the gradient of round ``number``, counted from 0."""
        reach = Fraction(self.weight_norm) * (1 if number == 0 else 2)  # weights start at zero
        bent = Fraction(self.curvature) * Fraction(self.row_norm) ** 2 * reach
        turned = 2 * Fraction(self.row_norm if self.changing is None else self.changing) * Fraction(self.received)
        return (turned + bent) / self.rows + 2 * Fraction(self.slack)

    @property
    def spreads(self) -> list[Fraction]:
        """For each round a bound on the root of ``curvature x mean of squared score changes`` of the other rows.

        It solves b^2 = b b' + pull^2 / (4 ridge) where b' is that of the round before.
        """
        found: list[Fraction] = []
        before = Fraction(0)
        for number in range(self.rounds):
            before = (before + root_up(before**2 + self.pull(number) ** 2 / Fraction(self.ridge))) / 2
            found.append(before)
        return found


def passive_fits_squared(run: PassiveFits) -> Fraction:
    """Squared sensitivity of all scores a passive party sends."""
    norm, curvature = Fraction(run.row_norm), Fraction(run.curvature)
    own = 2 * min(Fraction(run.score), norm * Fraction(run.weight_norm))
    return run.rounds * own**2 + run.rows / curvature * sum((b**2 for b in run.spreads), Fraction(0))


def passive_fits_weights(run: PassiveFits) -> Fraction:
    """How far a passive party's final weights move."""
    before = run.spreads[-2] if run.rounds > 1 else Fraction(0)
    pull, ridge = run.pull(run.rounds - 1), Fraction(run.ridge)
    reach = (pull + root_up(pull**2 + ridge * before**2)) / (2 * ridge)
    return min(reach, 2 * Fraction(run.weight_norm))


@dataclass(frozen=True)
class ActiveFits:
    """The active party's rounds: rows, what it received beside them, and the constant have norm ``row_norm`` at most.

    ``own`` bounds how far the changed row's own slope moves, ``slope`` is the largest slope of the loss.
    """

    rounds: int
    rows: int
    row_norm: float
    slope: float
    curvature: float
    own: Fraction
    ridge: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        checked_whole(self.rounds, "rounds of fits", 1)
        checked_whole(self.rows, "rows of fits", 1)
        for name in ("row_norm", "slope", "curvature", "own", "slack"):
            rational(getattr(self, name), f"{name} of fits")
        if not rational(self.ridge, "ridge of fits"):
            raise ValueError("fits that take turns need a positive ridge [VA123]")

    @property
    def pull(self) -> Fraction:
        """How far the changed row can move the gradient."""
        return 2 * Fraction(self.slope) * Fraction(self.row_norm) / self.rows + 2 * Fraction(self.slack)


def active_fits_squared(run: ActiveFits) -> Fraction:
    """Squared sensitivity of all slopes the active party sends."""
    others = Fraction(run.curvature) * run.rows * run.pull**2 / (4 * Fraction(run.ridge))
    return run.rounds * (Fraction(run.own) ** 2 + others)


def active_fits_weights(run: ActiveFits) -> Fraction:
    """How far the weights of one fit move."""
    return run.pull / Fraction(run.ridge)
