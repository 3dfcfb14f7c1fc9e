"""Epochs, clips and penalties of an exchange, chosen from public numbers alone, so the choice costs no privacy.

Rows, columns, bounds and the budget decide how much noise messages will have. The size of the signal is private, so it
is guessed: columns fill a part of their bounds, a few of them much more than others, and the other parties' columns add
a score of a typical variance to the label. Under that guess the error of the joint score is a short formula, and the
parameters with the least error are taken. A wrong guess costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.glm.exchange.bounds import RECEIVED_CLIP, Side
from colonnade.kinds.glm.exchange.last_fit import FILLED, clipped_normal
from colonnade.kinds.glm.exchange.task import RELEASE
from colonnade.kinds.glm.losses.labels import Family
from colonnade.protocols.rows import Block

Vector = NDArray[np.float64]
_EPOCHS = (1, 2, 3, 4)
_CLIPS = (0.5, 1.0, 2.0, 3.0)  # in deviations of what is received
_RIDGES = tuple(10 ** (k / 8 - 4) for k in range(45))
_SCORES = 3.0  # the clip of scores, in deviations of scores
_MOST_STEPS = 2000  # of a simulated descent
_DESCENTS = (2, 3, 5, 10, 20, 40)  # epochs
_BALLS = (0.5, 1.0, 2.0, 4.0, 8.0)  # scores of the longest row, in typical deviations
_NOISES = 3.0  # deviations of the noise on slopes
_OWN_PART = 8  # the active party's fit may add one such part of the cost of its own slope
_DIGITS = 3


@dataclass(frozen=True)
class Suggestion:
    """Parameters of an alternating exchange, and what they are expected to give under the guess.

    ``agreement`` is the squared correlation of a party's kept scores with what its columns really add.
    """

    epochs: int
    message_clip: float
    sides: tuple[Side, ...]
    release_ridge: float
    agreement: dict[str, float]
    error: float


@dataclass(frozen=True)
class _Setting:
    """What is known before the parameters are chosen."""

    family: Family
    rows: int
    multiplier: float
    slope_noise: float  # deviation on a slope if there is one epoch
    release: bool

    def noise(self, epochs: int) -> float:
        return self.slope_noise * math.sqrt(epochs)


def suggest(
    blocks: Sequence[Block],
    active: str,
    family: Family,
    rows: int,
    multiplier: float,
    *,
    intercept: float = 1.0,
    epochs: int | None = None,
    message_clip: float | None = None,
    release: bool = False,
) -> Suggestion:
    """The parameters of least expected error, for noise of ``multiplier`` times the sensitivity."""
    passives = [block for block in blocks if block.owner != active]
    held = next(block for block in blocks if block.owner == active)
    norm = math.sqrt(held.clip**2 + intercept**2 + len(passives) * RECEIVED_CLIP**2)
    own = float(family.own)
    pull = 2 * family.slope_bound * norm / rows
    own_ridge = rounded(_OWN_PART * family.curvature * rows * pull**2 / (4 * own**2))
    setting = _Setting(family, rows, multiplier, multiplier * own * math.sqrt(1 + 1 / _OWN_PART), release)
    best: tuple[float, int, float, list[_Choice]] | None = None
    for count in _EPOCHS if epochs is None else (epochs,):
        for clip in _clips(setting, count, message_clip):
            found = [_best(setting, block, intercept, count, clip) for block in passives]
            error = sum(choice.error for choice in found)
            if best is None or error < best[0] * (1 - 1e-6):
                best = (error, count, clip, found)
    assert best is not None  # noqa: S101 - for the type checker; there is at least one passive party
    error, count, clip, found = best
    chosen = dict(zip((block.owner for block in passives), found, strict=True))
    mine = Side(active, own_ridge, 1.0, family.slope_bound)
    return Suggestion(
        epochs=count,
        message_clip=clip,
        sides=tuple(mine if b.owner == active else chosen[b.owner].side(b.owner) for b in blocks),
        release_ridge=rounded(max(own_ridge, 10 * multiplier * pull * norm)),
        agreement={owner: choice.agreement for owner, choice in chosen.items()},
        error=error,
    )


def _clips(setting: _Setting, epochs: int, given: float | None) -> Iterator[float]:
    if given is not None:
        yield given
        return
    received = math.hypot(setting.noise(epochs), setting.family.typical_spread)
    yield from (rounded(clip * received) for clip in _CLIPS)


@dataclass(frozen=True)
class _Choice:
    """One passive party's parameters, and their expected result under the guess."""

    ridge: float
    weight_bound: float
    score_clip: float
    factor: float
    agreement: float
    error: float

    def side(self, owner: str) -> Side:
        return Side(owner, *(rounded(v) for v in (self.ridge, self.weight_bound, self.score_clip, self.factor)))


