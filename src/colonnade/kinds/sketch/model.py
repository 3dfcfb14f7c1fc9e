"""A mechanism that is only described: rounds of clipped, rounded, noisy sums over batches.

It has no program. A study states it to learn what such a mechanism would cost, and how well it protects.

The noise of an iterative mechanism, from its description; nothing can be fitted, so this is no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

from colonnade.errors import StudyError
from colonnade.models.planner import Count, PlanDetails, Planner, Positive, Roster, RowsAtMost
from colonnade.privacy import Event, PoissonSampled, RepeatedRelease, Sensitivity, Statement, Trust, parse_budgets
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.noise_laws import DEFAULT_LAW, FUNCTIONAL, AdditiveNoise, LawName
from colonnade.privacy.observers import largest_known_noise
from colonnade.privacy.sensitivity import rounded_norm_squared
from colonnade.protocols.committee_task import batch_observers
from colonnade.protocols.task import AdjustableTask, PricedTask

Sampling = Literal["poisson", "disjoint", "full"]
PROTOCOL = "sketch 1"
THEOREM = "moments-sensitivity"
_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class SketchTask(PricedTask, AdjustableTask):
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
    law: LawName
    noise: int
    known: int = 0

    clipped: ClassVar[str] = (
        "somebody keeps each person's contribution within the clip: no code of ours does, for a sketch"
    )
    rows_fixed: ClassVar[bool] = True
    why_no_rounds = None

    @property
    def priced(self) -> SketchTask:
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
            return (RepeatedRelease(PoissonSampled(release, rate, batch_observers(self.trust)), self.rounds),)
        return (RepeatedRelease(release, self.participations),)

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

    def with_multiplier(self, multiplier: float) -> SketchTask:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        return replace(self, noise=self.additive.least_scale(multiplier, self.sensitivity))

    def with_error(self, error: float) -> SketchTask:
        """The same with the most noise whose error is not above ``error``."""
        scale = self.additive.most_scale(Fraction(error) * self.batch * self.gamma)
        if not scale:
            raise StudyError(
                f"noise of deviation {error:g} is finer than this study's integers: raise task.gamma "
                f"({self.gamma}) [ST534]"
            )
        return replace(self, noise=scale)

    def with_rounds(self, rounds: int) -> SketchTask:
        """The same for another number of rounds."""
        return replace(self, rounds=rounds)

    def with_rows(self, rows: int) -> SketchTask:
        """The same for another number of people; batches keep their size, unless every batch is everybody."""
        return replace(self, rows=rows, batch=rows if self.sampling == "full" else self.batch)


_LARGEST = 2**62


@dataclass(frozen=True, kw_only=True)
class SketchPlanner(Planner[SketchTask]):
    """The public parameters of a sketch, as a study file states them.

    Without ``noise_multiplier`` the least noise that meets the budgets is chosen. With it, the noise is given, and the
    budgets are only compared with its cost.
    """

    rounds: Count
    rows: RowsAtMost
    dimension: Count
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    sampling: Sampling = "poisson"
    batch: Count | None = None
    clip: Positive = 1.0
    gamma: Count = 2**30
    noise: LawName = DEFAULT_LAW
    noise_multiplier: Positive | None = None

    kind: ClassVar[str] = "sketch"
    tasks: ClassVar[tuple[type[PricedTask], ...]] = (SketchTask,)
    why_not_run: ClassVar[str] = "is a sketch, and a sketch is priced, not run"

    def plan(self, roster: Roster) -> SketchTask:
        """The sketch with its noise."""
        draft = self.draft(roster)
        if self.noise_multiplier is not None:
            return draft.with_multiplier(self.noise_multiplier)
        trust = roster.trust
        budgets = parse_budgets(self.epsilon, self.delta, trust)
        return add_least_noise(lambda noise: replace(draft, noise=noise), trust, budgets, owners=draft.parts)

    def adjustable(self, roster: Roster, rows: int | None) -> SketchTask:
        """The sketch with very little noise, for this number of rows."""
        draft = self.draft(roster)
        if rows is not None and rows < draft.batch and draft.sampling != "full":
            raise StudyError(f"{rows} rows are fewer than a batch of this study has ({draft.batch}) [ST209]")
        return draft if rows is None else draft.with_rows(rows)

    def details(self, task: SketchTask, statement: Statement) -> PlanDetails:
        """How much noise the sketch has; it has no costs of messages or memory."""
        facts = {
            "rounds": task.rounds,
            "sampling": task.sampling,
            "rows": task.rows,
            "batch": task.batch,
            "participations": task.participations,
            "dimension": task.dimension,
            "noise": task.law,
            "noise_std": task.deviation,
            "noise_multiplier": task.multiplier,
            "error": task.error,
        }
        batches = {
            "poisson": f"each over a random batch of about {task.batch:,} of {task.rows:,} rows; "
            f"a person is in about {task.participations:,} of them",
            "disjoint": f"each over one of the fixed batches of {task.batch:,} of {task.rows:,} rows; "
            f"a person is in at most {task.participations:,} of them",
            "full": f"each over all {task.rows:,} rows",
        }
        norm = "L1" if task.law == FUNCTIONAL else "L2"
        lines = (
            f"{task.rounds:,} rounds, {batches[task.sampling]}",
            f"{task.law} noise of {task.multiplier:.4g} times the {norm} sensitivity on {task.dimension:,} "
            f"numbers: deviation {task.deviation:.4g} on a sum, {task.error:.4g} on a mean",
            "a sketch is priced and not run: the figures are those of a mechanism that does exactly this",
        )
        return PlanDetails(None, facts, brief=lines)

    def draft(self, roster: Roster) -> SketchTask:
        """The sketch with very little noise, before the noise is chosen."""
        batch, trust = self._batch(), roster.trust
        for name in ("rounds", "rows", "dimension", "gamma"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise StudyError(f"{name} of a sketch must be a whole number from 1 to 2^62 [ST210]")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise StudyError("clip of a sketch must be a positive number [ST211]")
        if self.noise_multiplier is not None and not 0 < self.noise_multiplier < math.inf:
            raise StudyError("noise_multiplier of a sketch must be a positive number [ST212]")
        known = largest_known_noise(trust, parse_budgets(self.epsilon, self.delta, trust))
        return SketchTask(
            trust, self.rounds, self.sampling, self.rows, batch, self.dimension, self.clip, self.gamma, self.noise,
            noise=len(trust.owners), known=known,
        )  # fmt: skip

    def _batch(self) -> int:
        if self.sampling == "full":
            if self.batch not in (None, self.rows):
                raise StudyError('batch has no meaning with sampling = "full": every round is about all rows [ST213]')
            return self.rows
        if self.batch is None or not 1 <= self.batch <= self.rows:
            raise StudyError(
                f'sampling = "{self.sampling}" needs batch, a whole number from 1 to rows ({self.rows}) [ST214]'
            )
        return self.batch
