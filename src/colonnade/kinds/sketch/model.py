"""The noise of an iterative mechanism, from its description; nothing can be fitted, so this is no model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from colonnade.errors import StudyError
from colonnade.kinds.sketch.task import Sampling, Sketch
from colonnade.models.parameters import Count, Positive, RowsAtMost
from colonnade.models.planner import Details, Planner
from colonnade.models.roster import Roster
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.additive import LAPLACE, USUAL, Law
from colonnade.privacy.calibrate import with_least_noise
from colonnade.privacy.observers import most_known
from colonnade.protocols.task import Priced

_LARGEST = 2**62


@dataclass(frozen=True, kw_only=True)
class SketchPlanner(Planner[Sketch]):
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
    noise: Law = USUAL
    noise_multiplier: Positive | None = None

    kind: ClassVar[str] = "sketch"
    tasks: ClassVar[tuple[type[Priced], ...]] = (Sketch,)
    why_not_run: ClassVar[str] = "is a sketch, and a sketch is priced, not run"

    def plan(self, roster: Roster) -> Sketch:
        """The sketch with its noise."""
        draft = self.draft(roster)
        if self.noise_multiplier is not None:
            return draft.with_multiplier(self.noise_multiplier)
        trust = roster.trust
        budgets = parse_budgets(self.epsilon, self.delta, trust)
        return with_least_noise(lambda noise: replace(draft, noise=noise), trust, budgets, owners=draft.parts)

    def adjustable(self, roster: Roster, rows: int | None) -> Sketch:
        """The sketch with very little noise, for this number of rows."""
        draft = self.draft(roster)
        if rows is not None and rows < draft.batch and draft.sampling != "full":
            raise StudyError(f"{rows} rows are fewer than a batch of this study has ({draft.batch}) [ST209]")
        return draft if rows is None else draft.with_rows(rows)

    def details(self, task: Sketch, statement: Statement) -> Details:
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
        norm = "L1" if task.law == LAPLACE else "L2"
        lines = (
            f"{task.rounds:,} rounds, {batches[task.sampling]}",
            f"{task.law} noise of {task.multiplier:.4g} times the {norm} sensitivity on {task.dimension:,} "
            f"numbers: deviation {task.deviation:.4g} on a sum, {task.error:.4g} on a mean",
            "a sketch is priced and not run: the figures are those of a mechanism that does exactly this",
        )
        return Details(None, facts, brief=lines)

    def draft(self, roster: Roster) -> Sketch:
        """The sketch with very little noise, before the noise is chosen."""
        batch, trust = self._batch(), roster.trust
        for name in ("rounds", "rows", "dimension", "gamma"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise StudyError(f"{name} of a sketch must be a whole number from 1 to 2^62 [ST210]")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise StudyError("clip of a sketch must be a positive number [ST211]")
        if self.noise_multiplier is not None and not 0 < self.noise_multiplier < math.inf:
            raise StudyError("noise_multiplier of a sketch must be a positive number [ST212]")
        known = most_known(trust, parse_budgets(self.epsilon, self.delta, trust))
        return Sketch(
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
