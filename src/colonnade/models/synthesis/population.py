"""What was learned about people: the release, the model that was fitted to it, and all that follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models.synthesis.drawing import Drawn, draw, seeded
from colonnade.models.synthesis.fidelity import Agreement, OfCodes, agreements, strongest
from colonnade.models.synthesis.layout import Layout
from colonnade.models.synthesis.release import Marginal, Release
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.coding import decode_codes
from colonnade.tables.impossible import Rule, violations


@dataclass(frozen=True)
class Population:
    """People whose codes follow a distribution that was fitted to a release."""

    layout: Layout
    release: Release
    fitted: OfCodes
    rules: tuple[Rule, ...]

    @property
    def count(self) -> float:
        """The noisy number of real people."""
        return self.release.count

    @property
    def public(self) -> Mapping[str, NDArray[Any]]:
        """What was published, from which people are drawn."""
        return self.release.arrays()

    # --- made-up people

    def drawn(self, rows: int, *seed: int) -> Drawn:
        """So many made-up people, the same for the same seed: by public randomness, from what was published alone."""
        stream = seeded(self.public, rows, *seed)
        return draw(self._people, rows, stream, partial(violations, self.rules) if self.rules else None)

    def _people(self, rows: int, stream: Stream) -> Any:
        codes = self.layout.whole(self.fitted.sample(rows, stream))
        return decode_codes(self.layout.codings, codes, stream, self._shares)

    @cached_property
    def _shares(self) -> list[NDArray[np.float64] | None]:
        """The share of each code, by column; nothing for a column with a single one."""
        found: list[NDArray[np.float64] | None] = [None] * len(self.layout.columns)
        for column, place in enumerate(self.layout.free):
            found[place] = self.fitted.marginal((column,))
        return found

    # --- what is known

    def marginal(self, names: Sequence[str]) -> Marginal:
        """How many people have each combination of values of these columns, with the noise in each number."""
        if not names:
            raise StudyError('marginal takes the names of columns, such as marginal("bank.age", "clinic.smoker")')
        columns = [self.layout.place(name, "marginal") for name in names]
        if len(set(columns)) < len(columns):
            raise StudyError("marginal names a column twice; name different columns")
        guess = self.fitted.marginal(columns) * self.count
        labels = tuple(self.layout.columns[self.layout.free[column]].labels for column in columns)
        if not self.release.holds(columns):
            return Marginal(tuple(names), labels, guess, None, guess)
        return Marginal(tuple(names), labels, *self.release.marginal(columns, self.layout.sizes), guess)

    def log_likelihood(self, tables: Mapping[str, Table]) -> NDArray[np.float64]:
        """The logarithm of the chance of each person's codes."""
        codes = [self.layout.codes(party, tables[party]) for party in self.layout.codings]
        return self.fitted.log_likelihood(np.hstack(codes))

    @cached_property
    def agreements(self) -> list[Agreement]:
        """How exact the published counts are, and how well the model fits them, by the number of columns."""
        return agreements(self.release, self.fitted, self.layout.sizes)

    def strongest(self, most: int) -> list[tuple[tuple[str, ...], float]]:
        """The pairs of columns that go together most, each with Cramér's V by the model."""
        found = strongest(self.release, self.fitted, most)
        return [(self.layout.called(columns), value) for columns, value in found]
