"""A mechanism that is only described: rounds of clipped, rounded, noisy sums over batches.

It has no program. A study states it to learn what such a mechanism would cost, and how well it protects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

from colonnade.errors import StudyError
from colonnade.privacy import Event, PoissonSampled, Repeated, Sensitivity, Trust
from colonnade.privacy.additive import AdditiveNoise, Law
from colonnade.privacy.sensitivity import rounded_norm_squared
from colonnade.protocols.on_shares import who_know_batches
from colonnade.protocols.task import Adjustable, Priced

Sampling = Literal["poisson", "disjoint", "full"]
PROTOCOL = "sketch 1"
THEOREM = "moments-sensitivity"
_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class Sketch(Priced, Adjustable):
    """In each round a batch's contributions are summed, each of L2 norm at most ``clip``, and noise is added.

    Contributions are scaled by ``gamma`` and rounded at random to integers. ``noise`` is the total of all owners:
    mu of Skellam noise, the variance of discrete Gaussian noise, or the scale of discrete Laplace noise. Laplace noise
    still hides a number when up to ``known`` owners subtract their shares of it.

    * ``poisson``: each person joins each batch with chance ``batch / rows``, by coins that owners and seats know;
    * ``disjoint``: a person's batch is fixed, and the batches take turns;
    * ``full``: every round is about everybody.
    """

    trust: Trust
    rounds: int
    sampling: Sampling
    rows: int
    batch: int
    dimension: int
    clip: float
    gamma: int
    law: Law
    noise: int
    known: int = 0

    clipped: ClassVar[str] = (
        "somebody keeps each person's contribution within the clip: no code of ours does, for a sketch"
    )
    rows_fixed: ClassVar[bool] = True
    why_no_rounds = None

    @property
    def priced(self) -> Sketch:
        """A sketch is what is priced, whatever its noise."""
        return self

    @property
    def rows_limit(self) -> int:
        """The exact number of people that the study states."""
        return self.rows

    rows_stated = number_of_rows = rows_limit

    @property
    def number_of_rounds(self) -> int:
        """How often a noisy sum is opened."""
        return self.rounds

    @property
    def rows_between(self) -> tuple[int, int]:
        """A batch is a part of the rows."""
        return 1 if self.sampling == "full" else self.batch, _MOST_ROWS

    @property
    def about_all(self) -> bool:
        """Whether every round is about everybody."""
        return self.sampling == "full"

    @property
    def additive(self) -> AdditiveNoise:
        """The noise of all owners on a number."""
        return AdditiveNoise(self.law, self.noise, self.trust.owners, self.known)

    @property
    def parts(self) -> int:
        """The number of equal parts of the noise; the noise is a multiple of it."""
        return self.additive.parts

    @property
    def participations(self) -> int:
        """How often one person's contribution can be opened; on average, where batches are drawn."""
        if self.sampling == "poisson":
            return max(1, math.ceil(Fraction(self.rounds * self.batch, self.rows)))
        return self.rounds if self.sampling == "full" else -(-self.rounds // -(-self.rows // self.batch))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move one round's sum of integers."""
        square = rounded_norm_squared(self.gamma, [self.clip], [self.dimension])
        return Sensitivity.from_l2(square, self.dimension)

    @property
    def events(self) -> tuple[Event, ...]:
        """What all rounds reveal."""
        theorem = f"{THEOREM}, fixed-batches" if self.sampling == "disjoint" else THEOREM
        release = self.additive.release("sum of contributions", self.dimension, self.sensitivity, theorem=theorem)
        if self.sampling == "poisson":
            rate = Fraction(self.batch, self.rows)
            return (Repeated(PoissonSampled(release, rate, who_know_batches(self.trust)), self.rounds),)
        return (Repeated(release, self.participations),)

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant."""
        return {
            "protocol": PROTOCOL,
            "events": [event.to_dict() for event in self.events],
            "trust": self.trust.to_dict(),
        }

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on one number of a round's sum, in the units of the clip."""
        return self.additive.deviation / self.gamma

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity; for Laplace noise the scale over L1 sensitivity."""
        return self.additive.multiple_of(self.sensitivity)

    @property
    def error(self) -> float:
        """Standard deviation of the noise on a number of the mean contribution of a batch."""
        return self.deviation / self.batch

    def with_multiplier(self, multiplier: float) -> Sketch:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        return replace(self, noise=self.additive.least_scale(multiplier, self.sensitivity))

    def with_error(self, error: float) -> Sketch:
        """The same with the most noise whose error is not above ``error``."""
        scale = self.additive.most_scale(Fraction(error) * self.batch * self.gamma)
        if not scale:
            raise StudyError(
                f"noise of deviation {error:g} is finer than this study's integers: raise task.gamma "
                f"({self.gamma}) [ST534]"
            )
        return replace(self, noise=scale)

    def with_rounds(self, rounds: int) -> Sketch:
        """The same for another number of rounds."""
        return replace(self, rounds=rounds)

    def with_rows(self, rows: int) -> Sketch:
        """The same for another number of people; batches keep their size, unless every batch is everybody."""
        return replace(self, rows=rows, batch=rows if self.sampling == "full" else self.batch)
