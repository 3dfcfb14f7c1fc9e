"""The public task of an exchange: the parameters as checked, and those that follow from public numbers and a guess.

Rows, columns, bounds and the budget decide how much noise messages will have. The size of the signal is private, so it
is guessed; a wrong guess costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.glm.losses import Family
from colonnade.kinds.glm.sides import FILLED, clipped_normal
from colonnade.kinds.glm.task import RECEIVED_CLIP, RELEASE, Exchange, ExchangeSide, Method
from colonnade.models.parameters import Positive, check_whole
from colonnade.privacy import Budget, Trust
from colonnade.privacy.sensitivity import float_up
from colonnade.protocols.message_task import NOISE_UNIT
from colonnade.protocols.rows import ColumnBlock
from colonnade.tables.wording import suggest_name

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
class ParameterSuggestion:
    """Parameters of an alternating exchange, and what they are expected to give under the guess.

    ``agreement`` is the squared correlation of a party's kept scores with what its columns really add.
    """

    epochs: int
    message_clip: float
    sides: tuple[ExchangeSide, ...]
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
    blocks: Sequence[ColumnBlock],
    active: str,
    family: Family,
    rows: int,
    multiplier: float,
    *,
    intercept: float = 1.0,
    epochs: int | None = None,
    message_clip: float | None = None,
    release: bool = False,
) -> ParameterSuggestion:
    """The parameters of least expected error, for noise of ``multiplier`` times the sensitivity."""
    passives = [block for block in blocks if block.owner != active]
    held = next(block for block in blocks if block.owner == active)
    norm = math.sqrt(held.clip**2 + intercept**2 + len(passives) * RECEIVED_CLIP**2)
    own = float(family.own)
    pull = 2 * family.slope_bound * norm / rows
    own_ridge = round_digits(_OWN_PART * family.curvature * rows * pull**2 / (4 * own**2))
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
    mine = ExchangeSide(active, own_ridge, 1.0, family.slope_bound)
    return ParameterSuggestion(
        epochs=count,
        message_clip=clip,
        sides=tuple(mine if b.owner == active else chosen[b.owner].side(b.owner) for b in blocks),
        release_ridge=round_digits(max(own_ridge, 10 * multiplier * pull * norm)),
        agreement={owner: choice.agreement for owner, choice in chosen.items()},
        error=error,
    )


def _clips(setting: _Setting, epochs: int, given: float | None) -> Iterator[float]:
    if given is not None:
        yield given
        return
    received = math.hypot(setting.noise(epochs), setting.family.typical_spread)
    yield from (round_digits(clip * received) for clip in _CLIPS)


@dataclass(frozen=True)
class _Choice:
    """One passive party's parameters, and their expected result under the guess."""

    ridge: float
    weight_bound: float
    score_clip: float
    factor: float
    agreement: float
    error: float

    def side(self, owner: str) -> ExchangeSide:
        return ExchangeSide(
            owner, *(round_digits(v) for v in (self.ridge, self.weight_bound, self.score_clip, self.factor))
        )


def _best(setting: _Setting, block: ColumnBlock, intercept: float, epochs: int, clip: float) -> _Choice:
    return min(
        (_choice(setting, block, intercept, epochs, clip, ridge) for ridge in _RIDGES), key=lambda each: each.error
    )


