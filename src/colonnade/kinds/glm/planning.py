"""The public task of an exchange: the parameters as checked, and those that follow from public numbers and a guess.

Rows, columns, bounds and the budget decide how much noise messages will have. The size of the signal is private, so it
is guessed; a wrong guess costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.glm.losses import Family, Vector
from colonnade.kinds.glm.sides import FILLED, clipped_normal
from colonnade.kinds.glm.task import RECEIVED_CLIP, RELEASE, Exchange, ExchangeSide, Method
from colonnade.models.planner import check_positive, check_whole, is_number, one_of
from colonnade.privacy import Budget, Trust
from colonnade.privacy.sensitivity import float_up
from colonnade.protocols.rows import ColumnBlock

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
INTERCEPT = 1.0
STRENGTH = 1e-3
_BATCH = 3200
_REACH = 8.0  # the largest score of the active party's longest row, in typical deviations
_COUNTS = ("epochs", "batch")
_POSITIVE = ("strength", "learning_rate", "weight_bound", "score_clip", "message_clip")


@dataclass(frozen=True)
class GLMSetting:
    """What is public: who holds which columns, the number of people, and the loss."""

    blocks: tuple[ColumnBlock, ...]
    active: str
    family: Family
    trust: Trust
    rows: int

    @property
    def passives(self) -> list[ColumnBlock]:
        """The columns of all parties but the one with the label."""
        return [block for block in self.blocks if block.owner != self.active]

    def norm(self, owner: str) -> float:
        """The norm of an owner's longest row, with the constant."""
        return math.hypot(next(block.clip for block in self.blocks if block.owner == owner), INTERCEPT)


@dataclass(frozen=True)
class ParameterSuggestion:
    """Parameters of an alternating exchange, and what they are expected to give under the guess.

    ``agreement`` is the squared correlation of a party's kept scores with what its columns really add.
    """

    epochs: int
    message_clip: float
    sides: tuple[ExchangeSide, ...]
    release_ridge: float
    agreement: dict[str, float]


def suggest(
    setting: GLMSetting,
    multiplier: float,
    *,
    epochs: int | None = None,
    message_clip: float | None = None,
    release: bool = False,
) -> ParameterSuggestion:
    """The parameters of least expected error, for noise of ``multiplier`` times the sensitivity."""
    family, rows, passives, active = setting.family, setting.rows, setting.passives, setting.active
    held = next(block for block in setting.blocks if block.owner == active)
    norm = math.sqrt(held.clip**2 + INTERCEPT**2 + len(passives) * RECEIVED_CLIP**2)
    own = float(family.own)
    pull = 2 * family.slope_bound * norm / rows
    own_ridge = round_digits(_OWN_PART * family.curvature * rows * pull**2 / (4 * own**2))
    published = multiplier if release else 0.0
    least = math.inf
    best: tuple[int, float, list[tuple[float, float, ExchangeSide]]] | None = None
    for count in _EPOCHS if epochs is None else (epochs,):
        slope_noise = multiplier * own * math.sqrt(1 + 1 / _OWN_PART) * math.sqrt(count)
        received = math.hypot(slope_noise, family.typical_spread)
        clips = [round_digits(clip * received) for clip in _CLIPS] if message_clip is None else [message_clip]
        for clip in clips:
            fit = partial(_expected, setting, multiplier, published, count, clip, received)
            found = [min((fit(block, ridge) for ridge in _RIDGES), key=lambda each: each[0]) for block in passives]
            error = sum(each for each, *_ in found)
            if best is None or error < least * (1 - 1e-6):
                least, best = error, (count, clip, found)
    assert best is not None  # noqa: S101 - for the type checker; there is at least one passive party
    count, clip, found = best
    mine = ExchangeSide(active, own_ridge, 1.0, family.slope_bound)
    sides = {active: mine} | {side.owner: side for _, _, side in found}
    return ParameterSuggestion(
        epochs=count,
        message_clip=clip,
        sides=tuple(sides[block.owner] for block in setting.blocks),
        release_ridge=round_digits(max(own_ridge, 10 * multiplier * pull * norm)),
        agreement={side.owner: agreement for _, agreement, side in found},
    )


