"""Training of one party's encoder on its own rows, under noise and charged: DP-SGD in whole numbers.

Each update is a sum over a batch of people's gradients, each clipped and cut to whole numbers, plus discrete Gaussian
noise; docs/theory/private-updates.md says what all updates together are worth. What is done with such a sum is free, so
a step may have momentum, and the trained encoder may be used for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS
from colonnade.kinds.split.embeddings.updates import noised_sum
from colonnade.privacy import Budget, Event, Sensitivity, Trust
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, law_named
from colonnade.privacy.releases import RepeatedRelease
from colonnade.protocols.message_task import NOISE_UNIT, own_noise
from colonnade.randomness import Stream

THEOREM = "private-updates"
SlopesOf = Callable[[Places, Matrix], Matrix]
"""From places of rows and their embeddings to slopes, each from its own row, its own label and public numbers alone."""
_RADIUS = 1 << GRADIENT_BITS
_MOST_EPOCHS = 10_000
_TRIED = 64


@dataclass(frozen=True)
class PrivateTraining:
    """How an owner's encoder is trained on ``rows`` of its rows, by public numbers only.

    ``rows`` is public: how many there are or, with one batch, about how many. Row j is in batch ``j mod batches``. A
    gradient is clipped to norm ``clip``. A step is ``rate`` times the sum of a batch's clipped gradients and its noise,
    over ``rows / batches``, with this ``momentum``. ``noise / 2^20`` is the variance of the noise on each number of a
    sum, in squares of what replacing one person can move it.
    """

    owner: str
    rows: int
    parameters: int
    epochs: int
    batches: int = 1
    clip: float = 1.0
    rate: float = 1.0
    momentum: float = 0.9
    noise: int = NOISE_UNIT
    audience: tuple[str, ...] = ()
    """Who sees anything that depends on the encoder; nobody named: everybody."""

    def __post_init__(self) -> None:
        if not 1 <= self.batches <= self.rows:
            raise StudyError(f"{self.rows} rows cannot be split into {self.batches} batches [ST322]")
        if not 1 <= self.epochs <= _MOST_EPOCHS:
            raise StudyError(f"private training takes between 1 and {_MOST_EPOCHS:,} epochs [ST323]")
        if self.parameters < 1:
            raise StudyError(f"the encoder of {self.owner} has nothing to learn [ST324]")
        if not (0 < self.clip < math.inf and 0 < self.rate < math.inf and 0 <= self.momentum < 1 and self.noise >= 1):
            raise StudyError("private training needs a clip and a rate above 0, a momentum below 1, and noise [ST325]")

    @property
    def square(self) -> int:
        """How far replacing one person moves a sum, squared, in squared steps of ``clip / 2^30``."""
        return 4 * _RADIUS**2

    @property
    def variance(self) -> int:
        """The variance of the noise on each number of a sum, in squared steps."""
        return math.ceil(Fraction(self.noise, NOISE_UNIT) * self.square)

    @property
    def absent_square(self) -> int:
        """How far adding or removing one person moves the sums of an epoch, squared.

        In one batch that is the person's own part. In several, everybody behind the person changes the batch.
        """
        if self.batches == 1:
            return _RADIUS**2
        return self.batches * (2 * (self.rows // self.batches + 1) * _RADIUS) ** 2

    @property
    def event(self) -> Event:
        """All updates: one epoch is one release, as no person is in two of its batches."""
        numbers = self.batches * self.parameters
        absent, replaced = (
            (min(square, math.isqrt(numbers * square)), square) for square in (self.absent_square, self.square)
        )
        once = own_noise(self.owner, self.variance).release(
            f"encoder updates of {self.owner}",
            numbers,
            Sensitivity(*absent, *replaced),
            theorem=THEOREM,
            audience=self.audience,
            about=(self.owner,),
        )
        return once if self.epochs == 1 else RepeatedRelease(once, self.epochs)

    @property
    def events(self) -> tuple[Event, ...]:
        """What is charged."""
        return (self.event,)

    def calibrated(self, trust: Trust, budgets: Sequence[Budget]) -> PrivateTraining:
        """The same with the least noise that keeps every budget."""
        return add_least_noise(lambda noise: replace(self, noise=noise), trust, budgets, owners=1)


def train(
    learner: Learner, slopes_of: SlopesOf, plan: PrivateTraining, stream: Stream, *, rows: int | None = None
) -> None:
    """Train an encoder in place; nothing but noised sums of whole numbers reaches its parameters.

    ``rows`` is how many there are, if that is not what the plan says; it may be private where there is one batch.
    """
    present = plan.rows if rows is None else rows
    if present < 1 or (present != plan.rows and plan.batches > 1):
        raise StudyError(f"the plan has several batches of {plan.rows} rows together: as many must be there [ST326]")
    if learner.parameters != plan.parameters:
        raise StudyError(
            f"the encoder has {learner.parameters} parameters, and the plan is for {plan.parameters} [ST327]"
        )
    _refuse_slopes_that_mix_people(learner, slopes_of, present)
    velocity = np.zeros(plan.parameters)
    for _ in range(plan.epochs):
        for batch in range(plan.batches):
            places = np.arange(batch, present, plan.batches, dtype=np.int64)
            slopes = slopes_of(places, learner.embed(places))
            total = noised_sum(learner, places, slopes, plan.clip, lambda count: draw(plan, count, stream))
            velocity = plan.momentum * velocity + total * (plan.batches / plan.rows)
            learner.move(-plan.rate * velocity)


def draw(plan: PrivateTraining, count: int, stream: Stream) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The noise of one sum; audits attack this function."""
    return law_named(CLOSEST_TO_GAUSSIAN).sample(Fraction(plan.variance), (count,), stream)


def _refuse_slopes_that_mix_people(learner: Learner, slopes_of: SlopesOf, rows: int) -> None:
    """Try the function on some people together and apart: no proof, but most mistakes are found before they cost."""
    places = np.arange(min(rows, _TRIED), dtype=np.int64)
    found, half = learner.embed(places), len(places) // 2
    together = slopes_of(places, found)
    apart = np.vstack([slopes_of(places[part], found[part]) for part in (slice(half), slice(half, None))])
    if together.shape != found.shape or not np.allclose(together, apart, equal_nan=True):
        raise StudyError(
            "the slope of a person must follow from its own embedding and label, whoever stands beside it [ST328]"
        )
