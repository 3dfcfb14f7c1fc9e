"""What was learned about people: the release, the model that was fitted to it, and all that follows from both.

Shares of the people and means of numbers follow from the release alone, so no model is in them
(docs/theory/error-bars-components.md). People of a fitted mixture are drawn from its components, and counted by codes
as far as anybody asks.

How well a model or a table agrees with the release needs no look at data. Chi-squared weighs each difference by its
noise, whose level is public: about one for each degree of freedom means that the model says what the release says, as
far as the noise can tell. What was fitted to the same release may be closer: then it repeats some of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.intervals import refit_redrawn
from colonnade.kinds.synthesis.mixture.mixture_model import FittedMixture
from colonnade.kinds.synthesis.product_mixture import ProductMixture
from colonnade.kinds.synthesis.sampling import PeopleSampler, SampledPeople, SyntheticTable, public_stream, sample_table
from colonnade.kinds.tables.layout import Codes, TableLayout
from colonnade.kinds.tables.release import Marginal, MarginalsRelease, Residual, misfit
from colonnade.models.estimates import NORMAL_95, Estimate
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import Table
from colonnade.tables.bins import Bins
from colonnade.tables.cell_parsing import pa
from colonnade.tables.coding import decode_codes, joint_names
from colonnade.tables.constraints import Constraint
from colonnade.tables.encoding import decode

Numbers = NDArray[np.float64]


ChanceFunction = Callable[[Sequence[int]], Numbers]
"""From some columns to the chances of all combinations of their codes."""


def count_chances(codes: Codes, sizes: Sequence[int]) -> ChanceFunction:
    """The shares of the rows of a table that have each combination of codes."""

    def chances(columns: Sequence[int]) -> Numbers:
        shape = tuple(sizes[column] for column in columns)
        cells = np.ravel_multi_index(tuple(codes[:, column] for column in columns), shape)
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(codes)

    return chances


@dataclass(frozen=True)
class ReleaseAgreement:
    """All marginals of one order: how many, how noisy a cell is, and how far a model or a table is from them.

    ``deviation`` is the standard deviation of the noise of a cell of a marginal, in people, the median over the
    marginals and the largest of them. Where the model is as close to the release as the truth is, ``chi_squared`` is
    about ``degrees``.
    """

    order: int
    sets: int
    deviation: float
    largest: float
    chi_squared: float
    degrees: int

    @property
    def ratio(self) -> float:
        """Chi-squared by its degrees of freedom."""
        return self.chi_squared / max(1, self.degrees)


def measure_agreement(
    release: MarginalsRelease, chances: ChanceFunction, sizes: Sequence[int]
) -> list[ReleaseAgreement]:
    """One line for each order of marginals that was asked for."""
    found = []
    for order in (1, 2, 3):
        sets = [columns for columns in release.sets(order) if release.holds(columns)]
        if not sets:
            continue
        spreads = [float(release.marginal(columns, sizes)[1].flat[0]) for columns in sets]
        parts = [part for columns in sets if (part := release.part(columns)) is not None]
        chi, degrees = misfit(chances, release.count, parts)
        found.append(ReleaseAgreement(order, len(sets), float(np.median(spreads)), max(spreads), chi, degrees))
    return found


def measure_dependence(joint: Numbers) -> float:
    """Cramér's V of two columns, from 0 (independent) to 1, by the chances of their combinations."""
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    there = expected > 0
    squared = float(np.sum((joint - expected)[there] ** 2 / expected[there]))
    return math.sqrt(min(1.0, squared / max(1, min(joint.shape) - 1)))


def strongest_pairs(pairs: Iterable[tuple[int, ...]], chances: ChanceFunction) -> list[tuple[tuple[int, ...], float]]:
    """Pairs of columns with how much they depend on each other by the model, the strongest first."""
    found = [(columns, measure_dependence(chances(columns))) for columns in pairs]
    return sorted(found, key=lambda pair: -pair[1])