def _best(setting: _Setting, block: Block, intercept: float, epochs: int, clip: float) -> _Choice:
    return min(
        (_choice(setting, block, intercept, epochs, clip, ridge) for ridge in _RIDGES), key=lambda each: each.error
    )


def _choice(setting: _Setting, block: Block, intercept: float, epochs: int, clip: float, ridge: float) -> _Choice:
    """The scores a party would send, direction by direction: how much of them is signal, how much noise."""
    family, rows = setting.family, setting.rows
    sizes, truth = _directions(len(block.columns) + 1, block.clip**2, family.typical_variance)
    passed, blurred = clipped_normal(clip, math.hypot(setting.noise(epochs), family.typical_spread))
    bent = family.curvature * sizes + ridge
    signal, noise, seen = np.zeros_like(sizes), np.zeros_like(sizes), 0.0
    norm = math.hypot(block.clip, intercept)
    score = heard = moved = spread = total = 0.0
    for number in range(epochs):
        still = (family.curvature - seen * passed * family.typical_curvature) * sizes / bent
        signal = still * signal + passed * family.typical_curvature * sizes / bent
        noise = still**2 * noise + blurred**2 * sizes / (rows * bent**2)
        score = math.sqrt(float((signal**2 * truth + noise * sizes).sum()))
        ball = 2 * math.sqrt(float((signal**2 * truth / sizes + noise).sum()))
        pull = (2 * block.clip * clip + family.curvature * norm**2 * ball * (1 if number == 0 else 2)) / rows
        # Nearly as in the theorem: how far a changed row moves the weights, and the scores of all other rows.
        moved = (pull + math.sqrt(pull**2 + ridge * spread**2)) / (2 * ridge)
        spread = (spread + math.sqrt(spread**2 + pull**2 / ridge)) / 2
        total += rows / family.curvature * spread**2
        heard = setting.multiplier * math.sqrt(epochs * ((2 * _SCORES * score) ** 2 + total / (number + 1)))
        seen = score**2 / (score**2 + heard**2)
    along = float((signal * truth).sum())
    published = (math.sqrt(RELEASE) * setting.multiplier * moved) ** 2 * float(sizes.sum()) if setting.release else 0.0
    agreement = along**2 / (family.typical_variance * (score**2 + published))
    factor = along / score**2
    evidence = math.sqrt(family.typical_curvature * rows) * factor * score**2 / math.hypot(heard, score)
    lost = 1 - agreement + agreement / (1 + evidence**2)
    return _Choice(ridge, ball, _SCORES * score, factor, agreement, family.typical_variance * lost)


