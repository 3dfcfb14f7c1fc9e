"""How far one row moves the messages of an exchange: of alternating fits, and of gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.sensitivity import checked_whole, rational, root_up


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


_GRID = 1 << 96


@dataclass(frozen=True)
class GradientExchange:
    """A training run: ``batches`` of ``batch_size`` rows, visited in each of ``epochs``, with step size ``rate``.

    Rows are clipped to ``row_norm``, weights are projected to ``weight_norm``, slopes are clipped to ``slope`` before
    they are sent and to ``received`` (the same if not given) where they arrive, and scores to ``score`` if that is
    given. A slope changes by at most ``curvature`` times the change of its score. ``ridge`` is an L2 penalty in the
    gradient, ``prox_ridge`` the L2 part of an elastic net's proximal step; an L1 penalty needs nothing. A batch may
    hold fewer than ``batch_size`` rows, as long as its sums are divided by that number. Of a row, a part of norm
    ``changing`` (all of it, if not given) is a person's; the rest is the same for everybody.
    """

    epochs: int
    batches: int
    batch_size: int
    rate: float
    row_norm: float = 1.0
    weight_norm: float = 1.0
    slope: float = 1.0
    curvature: float = 0.25
    ridge: float = 0.0
    prox_ridge: float = 0.0
    received: float | None = None
    score: float | None = None
    changing: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batches", "batch_size"):
            checked_whole(getattr(self, name), f"{name} of an exchange", 1)
        for name in ("rate", "row_norm", "weight_norm", "slope", "curvature", "ridge", "prox_ridge"):
            rational(getattr(self, name), f"{name} of an exchange")
        for name in ("received", "score", "changing"):
            if getattr(self, name) is not None:
                rational(getattr(self, name), f"{name} of an exchange")

    @property
    def kick(self) -> Fraction:
        """How far one step on the changed row itself moves the active party's weights."""
        return 2 * Fraction(self.rate) * Fraction(self.slope) * Fraction(self.row_norm) / self.batch_size

    @property
    def passive_contraction(self) -> Fraction:
        """The factor of a passive party's step on a difference of weights; messages are fixed: only penalties act."""
        return abs(1 - Fraction(self.rate) * Fraction(self.ridge)) * self._prox

    @property
    def active_contraction(self) -> Fraction:
        """The factor of the active party's step, a gradient step of a smooth convex function, on such a difference."""
        rate, ridge = Fraction(self.rate), Fraction(self.ridge)
        steepest = ridge + Fraction(self.curvature) * Fraction(self.row_norm) ** 2
        return max(abs(1 - rate * ridge), abs(1 - rate * steepest)) * self._prox

    @property
    def _prox(self) -> Fraction:
        return 1 / (1 + Fraction(self.rate) * Fraction(self.prox_ridge))


@dataclass(frozen=True)
class _Side:
    """What Theorem H's table says of one side."""

    contraction: Fraction
    kick: Fraction
    gain: Fraction
    ceiling: Fraction
    own: Fraction


def _kicked(run: GradientExchange, drift: Fraction, side: _Side) -> Fraction:
    """The difference of weights after a step on the batch with the changed row."""
    return min(side.contraction * drift + side.kick, 2 * Fraction(run.weight_norm))


def _coasted(
    run: GradientExchange, drift: Fraction, contraction: Fraction, limit: Fraction
) -> tuple[Fraction, Fraction]:
    """An epoch's other batches: the sum of ``min(drift, limit)^2`` before each, and the drift after them.

    Powers of the contraction would make fractions long, so the drift is rounded up to a fine grid in each step.
    """
    steps = run.batches - 1
    if contraction == 1:
        return steps * min(drift, limit) ** 2, drift
    up, down = contraction.as_integer_ratio()
    now, most, widest = (math.ceil(value * _GRID) for value in (drift, limit, 2 * Fraction(run.weight_norm)))
    total = 0
    for _ in range(steps):
        total += min(now, most) ** 2
        now = min(-(-now * up // down), widest)
    return Fraction(total, _GRID**2), Fraction(now, _GRID)


def _run(run: GradientExchange, side: _Side) -> Fraction:
    # The first batch is the worst place for the changed row: elsewhere the same numbers start later and end sooner.
    limit = side.ceiling / side.gain if side.gain else Fraction(0)
    spread = drift = Fraction(0)
    for _ in range(run.epochs):
        spread += (run.batch_size - 1) * min(drift, limit) ** 2
        coasted, drift = _coasted(run, _kicked(run, drift, side), side.contraction, limit)
        spread += run.batch_size * coasted
    return run.epochs * side.own**2 + side.gain**2 * spread


def _passive(run: GradientExchange) -> _Side:
    norm = Fraction(run.row_norm)
    longest = norm * Fraction(run.weight_norm)
    own = 2 * (longest if run.score is None else min(longest, Fraction(run.score)))
    received = Fraction(run.slope if run.received is None else run.received)
    changing = norm if run.changing is None else Fraction(run.changing)
    kick = 2 * Fraction(run.rate) * received * changing / run.batch_size
    return _Side(run.passive_contraction, kick, norm, own, own)


def _active(run: GradientExchange, own: Fraction | None = None) -> _Side:
    gain, ceiling = Fraction(run.curvature) * Fraction(run.row_norm), 2 * Fraction(run.slope)
    return _Side(run.active_contraction, run.kick, gain, ceiling, ceiling if own is None else min(own, ceiling))


def passive_squared(run: GradientExchange) -> Fraction:
    """Squared sensitivity of everything a passive party sends, when one person's columns with it are replaced."""
    return _run(run, _passive(run))


def active_squared(run: GradientExchange, own: Fraction | None = None) -> Fraction:
    """Squared sensitivity of everything the active party sends, when one person's columns and label with it change.

    ``own`` bounds how far the changed row's slope moves; the general bound, twice the clip, is the default.
    """
    return _run(run, _active(run, own))


def weights_sensitivity(run: GradientExchange, *, active: bool = False) -> Fraction:
    """How far one side's final weights move, given all messages: what publishing them costs on top."""
    side, drift = _active(run) if active else _passive(run), Fraction(0)
    for _ in range(run.epochs):
        # A step that contracts forgets, so the last batch is then the worst place for the changed row.
        if side.contraction <= 1:
            drift = _kicked(run, _coasted(run, drift, side.contraction, drift)[1], side)
        else:
            drift = _coasted(run, _kicked(run, drift, side), side.contraction, drift)[1]
    return drift
