"""From the description of an iterative mechanism to its noise; there is nothing to fit here, so it is no model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from colonnade.errors import StudyError
from colonnade.models.federation import Roster
from colonnade.privacy import parse_budgets
from colonnade.privacy.additive import USUAL, Law
from colonnade.privacy.calibrate import with_least_noise
from colonnade.privacy.observers import most_known
from colonnade.protocols.sketch import Sampling, Sketch

_LARGEST = 2**62


@dataclass(frozen=True, kw_only=True)
class SketchPlanner:
    """The public parameters of a sketch, as a study file states them.

    Without ``noise_multiplier`` the least noise that meets the budgets is found; with it, the noise is what it is
    and the budgets are only compared with what it costs.
    """

    rounds: int
    rows: int
    dimension: int
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    sampling: Sampling = "poisson"
    batch: int | None = None
    clip: float = 1.0
    gamma: int = 2**30
    noise: Law = USUAL
    noise_multiplier: float | None = None

    def plan(self, roster: Roster) -> Sketch:
        """The sketch with its noise."""
        draft = self.draft(roster)
        if self.noise_multiplier is not None:
            return draft.with_multiplier(self.noise_multiplier)
        trust = roster.trust
        budgets = parse_budgets(self.epsilon, self.delta, trust)
        return with_least_noise(lambda noise: replace(draft, noise=noise), trust, budgets, owners=draft.parts)

    def draft(self, roster: Roster) -> Sketch:
        """The sketch with hardly any noise, before that is chosen."""
        batch, trust = self._batch(), roster.trust
        for name in ("rounds", "rows", "dimension", "gamma"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise StudyError(f"{name} of a sketch must be a whole number from 1 to 2^62")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise StudyError("clip of a sketch must be a positive number")
        if self.noise_multiplier is not None and not 0 < self.noise_multiplier < math.inf:
            raise StudyError("noise_multiplier of a sketch must be a positive number")
        known = most_known(trust, parse_budgets(self.epsilon, self.delta, trust))
        return Sketch(
            trust, self.rounds, self.sampling, self.rows, batch, self.dimension, self.clip, self.gamma, self.noise,
            noise=len(trust.owners), known=known,
        )  # fmt: skip

    def _batch(self) -> int:
        if self.sampling == "full":
            if self.batch not in (None, self.rows):
                raise StudyError('batch has no meaning with sampling = "full": every round is about all rows')
            return self.rows
        if self.batch is None or not 1 <= self.batch <= self.rows:
            raise StudyError(f'sampling = "{self.sampling}" needs batch, a whole number from 1 to rows ({self.rows})')
        return self.batch
