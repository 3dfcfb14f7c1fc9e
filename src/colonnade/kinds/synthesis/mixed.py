"""People of a fitted mixture: drawn from its components, and counted by codes as far as anybody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fidelity import dependence
from colonnade.kinds.synthesis.mending import Made, Source
from colonnade.kinds.synthesis.mixture.fitted import FittedMixture
from colonnade.kinds.synthesis.population import Population
from colonnade.kinds.tables.layout import Codes, TableLayout
from colonnade.kinds.tables.release import MarginalsRelease, Residual
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import Table
from colonnade.tables.cell_parsing import pa
from colonnade.tables.coding import joint_names
from colonnade.tables.constraints import Constraint
from colonnade.tables.encoding import decode

COUNTED = 50_000
"""People that are drawn to count those of a mixture by codes."""


@dataclass(frozen=True)
class Counted:
    """The distribution of codes among people that were drawn."""

    codes: Codes
    sizes: tuple[int, ...]

    def marginal(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """The shares of all combinations of codes of some columns."""
        shape = tuple(self.sizes[column] for column in columns)
        cells = np.ravel_multi_index(tuple(self.codes[:, column] for column in columns), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape) / len(self.codes)

    def log_likelihood(self, codes: Codes) -> NDArray[np.float64]:
        """Not known of codes: a mixture has densities of rows."""
        raise StudyError("a mixture knows how likely rows are, and not how likely codes are [ST369]")

    def sample(self, rows: int, stream: Stream) -> Codes:
        """Not drawn from here: a mixture makes values, and no codes."""
        raise StudyError("a mixture makes values, and no codes [ST370]")

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Nothing is kept of these people."""
        return {}


@dataclass(frozen=True)
class MixedPopulation(Population):
    """People of a mixture. Nothing was counted, so marginals have no error bars; the number of people is as stated."""

    mixture: FittedMixture

    @classmethod
    def of(
        cls, layout: TableLayout, mixture: FittedMixture, rows: int, rules: tuple[Constraint, ...]
    ) -> MixedPopulation:
        """The people of a mixture that was fitted to about ``rows`` people."""
        known = MarginalsRelease((Residual((), np.array(float(rows)), 0.0),))
        drawn = mixture.sample(COUNTED, Stream(bytes(KEY_BYTES)))
        codes = [coding.codes(drawn[party]) for party, coding in layout.codings.items()]
        return cls(layout, known, Counted(np.hstack(codes)[:, list(layout.free)], layout.sizes), rules, mixture)

    @property
    def public(self) -> Mapping[str, NDArray[Any]]:
        """What was published, from which people are drawn."""
        return self.mixture.arrays()

    @property
    def _source(self) -> Source:
        return Source(self._people)

    def _people(self, rows: int, stream: Stream) -> Made:
        found = self.mixture.sample(rows, stream)
        schemas = {party: coding.schema for party, coding in self.layout.codings.items()}
        columns = [column for party, schema in schemas.items() for column in decode(schema, found[party]).columns]
        return Made(pa.table(columns, names=list(joint_names(schemas))))

    def log_likelihood(self, tables: Mapping[str, Table]) -> NDArray[np.float64]:
        """The logarithm of the density of each person's encoded row."""
        return self.mixture.log_likelihood({party: table.unclipped().matrix() for party, table in tables.items()})

    @cached_property
    def _pairs(self) -> list[tuple[tuple[int, ...], float]]:
        pairs = combinations(range(len(self.layout.free)), 2)
        found = [(columns, dependence(self.fitted.marginal(columns))) for columns in pairs]
        return sorted(found, key=lambda pair: -pair[1])

    def strongest(self, most: int) -> list[tuple[tuple[str, ...], float]]:
        """The pairs of columns that go together most, each with Cramér's V by the model."""
        return [(self.layout.column_names(columns), value) for columns, value in self._pairs[:most]]