@dataclass(frozen=True)
class Descent:
    """What is known of a gradient descent before epochs and balls are chosen."""

    family: Family
    rows: int
    batch: int
    rate: float
    ridge: float
    multiplier: float
    active_norm: float
    clip: float | None = None
    """What received slopes are clipped to, if that is given."""

    def slope_noise(self, epochs: int) -> float:
        """About the deviation of the noise on a slope."""
        gain, slope = self.family.curvature * self.active_norm, self.family.slope_bound
        kick = 2 * self.rate * slope * self.active_norm / self.batch
        return self.multiplier * math.sqrt(epochs * float(self.family.own) ** 2 + self._spread(epochs, gain * kick))

    def score_noise(self, epochs: int, block: Block, norm: float, ball: float, clip: float) -> float:
        """About the deviation of the noise on a score."""
        kick = 2 * self.rate * clip * block.clip / self.batch
        return self.multiplier * math.sqrt(epochs * (2 * norm * ball) ** 2 + self._spread(epochs, norm * kick))

    def _spread(self, e: int, moved: float) -> float:
        """Theorem H without penalties and caps: what one row adds through everyone else's messages."""
        b, r = self.batch, -(-self.rows // self.batch)
        return moved**2 * ((b - 1) * (e - 1) * e * (2 * e - 1) + (r - 1) * b * e * (e + 1) * (2 * e + 1)) / 6


def suggest_descent(
    run: Descent, passives: Sequence[Block], *, intercept: float = 1.0, epochs: int | None = None
) -> tuple[int, dict[str, float]]:
    """Epochs, and a ball for each party's weights, of least expected error."""
    best: tuple[float, int, dict[str, float]] | None = None
    for count in _DESCENTS if epochs is None else (epochs,):
        found = {}
        for block in passives:
            norm = math.hypot(block.clip, intercept)
            balls = [ball * math.sqrt(run.family.typical_variance) / norm for ball in _BALLS]
            found[block.owner] = min((_descended(run, block, norm, ball, count).error, ball) for ball in balls)
        error = sum(each for each, _ in found.values())
        if best is None or error < best[0] * (1 - 1e-6):
            best = (error, count, {owner: rounded(ball) for owner, (_, ball) in found.items()})
    assert best is not None  # noqa: S101 - for the type checker; there is at least one choice
    return best[1], best[2]


def descent_clip(run: Descent, epochs: int) -> float:
    """The clip of received slopes: the given one, or one that keeps most slopes with their noise unclipped."""
    if run.clip is not None:
        return run.clip
    return rounded(math.hypot(run.family.slope_bound, _NOISES * run.slope_noise(epochs)))


def descent_factor(run: Descent, block: Block, ball: float, epochs: int, *, intercept: float = 1.0) -> float:
    """The factor that the active party is expected to give the scores of a party that takes gradient steps.

    If the noise is much larger than the slopes, the weights are a random walk, and the factor is near zero.
    """
    return rounded(_descended(run, block, math.hypot(block.clip, intercept), ball, epochs).factor)


@lru_cache(maxsize=64)
def _walked(run: Descent, block: Block, epochs: int) -> tuple[float, float, float]:
    """The result of gradient steps: the deviation of scores, the norm of weights, and the signal in them."""
    family, clip = run.family, descent_clip(run, epochs)
    sizes, truth = _directions(len(block.columns) + 1, block.clip**2, family.typical_variance)
    passed, blurred = clipped_normal(clip, math.hypot(run.slope_noise(epochs), family.typical_spread))
    signal, noise = np.zeros_like(sizes), np.zeros_like(sizes)
    for _ in range(min(epochs * -(-run.rows // run.batch), _MOST_STEPS)):
        kept = 1 - run.rate * (run.ridge + passed * family.typical_curvature * sizes)
        signal = np.clip(kept, 0.0, 1.0) * signal + run.rate * passed * family.typical_curvature * sizes
        noise = (1 - min(1.0, run.rate * run.ridge)) ** 2 * noise + (run.rate * blurred) ** 2 * sizes / run.batch
    score = math.sqrt(float((signal**2 * truth + noise * sizes).sum()))
    norm = math.sqrt(float((signal**2 * truth / sizes + noise).sum()))
    return score, norm, float((signal * truth).sum())


def _descended(run: Descent, block: Block, norm: float, ball: float, epochs: int) -> _Choice:
    """What the active party can learn from scores after such steps, with weights kept within a ball."""
    family = run.family
    score, walked, along = _walked(run, block, epochs)
    if not score:  # the steps are too short to change anything
        return _Choice(run.ridge, ball, norm * ball, 0.0, 0.0, family.typical_variance)
    shrunk = min(1.0, ball / walked)
    agreement = along**2 / (family.typical_variance * score**2)
    factor, sent = along / (shrunk * score**2), shrunk * score
    heard = run.score_noise(epochs, block, norm, ball, descent_clip(run, epochs))
    evidence = math.sqrt(family.typical_curvature * run.rows) * factor * sent**2 / math.hypot(heard, sent)
    lost = 1 - agreement + agreement / (1 + evidence**2)
    return _Choice(run.ridge, ball, norm * ball, factor, agreement, family.typical_variance * lost)


def _directions(columns: int, square: float, variance: float) -> tuple[Vector, Vector]:
    """Mean squares of a party's columns along their main directions, and the variance of the score due to each."""
    falling = 1 / np.arange(1.0, columns + 1)
    return falling * (FILLED * square / falling.sum()), np.full(columns, variance / columns)


def rounded(value: float) -> float:
    """The value with few digits, so that machines whose last bits differ get the same number."""
    return float(f"{value:.{_DIGITS}g}")
