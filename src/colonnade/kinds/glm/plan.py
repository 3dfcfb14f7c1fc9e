"""The public task of an exchange from the user's parameters: checks, defaults from public numbers, the least noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.glm.exchange.bounds import Method, Side
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.losses.labels import Family
from colonnade.kinds.glm.tuning import Descent, descent_clip, descent_factor, rounded, suggest, suggest_descent
from colonnade.models.parameters import Positive, check_whole
from colonnade.privacy import Budget, Trust
from colonnade.privacy.sensitivity import float_up
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.rows import Block
from colonnade.tables.wording import suggestion

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
class Choices:
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
    def of(cls, asked: Any) -> Choices:
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
class Setting:
    """What is public: who holds which columns, the number of people, and the loss."""

    blocks: tuple[Block, ...]
    active: str
    family: Family
    trust: Trust
    rows: int

    def norm(self, owner: str) -> float:
        """The norm of an owner's longest row, with the constant."""
        return math.hypot(next(block.clip for block in self.blocks if block.owner == owner), INTERCEPT)


@lru_cache(maxsize=16)
def planned(choices: Choices, setting: Setting, budgets: tuple[Budget, ...]) -> Exchange:
    """The task with the least noise that keeps every budget; parameters that are ``None`` follow from the noise."""
    rough = draft(choices, setting, 1.0).calibrated(budgets)
    return draft(choices, setting, multiplier(rough)).calibrated(budgets)


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


def draft(choices: Choices, setting: Setting, noisy: float) -> Exchange:
    """The task before its noise is known; its parameters suit noise of ``noisy`` times the sensitivity."""
    return (
        _alternating(choices, setting, noisy) if choices.method == "alternating" else _gradient(choices, setting, noisy)
    )


def _alternating(choices: Choices, setting: Setting, noisy: float) -> Exchange:
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


def _gradient(choices: Choices, setting: Setting, noisy: float) -> Exchange:
    ridge = STRENGTH if choices.ridge is None else float(choices.ridge)
    batch = min(setting.rows, _BATCH) if choices.batch is None else choices.batch
    if batch > setting.rows:
        raise StudyError(f"batch is {batch} and there are {setting.rows} rows: a batch is a part of them [ST132]")
    steepest = setting.family.curvature * setting.norm(setting.active) ** 2 + ridge
    rate = rounded(1 / steepest) if choices.learning_rate is None else float(choices.learning_rate)
    l1, prox_ridge = choices.prox
    safe = min(rate, 2 / steepest)  # a larger rate leads to an error later
    norm, clip = setting.norm(setting.active), None if choices.message_clip is None else float(choices.message_clip)
    run = Descent(setting.family, setting.rows, batch, safe, ridge + prox_ridge, noisy, norm, clip)
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


def _exchange(choices: Choices, setting: Setting, **chosen: Any) -> Exchange:
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
    choices: Choices, setting: Setting, run: Descent, block: Block, balls: Mapping[str, float], epochs: int
) -> Side:
    """The bounds of one owner; the active party sends no scores, so the bound on its weights may be large."""
    norm, typical = setting.norm(block.owner), math.sqrt(setting.family.typical_variance)
    wide = rounded(_REACH * typical / norm)
    bound = balls.get(block.owner, wide) if choices.weight_bound is None else float(choices.weight_bound)
    clip = rounded(norm * bound) if choices.score_clip is None else float(choices.score_clip)
    if block.owner == setting.active:
        return Side(block.owner, run.ridge, bound, clip)
    return Side(block.owner, run.ridge, bound, clip, descent_factor(run, block, bound, epochs, intercept=INTERCEPT))


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


def options(given: object) -> dict[str, Any]:
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
        hint = suggestion(value, names) if isinstance(value, str) else ""
        raise StudyError(f"{what} must be one of {', '.join(names)}, not {value!r}{hint} [ST136]")


def _positive(name: str, value: object) -> None:
    if not _is_number(value) or not 0 < value < math.inf:  # type: ignore[operator]
        raise StudyError(f"{name} must be a finite number above 0, not {value!r} [ST137]")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