@dataclass(frozen=True)
class Population:
    """People whose codes follow a distribution that was fitted to a release."""

    layout: TableLayout
    release: MarginalsRelease
    fitted: ProductMixture | str | None
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

    def require_model(self) -> ProductMixture:
        """The fitted model; where there is none, an error says why, and how to get one."""
        if not isinstance(self.fitted, ProductMixture):
            raise StudyError(
                f"no model was fitted to the release ({self.fitted}); the release is whole, so load the model and call "
                "refit, such as refit(components=50), which costs nothing [ST347]"
            )
        return self.fitted

    def chances(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """The model's chances of all combinations of codes of some columns."""
        return self.require_model().marginal(columns)

    # --- made-up people

    def sample_table(self, rows: int, *seed: int) -> SyntheticTable:
        """So many made-up people, the same for the same seed: by public randomness, from what was published alone."""
        return sample_table(self._source, rows, public_stream(self.public, rows, self.place, *seed), self.rules)

    @property
    def _source(self) -> PeopleSampler:
        return PeopleSampler(self._people, self._values, self._likelihood)

    def _people(self, rows: int, stream: Stream) -> SampledPeople:
        codes = self.layout.whole(self.require_model().sample(rows, stream))
        return SampledPeople(self._values(codes, stream), codes)

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

    def redraw_noise(self, times: int) -> list[Population]:
        """The same people by models of releases with redrawn noise: they differ as the noise made the first one differ.

        Each table drawn for an interval is as long as there are people.
        """
        if times not in self._again:
            stream, count = public_stream(self.public, "noise"), self.release.residuals[0]
            fits = refit_redrawn(
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
    def agreements(self) -> list[ReleaseAgreement]:
        """How exact the published counts are, and how well the model fits them, by the number of columns."""
        return measure_agreement(self.release, self.chances, self.layout.sizes)

    def agreement_of(self, table: Any) -> dict[int, float]:
        """Chi-squared of a drawn table against the release, by its degrees of freedom, by the number of columns."""
        if not table.num_rows:
            return {each.order: math.inf for each in self.agreements}
        found = count_chances(self.layout.codes_of(table), self.layout.sizes)
        return {each.order: each.ratio for each in measure_agreement(self.release, found, self.layout.sizes)}

    @cached_property
    def _pairs(self) -> list[tuple[tuple[int, ...], float]]:
        pairs = self.release.sets(2) or combinations(range(len(self.layout.free)), 2)
        return strongest_pairs(pairs, self.chances)

    def strongest_pairs(self, most: int) -> list[tuple[tuple[str, ...], float]]:
        """The pairs of columns that go together most, each with Cramér's V by the model."""
        return [(self.layout.column_names(columns), value) for columns, value in self._pairs[:most]]


COUNTED_PEOPLE = 50_000
"""People that are drawn to count those of a mixture by codes."""


@dataclass(frozen=True)
class MixturePopulation(Population):
    """People of a mixture. Nothing was counted, so marginals have no error bars; the number of people is as stated."""

    mixture: FittedMixture
    codes: Codes
    """Of people who were drawn from it."""

    @classmethod
    def of(
        cls, layout: TableLayout, mixture: FittedMixture, rows: int, rules: tuple[Constraint, ...]
    ) -> MixturePopulation:
        """The people of a mixture that was fitted to about ``rows`` people."""
        known = MarginalsRelease((Residual((), np.array(float(rows)), 0.0),))
        drawn = mixture.sample(COUNTED_PEOPLE, Stream(bytes(KEY_BYTES)))
        codes = [coding.codes(drawn[party]) for party, coding in layout.codings.items()]
        return cls(layout, known, None, rules, mixture, np.hstack(codes)[:, list(layout.free)])

    @property
    def public(self) -> Mapping[str, NDArray[Any]]:
        """What was published, from which people are drawn."""
        return self.mixture.arrays()

    def chances(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """The shares of all combinations of codes of some columns, among people who were drawn."""
        return count_chances(self.codes, self.layout.sizes)(columns)

    def redraw_noise(self, times: int) -> list[Population]:
        """Refused: a mixture is not learned again."""
        raise StudyError('several tables need method "marginals", whose fit can be repeated [ST379]')

    @property
    def _source(self) -> PeopleSampler:
        return PeopleSampler(self._people)

    def _people(self, rows: int, stream: Stream) -> SampledPeople:
        found = self.mixture.sample(rows, stream)
        schemas = {party: coding.schema for party, coding in self.layout.codings.items()}
        columns = [column for party, schema in schemas.items() for column in decode(schema, found[party]).columns]
        return SampledPeople(pa.table(columns, names=list(joint_names(schemas))))

    def log_likelihood(self, tables: Mapping[str, Table]) -> NDArray[np.float64]:
        """The logarithm of the density of each person's encoded row."""
        return self.mixture.log_likelihood({party: table.unclipped().matrix() for party, table in tables.items()})


def column_shares(people: Population) -> dict[str, dict[str, Estimate]]:
    """For each column the share of the people who have each value; where nothing was counted, that of the model."""
    return {name: _estimate_shares(people, column) for column, name in enumerate(_column_names(people))}


def column_means(people: Population) -> dict[str, Estimate]:
    """The mean of each number, as far as it was counted: every person counts as the middle of its bin.

    Missing cells are left out. A number of whom nobody, or less than nobody, was counted has no mean.
    """
    found = {}
    for column, name in enumerate(_column_names(people)):
        coding = people.layout.columns[people.layout.free[column]]
        if coding.bins is not None and (mean := _estimate_mean(people, column, name, coding.bins)) is not None:
            found[name] = mean
    return found


def _column_names(people: Population) -> tuple[str, ...]:
    return people.layout.column_names(range(len(people.layout.free)))


def _estimate_shares(people: Population, column: int) -> dict[str, Estimate]:
    found = people.marginal(_column_names(people)[column : column + 1])
    part, count = people.release.part((column,)), people.release.residuals[0]
    labels, size = found.labels[0], len(found.labels[0])
    if found.deviations is None or part is None:
        return {label: Estimate(share) for label, share in zip(labels, found.fitted / people.count, strict=True)}
    estimates = {}
    for label, share in zip(labels, (found.counts / people.count).tolist(), strict=True):
        # A cell is count / size + residual, so the count moves the share by no more than the residual's part of it.
        own = part.deviation**2 * (1 - 1 / size)
        deviation = math.sqrt(own + ((share - 1 / size) * count.deviation) ** 2) / people.count
        reach = NORMAL_95 * deviation
        estimates[label] = Estimate(share, deviation, (max(0.0, share - reach), min(1.0, share + reach)))
    return estimates


def _estimate_mean(people: Population, column: int, name: str, bins: Bins) -> Estimate | None:
    found = people.marginal([name])
    middles = np.add(*bins.extremes) / 2
    counts = found.counts[: len(bins)]  # a missing cell has the last code
    total = float(counts.sum())
    if total < 1:
        return None
    mean = float(middles @ counts) / total
    part = people.release.part((column,))
    if found.deviations is None or part is None:
        return Estimate(mean)
    weights = np.zeros(len(found.counts))
    weights[: len(bins)] = (middles - mean) / total
    deviation = _deviation_of_sum(weights, part, people.release.residuals[0])
    return Estimate(mean, deviation)


def _deviation_of_sum(weights: NDArray[np.float64], part: Residual, count: Residual) -> float:
    """That of a weighted sum of the cells of one column: cells share the count, and residuals add up to zero."""
    whole = float(weights.sum()) / len(weights)
    own = float(weights @ weights) - len(weights) * whole**2
    return math.sqrt(max(0.0, own) * part.deviation**2 + (whole * count.deviation) ** 2)