def _expected(
    setting: GLMSetting,
    multiplier: float,
    published: float,
    epochs: int,
    clip: float,
    received: float,
    block: ColumnBlock,
    ridge: float,
) -> tuple[float, float, ExchangeSide]:
    """The expected error and agreement with this ridge, and the side of the party whose columns these are.

    It follows the scores that the party would send, direction by direction: how much of them is signal, how much noise.
    ``received`` is the deviation of received slopes, and ``published`` the multiplier of noise on released weights.
    """
    family, rows = setting.family, setting.rows
    sizes, truth = _directions(len(block.columns) + 1, block.clip**2, family.typical_variance)
    passed, blurred = clipped_normal(clip, received)
    bent = family.curvature * sizes + ridge
    signal, noise, seen = np.zeros_like(sizes), np.zeros_like(sizes), 0.0
    norm = math.hypot(block.clip, INTERCEPT)
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
        heard = multiplier * math.sqrt(epochs * ((2 * _SCORES * score) ** 2 + total / (number + 1)))
        seen = score**2 / (score**2 + heard**2)
    along = float((signal * truth).sum())
    blur = (math.sqrt(RELEASE) * published * moved) ** 2 * float(sizes.sum())
    agreement = along**2 / (family.typical_variance * (score**2 + blur))
    factor = along / score**2
    figures = (round_digits(value) for value in (ridge, ball, _SCORES * score, factor))
    return _lost(family, rows, agreement, factor, heard, score), agreement, ExchangeSide(block.owner, *figures)


def _lost(family: Family, rows: int, agreement: float, factor: float, heard: float, score: float) -> float:
    """What stays unknown of what a party's columns add, by the agreement and by how well its scores are heard."""
    evidence = math.sqrt(family.typical_curvature * rows) * factor * score**2 / math.hypot(heard, score)
    return family.typical_variance * (1 - agreement + agreement / (1 + evidence**2))


