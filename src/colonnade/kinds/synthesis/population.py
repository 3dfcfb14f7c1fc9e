"""What was learned about people: the release, the model that was fitted to it, and all that follows from both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.drawing import Drawn, draw, seeded
from colonnade.kinds.synthesis.fidelity import Agreement, agreements, counted, strongest
from colonnade.kinds.synthesis.intervals import refits
from colonnade.kinds.synthesis.mending import Made, Source
from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.tables.layout import Codes, TableLayout
from colonnade.kinds.tables.release import Marginal, MarginalsRelease
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.coding import decode_codes
from colonnade.tables.constraints import Constraint


@dataclass(frozen=True)
class Population:
    """People whose codes follow a distribution that was fitted to a release."""

    layout: TableLayout
    release: MarginalsRelease
    fitted: Products | str | None
    """The model, or why its fit failed; people of a mixture that was learned in rounds have none."""
    rules: tuple[Constraint, ...]
    place: int = field(default=0, kw_only=True)
    """0 for the model of the release, and from 1 on for models of releases with redrawn noise."""

    @property
    def count(self) -> float:
        """The noisy number of real people."""
        return self.release.count

    @property
    def public(self) -> Mapping[str, NDArray[Any]]:
        """What was published, from which people are drawn."""
        return self.release.arrays()

    def require_model(self) -> Products:
        """The fitted model; where there is none, an error says why, and how to get one."""
        if not isinstance(self.fitted, Products):
            raise StudyError(
                f"no model was fitted to the release ({self.fitted}); the release is whole, so load the model and call "
                "refit, such as refit(components=50), which costs nothing [ST347]"
            )
        return self.fitted

    def chances(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """The model's chances of all combinations of codes of some columns."""
        return self.require_model().marginal(columns)

    # --- made-up people

    def drawn(self, rows: int, *seed: int) -> Drawn:
        """So many made-up people, the same for the same seed: by public randomness, from what was published alone."""
        return draw(self._source, rows, seeded(self.public, rows, self.place, *seed), self.rules)

    @property
    def _source(self) -> Source:
        return Source(self._people, self._values, self._likelihood)

    def _people(self, rows: int, stream: Stream) -> Made:
        codes = self.layout.whole(self.require_model().sample(rows, stream))
        return Made(self._values(codes, stream), codes)

    def _values(self, codes: Codes, stream: Stream) -> Any:
        return decode_codes(self.layout.codings, codes, stream, self._shares)

    def _likelihood(self, codes: Codes) -> NDArray[np.float64]:
        return self.require_model().log_likelihood(codes[:, list(self.layout.free)])

    @cached_property
    def _shares(self) -> list[NDArray[np.float64] | None]:
        """The share of each code, by column; nothing for a column with a single one."""
        found: list[NDArray[np.float64] | None] = [None] * len(self.layout.columns)
        for column, place in enumerate(self.layout.free):
            found[place] = self.chances((column,))
        return found

    def again(self, times: int) -> list[Population]:
        """The same people by models of releases with redrawn noise: they differ as the noise made the first one differ.

        Each table drawn for an interval is as long as there are people.
        """
        if times not in self._again:
            stream, count = seeded(self.public, "noise"), self.release.residuals[0]
            fits = refits(
                self.require_model(),
                self.count,
                self.release.parts,
                times,
                stream,
                count_deviation=count.deviation,
                impossible=self.layout.boxes(self.rules),
            )
            self._again[times] = [replace(self, fitted=each, place=place) for place, each in enumerate(fits, 1)]
        return self._again[times]

    @cached_property
    def _again(self) -> dict[int, list[Population]]:
        return {}

    # --- what is known

    def marginal(self, names: Sequence[str]) -> Marginal:
        """How many people have each combination of values of these columns, with the noise in each number."""
        if not names:
            raise StudyError(
                'marginal takes the names of columns, such as marginal("bank.age", "clinic.smoker") [ST380]'
            )
        columns = [self.layout.place(name, "marginal") for name in names]
        if len(set(columns)) < len(columns):
            raise StudyError("marginal names a column twice; name different columns [ST381]")
        guess = self.chances(columns) * self.count
        labels = tuple(self.layout.columns[self.layout.free[column]].labels for column in columns)
        if not self.release.holds(columns):
            return Marginal(tuple(names), labels, guess, None, guess)
        return Marginal(tuple(names), labels, *self.release.marginal(columns, self.layout.sizes), guess)

    def log_likelihood(self, tables: Mapping[str, Table]) -> NDArray[np.float64]:
        """The logarithm of the chance of each person's codes."""
        codes = [self.layout.codes(party, tables[party]) for party in self.layout.codings]
        return self.require_model().log_likelihood(np.hstack(codes))

    @cached_property
    def agreements(self) -> list[Agreement]:
        """How exact the published counts are, and how well the model fits them, by the number of columns."""
        return agreements(self.release, self.chances, self.layout.sizes)

    def agreement_of(self, table: Any) -> dict[int, float]:
        """Chi-squared of a drawn table against the release, by its degrees of freedom, by the number of columns."""
        if not table.num_rows:
            return {each.order: math.inf for each in self.agreements}
        found = counted(self.layout.codes_of(table), self.layout.sizes)
        return {each.order: each.ratio for each in agreements(self.release, found, self.layout.sizes)}

    @cached_property
    def _pairs(self) -> list[tuple[tuple[int, ...], float]]:
        pairs = self.release.sets(2) or combinations(range(len(self.layout.free)), 2)
        return strongest(pairs, self.chances)

    def strongest(self, most: int) -> list[tuple[tuple[str, ...], float]]:
        """The pairs of columns that go together most, each with Cramér's V by the model."""
        return [(self.layout.column_names(columns), value) for columns, value in self._pairs[:most]]
