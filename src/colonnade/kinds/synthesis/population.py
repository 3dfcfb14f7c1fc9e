"""What was learned about people: the release, the model that was fitted to it, and all that follows from both.

Shares of the people and means of numbers follow from the release alone, so no model is in them
(docs/theory/error-bars-components.md). People who cannot be are mended so that single columns stay as they are: other
values in the same bins, or exchanges. People of a fitted mixture are drawn from its components, and counted by codes
as far as anybody asks.

How well a model or a table agrees with the release needs no look at data. Chi-squared weighs each difference by its
noise, whose level is public: about one for each degree of freedom means that the model says what the release says, as
far as the noise can tell. What was fitted to the same release may be closer: then it repeats some of the noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.learners import FittedMixture
from colonnade.kinds.synthesis.release_fit import ProductMixture, refit_redrawn
from colonnade.kinds.tables.layout import Codes, TableLayout
from colonnade.kinds.tables.release import Marginal, MarginalsRelease, Residual, misfit
from colonnade.models.estimates import NORMAL_95, Estimate
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import Table
from colonnade.tables.bins import Bins
from colonnade.tables.cell_parsing import pa
from colonnade.tables.coding import decode_codes, joint_names
from colonnade.tables.encoding import decode
from colonnade.tables.schema import Constraint, find_violations

Numbers = NDArray[np.float64]
Places = NDArray[np.intp]


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
class SampledPeople:
    """People as a table and, where they were made from codes, these, a column for each of the table's."""

    table: Any
    codes: Codes | None = None


MAX_REDRAWS = 30
"""How often a person who cannot be is drawn again; whoever still cannot be is left out."""


@dataclass(frozen=True)
class SyntheticTable:
    """A table of made-up people.

    ``redrawn`` is how many could not be when they were first drawn, and ``dropped`` how many were left out for it.
    """

    table: Any
    redrawn: int = 0
    dropped: int = 0


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
        """So many made-up people, the same for the same seed: by public randomness, from what was published alone.

        They are fewer where the model makes possible ones too rarely. People who cannot be are mended so that single
        columns stay as they are. Only whoever cannot be mended is drawn again from the whole model.
        """
        stream = public_stream(self.public, rows, self.place, *seed)
        made = self.draw(rows, stream)
        wrong = find_violations(self.rules, made.table)
        first = int(wrong.sum())
        if not first:
            return SyntheticTable(made.table)
        table = mend_people(made, self, stream).table
        wrong = find_violations(self.rules, table)
        for _ in range(MAX_REDRAWS):
            places = np.flatnonzero(wrong)
            if not len(places):
                break
            # The new ones take the places of the wrong ones, so that the order tells nothing about who was drawn again.
            again = self.draw(len(places), stream).table
            table = replace_rows(table, places, again)
            wrong[places] = find_violations(self.rules, again)
        dropped = int(wrong.sum())
        return SyntheticTable(table.filter(pa.array(~wrong)) if dropped else table, first, dropped)

    def draw(self, rows: int, stream: Stream) -> SampledPeople:
        """So many new people."""
        codes = self.layout.whole(self.require_model().sample(rows, stream))
        return SampledPeople(self.values(codes, stream), codes)

    def values(self, codes: Codes, stream: Stream) -> Any:
        """New values for given codes."""
        return decode_codes(self.layout.codings, codes, stream, self._shares)

    def likelihood(self, codes: Codes) -> NDArray[np.float64]:
        """How likely codes of all columns are."""
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

    def draw(self, rows: int, stream: Stream) -> SampledPeople:
        """So many new people, who were not made from codes."""
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


_VALUES, _EXCHANGES = 10, 5
"""How often values are drawn again within their bins, and how often exchanges are looked for."""
_PARTNERS = 16
"""Among how many others the best exchange is looked for."""


def mend_people(made: SampledPeople, source: Population, stream: Stream) -> SampledPeople:
    """The same people, of whom as many as possible can be; no code of a single column is more or less frequent.

    Values are drawn again within their bins first; whoever is wrong then exchanges cells with others.
    """
    table, codes, rules = made.table, made.codes, source.rules
    if codes is not None:
        table = _redraw_values(table, codes, source, stream)
    wrong = find_violations(rules, table)
    for _ in range(_EXCHANGES):
        if not wrong.any():
            break
        table, codes = _exchange_cells(SampledPeople(table, codes), source, wrong, stream)
        wrong = find_violations(rules, table)
    return SampledPeople(table, codes)


