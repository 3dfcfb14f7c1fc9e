"""The bounds of an exchange: how far one person's columns move what an owner sends and releases, by two theorems.

The public task of a model learned over noised messages: who sends what, within which bounds, under which noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.glm import sensitivity as bounds
from colonnade.kinds.glm.losses import AT_ONCE, NEWTON_STEPS, TRIALS, Family, proven_steps
from colonnade.privacy import Event, Trust
from colonnade.privacy.sensitivity import float_up, root_up
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, SECONDS_PER_PRODUCT, ParticipantLoad, seconds_on_wire
from colonnade.protocols.rows import ColumnBlock, JointRows
from colonnade.protocols.task import NOISE_UNIT, MessageTask, TaskPrograms, message_event

RECEIVED_CLIP = 3.0  # scores that the active party received are scaled to deviation 1 and clipped to this
_SLACK = Fraction(1, 1 << 12)

Method = Literal["alternating", "gradient"]
PROTOCOL = "exchange 1"
STEPS = "exchange-sensitivity"
FITS = "alternating-fits"
RELEASE = 4  # weights get this multiple of the messages' variance: they move far less, so it costs little accuracy
_MOST_FITS, _MOST_STEPS = 100, 100_000
_SECONDS_PER_SLOPE = 5e-8


@dataclass(frozen=True)
class ExchangeSide:
    """One owner's public parameters: its penalty, its ball, the clip of its scores.

    ``factor`` is the factor of a passive party's scores that the active party expects, from public knowledge only.
    """

    owner: str
    ridge: float
    weight_bound: float
    score_clip: float
    factor: float = 1.0


@dataclass(frozen=True)
class ExchangeStep:
    """One exchange: slopes of the rows ``batch::batches``, then scores of the rows ``answer::batches``."""

    number: int
    batch: int
    answer: int | None


@dataclass(frozen=True)
class Exchange(MessageTask, JointRows):
    """The public task, and the bounds that follow from it. All owners and the coordinator hold an equal one.

    Every number sent is a multiple of ``2^-bits``. The variance of an owner's noise is ``noise / 2^20`` times the
    square of what one person's columns with it can move in all its messages together. ``sides`` are in the order of
    ``blocks``; a row is a block's columns and the public constant ``intercept``.

    * ``alternating``: in each epoch the active party fits and sends slopes, the others fit and send scores;
    * ``gradient``: steps of gradient descent over ``batches`` fixed batches, with ``l1`` and ``prox_ridge`` penalties.
    """

    blocks: tuple[ColumnBlock, ...]
    sides: tuple[ExchangeSide, ...]
    active: str
    family: Family
    trust: Trust
    rows: int
    method: Method
    epochs: int
    batches: int
    message_clip: float
    noise: int = NOISE_UNIT
    learning_rate: float = 0.0
    l1: float = 0.0
    prox_ridge: float = 0.0
    release: bool = False
    release_ridge: float = 0.0
    intercept: float = 1.0
    bits: int = 28

    rows_fixed: ClassVar[bool] = True
    programs = TaskPrograms("colonnade.kinds.glm.programs")
    error_on = "slope"
    why_no_rounds = "has as many rounds as suit its noise"
    rows_key: ClassVar[str] = "rows"

    @property
    def games(self) -> str:
        """The name of the games that audit it."""
        return f"glm-{self.method}"

    def __post_init__(self) -> None:
        if self.active not in self.owners or tuple(side.owner for side in self.sides) != self.owners:
            raise ValueError("every owner has one side, in order, and one of them is active [VA133]")
        steps, descends = self.epochs * self.batches, self.method == "gradient"
        most = _MOST_STEPS if descends else _MOST_FITS
        # F6: the active party's steps must not overshoot, and penalties must not turn weights around.
        limit = 2 / (self.family.curvature * self.row_norm(self.active) ** 2 + self.side(self.active).ridge)
        turned = [side.owner for side in self.sides if self.learning_rate * side.ridge > 1]
        refused = (
            (
                not descends and self.batches != 1,
                "fits that take turns use all rows at once; batches are for method = gradient [ST448]",
            ),
            (
                not 1 <= self.batches <= self.rows,
                f"{self.rows} rows cannot be split into {self.batches} batches [ST449]",
            ),
            (
                not 1 <= steps <= most,
                f"{self.epochs} epochs of {self.batches} batches are {steps:,} exchanges, and at most {most:,} are "
                "possible: lower epochs [ST450]",
            ),
            (
                descends and steps < 2,
                "gradient descent needs at least two steps: raise epochs or lower batch [ST451]",
            ),
            (
                descends and self.learning_rate > limit,
                f"learning_rate is {self.learning_rate:g} and must be at most {limit:.4g} = 2 / (curvature x squared "
                f"row norm of {self.active} + strength of an L2 penalty): beyond it steps overshoot [ST452]",
            ),
            (
                descends and bool(turned),
                f"learning_rate x strength must be at most 1, and is more at {', '.join(turned)}: lower either [ST453]",
            ),
        )
        for wrong, why in refused:
            if wrong:
                raise StudyError(why)

    # --- bounds

    def side(self, owner: str) -> ExchangeSide:
        """One owner's parameters."""
        return self.sides[self.owners.index(owner)]

    @property
    def batch_size(self) -> int:
        """The sums of every batch are divided by this number, the size of the largest batch."""
        return -(-self.rows // self.batches)

    def row_norm(self, owner: str) -> float:
        """The largest norm of one owner's row with its constant."""
        return float_up(root_up(Fraction(self.block(owner).clip) ** 2 + Fraction(self.intercept) ** 2))

    @property
    def active_norm(self) -> float:
        """The largest norm of the active party's row together with the scores that it received."""
        received = len(self.passives) * Fraction(RECEIVED_CLIP) ** 2
        return float_up(root_up(Fraction(self.row_norm(self.active)) ** 2 + received))

    def pull(self, owner: str) -> Fraction:
        """A bound on what a row adds to the gradient of an owner's fit, and on the gradient at its start."""
        if owner == self.active:
            return Fraction(self.active_norm) * Fraction(self.family.slope_bound)
        norm, bent = Fraction(self.row_norm(owner)), Fraction(self.family.curvature)
        return norm * Fraction(self.message_clip) + bent * norm**2 * Fraction(self.side(owner).weight_bound)

    def slack(self, owner: str) -> float:
        """A fit's gradient is at most this long in the end; it is a small part of what one row can move."""
        return float(_SLACK * self.pull(owner) / self.rows)

    def descent(self, owner: str) -> bounds.GradientExchange:
        """The bounds of Theorem H for one owner."""
        side = self.side(owner)
        return bounds.GradientExchange(
            epochs=self.epochs,
            batches=self.batches,
            batch_size=self.batch_size,
            rate=self.learning_rate,
            row_norm=self.row_norm(owner),
            weight_norm=side.weight_bound,
            slope=self.family.slope_bound,
            curvature=self.family.curvature,
            ridge=side.ridge,
            prox_ridge=self.prox_ridge,
            received=self.message_clip,
            score=None if owner == self.active else side.score_clip,
            changing=self.block(owner).clip,
        )

    def passive_fits(self, owner: str) -> bounds.PassiveFits:
        """The bounds of a passive party's fits."""
        side = self.side(owner)
        return bounds.PassiveFits(
            rounds=self.epochs,
            rows=self.rows,
            row_norm=self.row_norm(owner),
            weight_norm=side.weight_bound,
            received=self.message_clip,
            score=side.score_clip,
            curvature=self.family.curvature,
            ridge=side.ridge,
            slack=self.slack(owner),
            changing=self.block(owner).clip,
        )

    def active_fits(self, ridge: float) -> bounds.ActiveFits:
        """The bounds of the active party's fits."""
        return bounds.ActiveFits(
            rounds=self.epochs,
            rows=self.rows,
            row_norm=self.active_norm,
            slope=self.family.slope_bound,
            curvature=self.family.curvature,
            own=self.family.own,
            ridge=ridge,
            slack=self.slack(self.active),
        )

    def message_sensitivity(self, owner: str) -> Fraction:
        """A bound on how far all messages of an owner move when one person's columns with it are replaced."""
        if self.method == "gradient":
            run, active = self.descent(owner), owner == self.active
            return root_up(bounds.active_squared(run, self.family.own) if active else bounds.passive_squared(run))
        if owner == self.active:
            return root_up(bounds.active_fits_squared(self.active_fits(self.side(owner).ridge)))
        return root_up(bounds.passive_fits_squared(self.passive_fits(owner)))

    def weights_sensitivity(self, owner: str) -> Fraction:
        """How far the weights that an owner releases move, given all messages."""
        if self.method == "gradient":
            return bounds.weights_sensitivity(self.descent(owner), active=owner == self.active)
        if owner == self.active:
            return bounds.active_fits_weights(self.active_fits(self.release_ridge))
        return bounds.passive_fits_weights(self.passive_fits(owner))

    # --- who and when

    @property
    def steps(self) -> tuple[ExchangeStep, ...]:
        """All exchanges; the weights are zero at first, so scores begin after the first slopes."""
        total = self.epochs * self.batches
        if self.method == "alternating":
            return tuple(ExchangeStep(number, 0, 0) for number in range(total))
        turns = [number % self.batches for number in range(total)]
        return tuple(ExchangeStep(n, turn, turns[n + 1] if n + 1 < total else None) for n, turn in enumerate(turns))

    # --- noise and events

    def numbers(self, owner: str) -> int:
        """How many numbers an owner sends in all messages, at most."""
        return self.rows * self.epochs

    def weights(self, owner: str) -> int:
        """How many numbers an owner's weights are: its columns, the constant, and at the active party the factors."""
        held = len(self.block(owner).columns) + 1
        return held + len(self.passives) if owner == self.active and self.method == "alternating" else held

    def message_variance(self, owner: str) -> int:
        """The variance of the noise on each number an owner sends, in squared steps of the grid."""
        return -(-self.noise * self._squares(owner)[0] // NOISE_UNIT)

    def weights_variance(self, owner: str) -> int:
        """The variance of the noise on each weight an owner releases, in squared steps of the grid."""
        return -(-RELEASE * self.noise * self._squares(owner)[1] // NOISE_UNIT)

    def _squares(self, owner: str) -> tuple[int, int]:
        """Squared sensitivities of messages and of weights; they do not depend on the noise."""
        return _squares(self if self.noise == NOISE_UNIT else replace(self, noise=NOISE_UNIT), owner)

    def message_deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each number an owner sends."""
        return self.deviation_of(self.message_variance(owner))

    def weights_deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each weight an owner releases."""
        return self.deviation_of(self.weights_variance(owner))

    def message_event(self, owner: str) -> Event:
        """The event that an owner sends all its messages, to whoever receives or can compute them."""
        name = f"{'slopes' if owner == self.active else 'scores'} of {owner}"
        return self._event(name, owner, self.numbers(owner), self._squares(owner)[0], self.message_variance(owner))

    def weights_event(self, owner: str) -> Event:
        """The event that an owner releases its weights, after all messages are known."""
        size, square = self.weights(owner), self._squares(owner)[1]
        return self._event(f"weights of {owner}", owner, size, square, self.weights_variance(owner))

    def _event(self, name: str, owner: str, numbers: int, square: int, variance: int) -> Event:
        # Where weights are released, messages count as published: the weights depend on them.
        theorem = FITS if self.method == "alternating" else STEPS
        audience = () if self.release else tuple(other for other in self.owners if other != owner)
        return message_event(name, owner, numbers, square, variance, theorem, audience)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Everything that is told."""
        messages = [self.message_event(owner) for owner in self.owners]
        return (*messages, *(self.weights_event(owner) for owner in self.owners if self.release))

    @property
    def openings(self) -> Mapping[Event, int]:
        """How often each event's numbers are told."""
        sent = len(self.steps)
        answers = sum(step.answer is not None for step in self.steps)
        times = {self.message_event(owner): sent if owner == self.active else answers for owner in self.owners}
        return times | {self.weights_event(owner): 1 for owner in self.owners if self.release}

    # --- what sessions, studies and records ask

    @property
    def rows_limit(self) -> int:
        """The exact number of people that the study states."""
        return self.rows

    rows_stated = rows_limit

    @property
    def number_of_rounds(self) -> int:
        """How often slopes are told."""
        return len(self.steps)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude of a number that is sent."""
        values = max(self.family.slope_bound, *(max(side.score_clip, side.weight_bound) for side in self.sides))
        variances = [self.message_variance(owner) for owner in self.owners]
        variances += [self.weights_variance(owner) for owner in self.owners if self.release]
        advice = "raise epsilon, lower epochs or the clips, or raise strength"
        return self.bound_of(values, max(variances), advice)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise on a slope."""
        return self.message_deviation(self.active)

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other."""
        return 8 + 2 * len(self.steps) + int(self.release)

    def load(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""
        owns = name in self.owners
        width, numbers = (len(self.block(name).columns) + 1, self.numbers(name)) if owns else (0, 0)
        sent = NUMBER * self.sent_by(name)
        memory = BASE_MEMORY + NUMBER * (3 * rows * width + 4 * rows)
        seconds = pace * numbers + seconds_on_wire(sent, self.message_rounds)
        return ParticipantLoad(name, sent, memory, seconds + (self._seconds_of_fits(name, width) if owns else 0.0))

    def _seconds_of_fits(self, name: str, width: int) -> float:
        """How long an owner computes by itself."""
        turns = self.epochs * self.rows
        if name != self.active:
            moments = self.rows * width**2 if self.method == "alternating" else 0
            return SECONDS_PER_PRODUCT * (moments + 4 * turns * width)
        columns, alone = width + len(self.passives), self._seconds_of_newton(width)
        if self.method == "gradient":
            return alone + _SECONDS_PER_SLOPE * turns
        ridges = [self.side(name).ridge] * self.epochs + [self.release_ridge] * int(self.release)
        proven = (proven_steps(self.family, np.array([r]), self.active_norm, self.slack(name)) for r in ridges)
        taken = sum(steps * self.rows for steps in proven if steps * self.rows <= AT_ONCE)
        return alone * (1 + len(ridges)) + taken * (_SECONDS_PER_SLOPE + SECONDS_PER_PRODUCT * 2 * columns)

    def _seconds_of_newton(self, width: int) -> float:
        """How long the active party takes for the steps of one fit."""
        columns = width + len(self.passives)
        return NEWTON_STEPS * self.rows * (SECONDS_PER_PRODUCT * columns**2 + (TRIALS + 2) * _SECONDS_PER_SLOPE)

    def sent_by(self, name: str) -> int:
        """How many numbers a participant sends to others, each counted once for every recipient."""
        if name not in self.owners:
            return 0
        recipients = len(self.passives) if name == self.active else 1
        weights = len(self.owners) * self.weights(name) if self.release else 0
        return self.numbers(name) * recipients + weights

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.noise_facts | {
            "deviations": {owner: self.message_deviation(owner) for owner in self.owners},
            "columns": len(self.names),
            "family": self.family.name,
            "method": self.method,
            "active": self.active,
            "rows": self.rows,
            "epochs": self.epochs,
            "batches": self.batches,
            "message_clip": self.message_clip,
            "learning_rate": self.learning_rate,
            "release": self.release,
            "sides": {
                side.owner: {"ridge": side.ridge, "weight_bound": side.weight_bound, "score_clip": side.score_clip}
                for side in self.sides
            },
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "blocks": [[block.owner, list(block.columns), block.clip.hex()] for block in self.blocks],
            "sides": [
                [side.owner, *(float(v).hex() for v in (side.ridge, side.weight_bound, side.score_clip, side.factor))]
                for side in self.sides
            ],
            "active": self.active,
            "family": self.family.plain(),
            "method": [self.method, self.rows, self.epochs, self.batches],
            "rates": [
                float(value).hex()
                for value in (self.message_clip, self.learning_rate, self.l1, self.prox_ridge, self.release_ridge)
            ],
            "release": self.release,
            "intercept": float(self.intercept).hex(),
            "bits": self.bits,
            "law": self.law,
            "noise": str(self.noise),
        }


@lru_cache(maxsize=256)
def _squares(task: Exchange, owner: str) -> tuple[int, int]:
    """Squared sensitivities of an owner's messages and of its weights, in squared steps of the grid."""
    messages = task.grid.sensitivity_squared(task.message_sensitivity(owner), task.numbers(owner))
    weights = task.grid.sensitivity_squared(task.weights_sensitivity(owner), task.weights(owner)) if task.release else 0
    return messages, weights