@dataclass(frozen=True)
class DescentSetting:
    """What is known of a gradient descent before epochs and balls are chosen."""

    public: GLMSetting
    batch: int
    rate: float
    ridge: float
    multiplier: float
    clip: float | None = None
    """What received slopes are clipped to, if that is given."""

    def slope_noise(self, epochs: int) -> float:
        """About the deviation of the noise on a slope."""
        family, norm = self.public.family, self.public.norm(self.public.active)
        gain, slope = family.curvature * norm, family.slope_bound
        kick = 2 * self.rate * slope * norm / self.batch
        return self.multiplier * math.sqrt(epochs * float(family.own) ** 2 + self._spread(epochs, gain * kick))

    def score_noise(self, epochs: int, block: ColumnBlock, norm: float, ball: float, clip: float) -> float:
        """About the deviation of the noise on a score."""
        kick = 2 * self.rate * clip * block.clip / self.batch
        return self.multiplier * math.sqrt(epochs * (2 * norm * ball) ** 2 + self._spread(epochs, norm * kick))

    def _spread(self, e: int, moved: float) -> float:
        """Theorem H without penalties and caps: what one row adds through everyone else's messages."""
        b, r = self.batch, -(-self.public.rows // self.batch)
        return moved**2 * ((b - 1) * (e - 1) * e * (2 * e - 1) + (r - 1) * b * e * (e + 1) * (2 * e + 1)) / 6


def suggest_descent(run: DescentSetting, epochs: int | None) -> tuple[int, dict[str, float]]:
    """Epochs, and a ball for each party's weights, of least expected error."""
    least = math.inf
    best: tuple[int, dict[str, float]] | None = None
    for count in _DESCENTS if epochs is None else (epochs,):
        found = {}
        for block in run.public.passives:
            norm = run.public.norm(block.owner)
            balls = [ball * math.sqrt(run.public.family.typical_variance) / norm for ball in _BALLS]
            found[block.owner] = min((_descended(run, block, ball, count)[0], ball) for ball in balls)
        error = sum(each for each, _ in found.values())
        if best is None or error < least * (1 - 1e-6):
            least, best = error, (count, {owner: round_digits(ball) for owner, (_, ball) in found.items()})
    assert best is not None  # noqa: S101 - for the type checker; there is at least one choice
    return best


def descent_clip(run: DescentSetting, epochs: int) -> float:
    """The clip of received slopes: the given one, or one that keeps most slopes with their noise unclipped."""
    if run.clip is not None:
        return run.clip
    return round_digits(math.hypot(run.public.family.slope_bound, _NOISES * run.slope_noise(epochs)))


@lru_cache(maxsize=64)
def _walked(run: DescentSetting, block: ColumnBlock, epochs: int) -> tuple[float, float, float]:
    """The result of gradient steps: the deviation of scores, the norm of weights, and the signal in them."""
    family, clip = run.public.family, descent_clip(run, epochs)
    sizes, truth = _directions(len(block.columns) + 1, block.clip**2, family.typical_variance)
    passed, blurred = clipped_normal(clip, math.hypot(run.slope_noise(epochs), family.typical_spread))
    signal, noise = np.zeros_like(sizes), np.zeros_like(sizes)
    for _ in range(min(epochs * -(-run.public.rows // run.batch), _MOST_STEPS)):
        kept = 1 - run.rate * (run.ridge + passed * family.typical_curvature * sizes)
        signal = np.clip(kept, 0.0, 1.0) * signal + run.rate * passed * family.typical_curvature * sizes
        noise = (1 - min(1.0, run.rate * run.ridge)) ** 2 * noise + (run.rate * blurred) ** 2 * sizes / run.batch
    score = math.sqrt(float((signal**2 * truth + noise * sizes).sum()))
    norm = math.sqrt(float((signal**2 * truth / sizes + noise).sum()))
    return score, norm, float((signal * truth).sum())


def _descended(run: DescentSetting, block: ColumnBlock, ball: float, epochs: int) -> tuple[float, float]:
    """The expected error after such steps, with weights kept within a ball, and the factor of the party's scores.

    The factor is what the active party is expected to give these scores. If the noise is much larger than the slopes,
    the weights are a random walk, and the factor is near zero.
    """
    family, norm = run.public.family, run.public.norm(block.owner)
    score, walked, along = _walked(run, block, epochs)
    if not score:  # the steps are too short to change anything
        return family.typical_variance, 0.0
    shrunk = min(1.0, ball / walked)
    agreement = along**2 / (family.typical_variance * score**2)
    factor, sent = along / (shrunk * score**2), shrunk * score
    heard = run.score_noise(epochs, block, norm, ball, descent_clip(run, epochs))
    return _lost(family, run.public.rows, agreement, factor, heard, sent), factor


def _directions(columns: int, square: float, variance: float) -> tuple[Vector, Vector]:
    """Mean squares of a party's columns along their main directions, and the variance of the score due to each."""
    falling = 1 / np.arange(1.0, columns + 1)
    return falling * (FILLED * square / falling.sum()), np.full(columns, variance / columns)


def round_digits(value: float) -> float:
    """The value with few digits, so that machines whose last bits differ get the same number."""
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class GLMChoices:
    """The user's parameters, checked; the planner chooses those that are ``None``."""

    method: Method
    penalty: str
    strength: float | None
    l1_ratio: float
    epochs: int | None
    batch: int | None
    learning_rate: float | None
    weight_bound: float | None
    score_clip: float | None
    message_clip: float | None
    release: bool

    @classmethod
    def of(cls, asked: Any) -> GLMChoices:
        """The parameters of a model; an error if one of them is wrong."""
        one_of("method", asked.method, ("auto", "alternating", "gradient"))
        one_of("penalty", asked.penalty, ("l2", "l1", "elastic-net"))
        given = {name: getattr(asked, name) for name in cls.__dataclass_fields__}
        for name in [*_COUNTS, *_POSITIVE]:
            if given[name] is not None and name in _COUNTS:
                given[name] = check_whole(name, given[name], 1, 2**31)
            elif given[name] is not None:
                check_positive(name, given[name])
        if not is_number(asked.l1_ratio) or not 0 <= asked.l1_ratio <= 1:
            raise StudyError(
                f"l1_ratio is the part of strength that is L1, from 0 to 1, not {asked.l1_ratio!r} [ST130]"
            )
        if not isinstance(asked.release, bool):
            raise StudyError(f"release is True or False, not {asked.release!r} [ST131]")
        return cls(**given | {"method": _method(asked)})

    @property
    def ridge(self) -> float | None:
        """The L2 penalty in every gradient; ``None`` if it was not given."""
        return self.strength if self.penalty == "l2" else 0.0

    @property
    def prox(self) -> tuple[float, float]:
        """The L1 and the L2 part of proximal steps."""
        strength = STRENGTH if self.strength is None else self.strength
        if self.penalty == "l2":
            return 0.0, 0.0
        share = 1.0 if self.penalty == "l1" else float(self.l1_ratio)
        return strength * share, strength * (1 - share)


@lru_cache(maxsize=16)
def plan_exchange(choices: GLMChoices, setting: GLMSetting, budgets: tuple[Budget, ...]) -> Exchange:
    """The task with the least noise that keeps every budget; parameters that are ``None`` follow from the noise."""
    rough = draft_exchange(choices, setting, 1.0).calibrate(budgets)
    return draft_exchange(choices, setting, rough.multiplier).calibrate(budgets)


def senders(task: Exchange) -> dict[str, dict[str, float]]:
    """Bounds on the scores of new people by each party's kept weights; ``drift`` bounds how far one row moves them."""
    return {
        owner: {
            "row_norm": task.row_norm(owner),
            "score_clip": float(task.side(owner).score_clip),
            "drift": float_up(task.weights_sensitivity(owner)),
        }
        for owner in task.passives
    }


def draft_exchange(choices: GLMChoices, setting: GLMSetting, noisy: float) -> Exchange:
    """The task before its noise is known; its parameters suit noise of ``noisy`` times the sensitivity."""
    return (
        _alternating(choices, setting, noisy) if choices.method == "alternating" else _gradient(choices, setting, noisy)
    )


def _alternating(choices: GLMChoices, setting: GLMSetting, noisy: float) -> Exchange:
    found = suggest(setting, noisy, epochs=choices.epochs, message_clip=choices.message_clip, release=choices.release)
    given = {"ridge": choices.ridge, "weight_bound": choices.weight_bound, "score_clip": choices.score_clip}
    named: dict[str, Any] = {name: float(value) for name, value in given.items() if value is not None}
    return _exchange(
        choices,
        setting,
        sides=tuple(side if side.owner == setting.active else replace(side, **named) for side in found.sides),
        epochs=found.epochs,
        batches=1,
        message_clip=float(found.message_clip),
        release_ridge=found.release_ridge,
    )


def _gradient(choices: GLMChoices, setting: GLMSetting, noisy: float) -> Exchange:
    ridge = STRENGTH if choices.ridge is None else float(choices.ridge)
    batch = min(setting.rows, _BATCH) if choices.batch is None else choices.batch
    if batch > setting.rows:
        raise StudyError(f"batch is {batch} and there are {setting.rows} rows: a batch is a part of them [ST132]")
    steepest = setting.family.curvature * setting.norm(setting.active) ** 2 + ridge
    rate = round_digits(1 / steepest) if choices.learning_rate is None else float(choices.learning_rate)
    l1, prox_ridge = choices.prox
    safe = min(rate, 2 / steepest)  # a larger rate leads to an error later
    clip = None if choices.message_clip is None else float(choices.message_clip)
    run = DescentSetting(setting, batch, safe, ridge + prox_ridge, noisy, clip)
    epochs, balls = suggest_descent(run, choices.epochs)
    sides = []
    for block in setting.blocks:
        norm = setting.norm(block.owner)
        # The active party sends no scores, so the bound on its weights may be large.
        wide = round_digits(_REACH * math.sqrt(setting.family.typical_variance) / norm)
        bound = balls.get(block.owner, wide) if choices.weight_bound is None else float(choices.weight_bound)
        most = round_digits(norm * bound) if choices.score_clip is None else float(choices.score_clip)
        side = ExchangeSide(block.owner, ridge, bound, most)
        if block.owner != setting.active:
            side = replace(side, factor=round_digits(_descended(run, block, bound, epochs)[1]))
        sides.append(side)
    return _exchange(
        choices,
        setting,
        sides=tuple(sides),
        epochs=epochs,
        batches=-(-setting.rows // batch),
        message_clip=descent_clip(run, epochs),
        learning_rate=rate,
        l1=l1,
        prox_ridge=prox_ridge,
    )


def _exchange(choices: GLMChoices, setting: GLMSetting, **chosen: Any) -> Exchange:
    """The task, from what the user asked for, what is public, and what was chosen."""
    return Exchange(
        blocks=setting.blocks,
        active=setting.active,
        family=setting.family,
        trust=setting.trust,
        rows=setting.rows,
        method=choices.method,
        release=choices.release,
        intercept=INTERCEPT,
        **chosen,
    )


def _method(asked: Any) -> Method:
    method = asked.method
    if method == "auto":
        method = "alternating" if asked.penalty == "l2" else "gradient"
    if method == "gradient":
        return "gradient"
    if asked.penalty != "l2":
        raise StudyError(f'penalty="{asked.penalty}" needs proximal steps: use method="gradient" (or "auto") [ST133]')
    for name in ("batch", "learning_rate"):
        if getattr(asked, name) is not None:
            raise StudyError(
                f'{name} is for method="gradient"; fits that take turns use all rows and need no steps [ST134]'
            )
    return "alternating"