def _choice(setting: _Setting, block: ColumnBlock, intercept: float, epochs: int, clip: float, ridge: float) -> _Choice:
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
class DescentSetting:
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

    def score_noise(self, epochs: int, block: ColumnBlock, norm: float, ball: float, clip: float) -> float:
        """About the deviation of the noise on a score."""
        kick = 2 * self.rate * clip * block.clip / self.batch
        return self.multiplier * math.sqrt(epochs * (2 * norm * ball) ** 2 + self._spread(epochs, norm * kick))

    def _spread(self, e: int, moved: float) -> float:
        """Theorem H without penalties and caps: what one row adds through everyone else's messages."""
        b, r = self.batch, -(-self.rows // self.batch)
        return moved**2 * ((b - 1) * (e - 1) * e * (2 * e - 1) + (r - 1) * b * e * (e + 1) * (2 * e + 1)) / 6


def suggest_descent(
    run: DescentSetting, passives: Sequence[ColumnBlock], *, intercept: float = 1.0, epochs: int | None = None
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
            best = (error, count, {owner: round_digits(ball) for owner, (_, ball) in found.items()})
    assert best is not None  # noqa: S101 - for the type checker; there is at least one choice
    return best[1], best[2]


def descent_clip(run: DescentSetting, epochs: int) -> float:
    """The clip of received slopes: the given one, or one that keeps most slopes with their noise unclipped."""
    if run.clip is not None:
        return run.clip
    return round_digits(math.hypot(run.family.slope_bound, _NOISES * run.slope_noise(epochs)))


def descent_factor(
    run: DescentSetting, block: ColumnBlock, ball: float, epochs: int, *, intercept: float = 1.0
) -> float:
    """The factor that the active party is expected to give the scores of a party that takes gradient steps.

    If the noise is much larger than the slopes, the weights are a random walk, and the factor is near zero.
    """
    return round_digits(_descended(run, block, math.hypot(block.clip, intercept), ball, epochs).factor)


@lru_cache(maxsize=64)
def _walked(run: DescentSetting, block: ColumnBlock, epochs: int) -> tuple[float, float, float]:
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


def _descended(run: DescentSetting, block: ColumnBlock, norm: float, ball: float, epochs: int) -> _Choice:
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


def round_digits(value: float) -> float:
    """The value with few digits, so that machines whose last bits differ get the same number."""
    return float(f"{value:.{_DIGITS}g}")


METHODS = ("auto", "alternating", "gradient")
PENALTIES = ("l2", "l1", "elastic-net")
INTERCEPT = 1.0
STRENGTH = 1e-3
_BATCH = 3200
_REACH = 8.0  # the largest score of the active party's longest row, in typical deviations
_ONLY_GRADIENT = ("batch", "learning_rate")
_COUNTS = ("epochs", "batch")
_POSITIVE = ("strength", "learning_rate", "weight_bound", "score_clip", "message_clip")


@dataclass(frozen=True)
class FamilyOptions:
    """Options of a family, in addition to the label's column."""

    reach: Positive | None = None
    clip: Positive | None = None
    region: tuple[float, float] | None = None


OPTIONS = tuple(field.name for field in fields(FamilyOptions))


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
        one_of("method", asked.method, METHODS)
        one_of("penalty", asked.penalty, PENALTIES)
        for name in _COUNTS:
            if getattr(asked, name) is not None:
                check_whole(name, getattr(asked, name), 1, 2**31)
        for name in _POSITIVE:
            if getattr(asked, name) is not None:
                _positive(name, getattr(asked, name))
        if not _is_number(asked.l1_ratio) or not 0 <= asked.l1_ratio <= 1:
            raise StudyError(
                f"l1_ratio is the part of strength that is L1, from 0 to 1, not {asked.l1_ratio!r} [ST130]"
            )
        if not isinstance(asked.release, bool):
            raise StudyError(f"release is True or False, not {asked.release!r} [ST131]")
        fields = {name: getattr(asked, name) for name in cls.__dataclass_fields__}
        counts = {name: int(fields[name]) for name in _COUNTS if fields[name] is not None}
        return cls(**fields | counts | {"method": _method(asked)})

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


@dataclass(frozen=True)
class GLMSetting:
    """What is public: who holds which columns, the number of people, and the loss."""

    blocks: tuple[ColumnBlock, ...]
    active: str
    family: Family
    trust: Trust
    rows: int

    def norm(self, owner: str) -> float:
        """The norm of an owner's longest row, with the constant."""
        return math.hypot(next(block.clip for block in self.blocks if block.owner == owner), INTERCEPT)


@lru_cache(maxsize=16)
def plan_exchange(choices: GLMChoices, setting: GLMSetting, budgets: tuple[Budget, ...]) -> Exchange:
    """The task with the least noise that keeps every budget; parameters that are ``None`` follow from the noise."""
    rough = draft_exchange(choices, setting, 1.0).calibrate(budgets)
    return draft_exchange(choices, setting, multiplier(rough)).calibrate(budgets)


def multiplier(task: Exchange) -> float:
    """The deviation of a task's noise, divided by the sensitivity."""
    return math.sqrt(task.noise / NOISE_UNIT)


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
    found = suggest(
        setting.blocks,
        setting.active,
        setting.family,
        setting.rows,
        noisy,
        intercept=INTERCEPT,
        epochs=choices.epochs,
        message_clip=choices.message_clip,
        release=choices.release,
    )
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
    norm, clip = setting.norm(setting.active), None if choices.message_clip is None else float(choices.message_clip)
    run = DescentSetting(setting.family, setting.rows, batch, safe, ridge + prox_ridge, noisy, norm, clip)
    passives = [block for block in setting.blocks if block.owner != setting.active]
    epochs, balls = suggest_descent(run, passives, intercept=INTERCEPT, epochs=choices.epochs)
    sides = (_side(choices, setting, run, block, balls, epochs) for block in setting.blocks)
    return _exchange(
        choices,
        setting,
        sides=tuple(replace(side, ridge=ridge) for side in sides),
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


def _side(
    choices: GLMChoices,
    setting: GLMSetting,
    run: DescentSetting,
    block: ColumnBlock,
    balls: Mapping[str, float],
    epochs: int,
) -> ExchangeSide:
    """The bounds of one owner; the active party sends no scores, so the bound on its weights may be large."""
    norm, typical = setting.norm(block.owner), math.sqrt(setting.family.typical_variance)
    wide = round_digits(_REACH * typical / norm)
    bound = balls.get(block.owner, wide) if choices.weight_bound is None else float(choices.weight_bound)
    clip = round_digits(norm * bound) if choices.score_clip is None else float(choices.score_clip)
    if block.owner == setting.active:
        return ExchangeSide(block.owner, run.ridge, bound, clip)
    return ExchangeSide(
        block.owner, run.ridge, bound, clip, descent_factor(run, block, bound, epochs, intercept=INTERCEPT)
    )


def _method(asked: Any) -> Method:
    method = asked.method
    if method == "auto":
        method = "alternating" if asked.penalty == "l2" else "gradient"
    if method == "gradient":
        return "gradient"
    if asked.penalty != "l2":
        raise StudyError(f'penalty="{asked.penalty}" needs proximal steps: use method="gradient" (or "auto") [ST133]')
    for name in _ONLY_GRADIENT:
        if getattr(asked, name) is not None:
            raise StudyError(
                f'{name} is for method="gradient"; fits that take turns use all rows and need no steps [ST134]'
            )
    return "alternating"


def family_options(given: object) -> dict[str, Any]:
    """The options of a family, by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise StudyError(
            f'family_options must be a mapping such as {{"reach": 3.0}}, not {type(given).__name__} [ST135]'
        )
    for name in given:
        one_of("a name in family_options", name, OPTIONS)
    return {name: value for name, value in given.items() if value is not None}


def one_of(what: str, value: object, known: Iterable[str]) -> None:
    """Raise an error if the value is not one of the known words; it suggests a similar word."""
    names = tuple(known)
    if value not in names:
        hint = suggest_name(value, names) if isinstance(value, str) else ""
        raise StudyError(f"{what} must be one of {', '.join(names)}, not {value!r}{hint} [ST136]")


def _positive(name: str, value: object) -> None:
    if not _is_number(value) or not 0 < value < math.inf:  # type: ignore[operator]
        raise StudyError(f"{name} must be a finite number above 0, not {value!r} [ST137]")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