def _redraw_values(table: Any, codes: Codes, source: Population, stream: Stream) -> Any:
    """Whoever is wrong with other values of the same codes."""
    left = np.flatnonzero(find_violations(source.rules, table))
    found, where = [], []
    for _ in range(_VALUES):
        if not len(left):
            break
        again = source.values(codes[left], stream)
        right = ~find_violations(source.rules, again)
        found.append(again.filter(pa.array(right)))
        where.append(left[right])
        left = left[~right]
    return replace_rows(table, np.concatenate(where), pa.concat_tables(found)) if found else table


def replace_rows(table: Any, places: Places, new: Any) -> Any:
    """The table with other rows at some places."""
    order = np.arange(table.num_rows)
    order[places] = table.num_rows + np.arange(len(places))
    return pa.concat_tables([table, new]).unify_dictionaries().combine_chunks().take(pa.array(order))


def _exchange_cells(
    made: SampledPeople, source: Population, wrong: NDArray[np.bool_], stream: Stream
) -> tuple[Any, Codes | None]:
    """Whoever is wrong exchanges one cell with somebody, after which both can be and are as likely as possible."""
    good = np.flatnonzero(~wrong)
    good = good[np.argsort(stream.uint64(len(good)))] if len(good) else good
    many = int(wrong.sum())
    each = min(_PARTNERS, len(good) // many) or 1
    places = np.flatnonzero(wrong)[: len(good) // each]
    # Nobody is a partner twice, so that exchanges do not get in each other's way.
    partners = good[: len(places) * each].reshape(len(places), each)
    columns = _choose_columns(made.table.take(pa.array(places)), source.rules, stream)
    table, codes = made.table, None if made.codes is None else made.codes.copy()
    for column in np.unique(columns):
        own, others = places[columns == column], partners[columns == column]
        first, second = np.repeat(own, each), others.ravel()
        possible = _possible_exchanges(made.table, first, second, int(column), source.rules)
        score = _score_exchanges(made.codes, source, first, second, int(column))
        best = np.where(possible, score, -np.inf).reshape(others.shape)
        chosen = best.argmax(axis=1)
        found = possible.reshape(others.shape).any(axis=1)
        mine, theirs = own[found], others[np.arange(len(own)), chosen][found]
        order = np.arange(table.num_rows)
        order[mine], order[theirs] = theirs, mine
        name = table.column_names[column]
        table = table.set_column(int(column), name, table.column(int(column)).take(pa.array(order)))
        if codes is not None:
            codes[:, column] = codes[order, column]
    return table, codes


def _choose_columns(people: Any, rules: Sequence[Constraint], stream: Stream) -> NDArray[np.int64]:
    """For each of some people a column of a rule that they break, by its place."""
    found = np.zeros(people.num_rows, dtype=np.int64)
    drawn = stream.uint64(people.num_rows)
    for rule in rules:
        named = np.array([people.column_names.index(name) for name in sorted(rule.names)])
        broken = rule.find_violations(people)
        found[broken] = named[(drawn[broken] % np.uint64(len(named))).astype(np.int64)]
    return found


def _possible_exchanges(
    table: Any, first: Places, second: Places, column: int, rules: Sequence[Constraint]
) -> NDArray[np.bool_]:
    """Whether both of each pair of people can be after they exchanged a cell."""
    one, other = table.take(pa.array(first)), table.take(pa.array(second))
    name, cells = table.column_names[column], (one.column(column), other.column(column))
    changed = one.set_column(column, name, cells[1]), other.set_column(column, name, cells[0])
    return np.asarray(~(find_violations(rules, changed[0]) | find_violations(rules, changed[1])))


def _score_exchanges(
    codes: Codes | None, source: Population, first: Places, second: Places, column: int
) -> NDArray[np.float64]:
    """How likely both of each pair of people are after they exchanged a cell; all alike where nobody knows."""
    if codes is None:
        return np.zeros(len(first))
    one, other = codes[first], codes[second]
    one[:, column], other[:, column] = codes[second, column], codes[first, column]
    return np.maximum(source.likelihood(one) + source.likelihood(other), -1e300)


def public_stream(released: Mapping[str, NDArray[Any]], *also: object) -> Stream:
    """A stream that follows from what was published: whoever has the release draws the same people.

    This is public randomness, and need not be secret: the release has its noise already, and whatever is computed from
    it, by any rule, tells no more than it does.
    """
    state = hashlib.sha256(b"colonnade synthetic people 1")
    for name in sorted(released):
        state.update(f"{name}:{released[name].dtype.str}:{released[name].shape}:".encode())
        state.update(np.ascontiguousarray(released[name]).tobytes())
    state.update(repr(also).encode())
    return Stream(state.digest())
