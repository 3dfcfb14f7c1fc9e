"""Sensitivity of a whole training run of exchanged scores and slopes: Theorem H (docs/theory/exchange-sensitivity.md).

The bounds are squared L2 sensitivities of all messages of one side, given everything it received. They hold when
every bound named in :class:`Exchange` is enforced by code, and the batches are public, disjoint and the same in
every epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.sensitivity.exact import checked_whole, rational

_GRID = 1 << 96


@dataclass(frozen=True)
class Exchange:
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
        return self._kick(self.slope, self.row_norm)

    @property
    def passive_kick(self) -> Fraction:
        """How far one step on the changed row itself moves a passive party's weights."""
        received = self.slope if self.received is None else self.received
        return self._kick(received, self.row_norm if self.changing is None else self.changing)

    @property
    def largest_score(self) -> Fraction:
        """The largest magnitude of a score before noise."""
        longest = Fraction(self.row_norm) * Fraction(self.weight_norm)
        return longest if self.score is None else min(longest, Fraction(self.score))

    def _kick(self, slope: float, norm: float) -> Fraction:
        return 2 * Fraction(self.rate) * Fraction(slope) * Fraction(norm) / self.batch_size

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


def _kicked(run: Exchange, drift: Fraction, side: _Side) -> Fraction:
    """The difference of weights after a step on the batch with the changed row."""
    return min(side.contraction * drift + side.kick, 2 * Fraction(run.weight_norm))


def _coasted(run: Exchange, drift: Fraction, contraction: Fraction, limit: Fraction) -> tuple[Fraction, Fraction]:
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


def _run(run: Exchange, side: _Side) -> Fraction:
    # The first batch is the worst place for the changed row: elsewhere the same numbers start later and end sooner.
    limit = side.ceiling / side.gain if side.gain else Fraction(0)
    spread = drift = Fraction(0)
    for _ in range(run.epochs):
        spread += (run.batch_size - 1) * min(drift, limit) ** 2
        coasted, drift = _coasted(run, _kicked(run, drift, side), side.contraction, limit)
        spread += run.batch_size * coasted
    return run.epochs * side.own**2 + side.gain**2 * spread


def _passive(run: Exchange) -> _Side:
    own = 2 * run.largest_score
    return _Side(run.passive_contraction, run.passive_kick, Fraction(run.row_norm), own, own)


def _active(run: Exchange, own: Fraction | None = None) -> _Side:
    gain, ceiling = Fraction(run.curvature) * Fraction(run.row_norm), 2 * Fraction(run.slope)
    return _Side(run.active_contraction, run.kick, gain, ceiling, ceiling if own is None else min(own, ceiling))


def passive_squared(run: Exchange) -> Fraction:
    """Squared sensitivity of everything a passive party sends, when one person's columns with it are replaced."""
    return _run(run, _passive(run))


def active_squared(run: Exchange, own: Fraction | None = None) -> Fraction:
    """Squared sensitivity of everything the active party sends, when one person's columns and label with it change.

    ``own`` bounds how far the changed row's slope moves; the general bound, twice the clip, is the default.
    """
    return _run(run, _active(run, own))


def weights_sensitivity(run: Exchange, *, active: bool = False) -> Fraction:
    """How far one side's final weights move, given all messages: what publishing them costs on top."""
    side, drift = _active(run) if active else _passive(run), Fraction(0)
    for _ in range(run.epochs):
        # A step that contracts forgets, so the last batch is then the worst place for the changed row.
        if side.contraction <= 1:
            drift = _kicked(run, _coasted(run, drift, side.contraction, drift)[1], side)
        else:
            drift = _coasted(run, _kicked(run, drift, side), side.contraction, drift)[1]
    return drift
