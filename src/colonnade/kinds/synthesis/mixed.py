"""People of a fitted mixture: drawn from its components, and counted by codes as far as anybody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fidelity import counted
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
class MixedPopulation(Population):
    """People of a mixture. Nothing was counted, so marginals have no error bars; the number of people is as stated."""

    mixture: FittedMixture
    codes: Codes
    """Of people who were drawn from it."""

    @classmethod
    def of(
        cls, layout: TableLayout, mixture: FittedMixture, rows: int, rules: tuple[Constraint, ...]
    ) -> MixedPopulation:
        """The people of a mixture that was fitted to about ``rows`` people."""
        known = MarginalsRelease((Residual((), np.array(float(rows)), 0.0),))
        drawn = mixture.sample(COUNTED, Stream(bytes(KEY_BYTES)))
        codes = [coding.codes(drawn[party]) for party, coding in layout.codings.items()]
        return cls(layout, known, None, rules, mixture, np.hstack(codes)[:, list(layout.free)])

    @property
    def public(self) -> Mapping[str, NDArray[Any]]:
        """What was published, from which people are drawn."""
        return self.mixture.arrays()

    def chances(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """The shares of all combinations of codes of some columns, among people who were drawn."""
        return counted(self.codes, self.layout.sizes)(columns)

    def again(self, times: int) -> list[Population]:
        """Refused: a mixture is not learned again."""
        raise StudyError('several tables need method "marginals", whose fit can be repeated [ST379]')

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
