"""How a mixture's parameters follow from opened sums: by variational inference, or by expectation maximisation.

Every participant holds an equal learner and gives it the same opened numbers. Floats may still differ a little between
machines. That is harmless to privacy: an owner's integers are within their bounds for any parameters, and the
parameters of a machine are a function of what was opened before. In the end everybody gets the speaker's parameters.

A :class:`MixtureModel` lies over the columns of several owners: what follows from its parameters, and made-up rows once
it is fitted. Its parameters are one array, a row for each component: the logit of its weight, then each
owner's part in turn.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, log_softmax, logsumexp, ndtri, softmax

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.components import (
    BETA_INSET,
    PARAMETER_LIMIT,
    BernoulliColumn,
    BetaColumn,
    CategoricalColumn,
    ColumnFamily,
    ColumnStatistics,
    ComponentRows,
    GaussianColumn,
    LinearDerivatives,
    Matrix as Matrix,
    OwnComponents,
    RowStatistics,
    adjacent_spans,
)
from colonnade.randomness import Stream
from colonnade.tables.columns import Codes, Column

_CERTAINTY = 4.0  # of the Beta columns at the start: the sum of both shape parameters
_NARROW = 0.25  # deviation of Gaussian columns at the start
_MIDDLE, _SPREAD = 0.5, 0.5
_TYPICAL, _FACTOR = math.log(0.2), 1.0


class MixtureModel:
    """K components over the columns of several owners, who keep the same people in the same order."""

    def __init__(self, owns: Sequence[OwnComponents], components: int) -> None:
        self.owns = tuple(owns)
        self.components = components
        self.parts = adjacent_spans((own.width for own in self.owns), 1)
        """Which columns of the parameters belong to which owner."""
        self.width = self.parts[-1].stop
        """How many parameters a component has, with its weight."""

    def log_joint(self, rows: Sequence[ComponentRows], parameters: Matrix) -> Matrix:
        """Log weight plus log density of every row under every component, (n, K); ``rows`` are each owner's."""
        found = self.owns[0].log_densities(rows[0], parameters[:, self.parts[0]])
        for own, held, part in zip(self.owns[1:], rows[1:], self.parts[1:], strict=True):
            found += own.log_densities(held, parameters[:, part])
        found += log_softmax(np.clip(parameters[:, 0], -PARAMETER_LIMIT, PARAMETER_LIMIT))
        return found

    def log_likelihood(self, rows: Sequence[ComponentRows], parameters: Matrix) -> NDArray[np.float64]:
        """The log density of every row."""
        return np.asarray(logsumexp(self.log_joint(rows, parameters), axis=1))

    def prior_slope(self, parameters: Matrix) -> Matrix:
        """The slope of the log prior at these parameters."""
        inside = np.clip(parameters, -PARAMETER_LIMIT, PARAMETER_LIMIT)
        found = gamma_slope(inside)
        for own, part in zip(self.owns, self.parts, strict=True):
            for name, family in own.families.items():
                place = slice(part.start + own.places[name].start, part.start + own.places[name].stop)
                found[:, place] = prior_slope(family, inside[:, place])
        return found

    def scales(self, parameters: Matrix) -> Matrix:
        """By what the derivatives of the owners' log densities are multiplied, and 1 for the weights."""
        parts = [own.scales(parameters[:, part]) for own, part in zip(self.owns, self.parts, strict=True)]
        return np.hstack([np.ones((len(parameters), 1)), *parts])

    def start(self, stream: Stream, spread: float = 0.5) -> Matrix:
        """Components that differ by chance around dull ones: equal weights and chances, wide numbers."""
        found = spread * normal_draws(stream, (self.components, self.width))
        found[:, 0] = 0.0
        for own, part in zip(self.owns, self.parts, strict=True):
            for name, family in own.families.items():
                first = part.start + own.places[name].start
                if isinstance(family, BetaColumn):
                    found[:, first : first + 2] += np.log(_CERTAINTY / 2)
                if isinstance(family, GaussianColumn):
                    found[:, first] = 0.5 + found[:, first] / 2
                    found[:, first + 1] = np.log(_NARROW)
        return found


def normal_draws(stream: Stream, shape: tuple[int, ...]) -> Matrix:
    """Normal draws from a stream; whoever holds its key draws the same."""
    return np.asarray(ndtri(((stream.uint64(shape) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


@dataclass(frozen=True)
class ParameterPosterior:
    """Independent normals of the parameters: their means and deviations, (K, ``MixtureModel.width``)."""

    mean: Matrix
    deviation: Matrix


def gamma_slope(parameters: Matrix) -> Matrix:
    """The slope of the log prior of logits, and of logarithms of shape parameters.

    What is believed before any data is proper, public and the same for every component: mixing weights and the chances
    of a category are uniform over all that add up to 1 (Dirichlet with all ones), shape parameters of a Beta are
    Gamma(1, 1), the chance of a flag is uniform. All are densities of unconstrained parameters: the logarithm u of a
    Gamma(1, 1) variable has log density u - e^u, and independent Gamma(1, 1) variables divided by their sum are uniform
    over the simplex, so logits have that density too.
    """
    return 1.0 - np.exp(parameters)


def prior_slope(family: ColumnFamily, parameters: Matrix) -> Matrix:
    """The slope of the log prior of one column's parameters, (K, ``family.width``)."""
    if isinstance(family, BernoulliColumn):
        return -np.tanh(parameters / 2)
    if isinstance(family, GaussianColumn):
        middle, typical = (_MIDDLE - parameters[:, :1]) / _SPREAD**2, (_TYPICAL - parameters[:, 1:]) / _FACTOR**2
        return np.hstack([middle, typical])
    return gamma_slope(parameters)


@dataclass(frozen=True)
class FittedMixture:
    """A mixture with what is known of its parameters; rows are given and made as the owners' encoders leave them."""

    owners: tuple[str, ...]
    model: MixtureModel
    posterior: ParameterPosterior

    def log_likelihood(self, rows: Mapping[str, Matrix]) -> NDArray[np.float64]:
        """The log density of every person at the mean of the posterior; ``rows`` are each owner's encoded rows."""
        return self.model.log_likelihood([rows[owner] for owner in self.owners], self.posterior.mean)

    def sample(self, rows: int, stream: Stream) -> dict[str, Matrix]:
        """Made-up people at the mean of the posterior: encoded rows by owner, the same people in the same order.

        Components get their shares of the rows up to one row. Nobody has a missing cell.
        """
        members = _assign_components(softmax(self.posterior.mean[:, 0]), rows, stream)
        found = {}
        for owner, own, part in zip(self.owners, self.model.owns, self.model.parts, strict=True):
            found[owner] = _sample_rows(own, self.posterior.mean[:, part], members, stream)
        return found

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """What to save beside the model's description."""
        return {"mean": self.posterior.mean, "deviation": self.posterior.deviation}


def _assign_components(weights: NDArray[np.float64], rows: int, stream: Stream) -> Codes:
    """A component for every row: shares of the rows up to one row, in an order that says nothing."""
    marks = (np.arange(rows) + uniform_draws(stream, 1)) / max(1, rows)
    codes = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(codes[np.argsort(stream.uint64(rows), kind="stable")], dtype=np.int64)


def _sample_rows(own: OwnComponents, parameters: Matrix, members: Codes, stream: Stream) -> Matrix:
    found = np.zeros((len(members), own.schema.encoded_width))
    inside = np.clip(parameters, -PARAMETER_LIMIT, PARAMETER_LIMIT)
    for name, family in own.families.items():
        chosen, column = inside[:, own.places[name]][members], own.schema.columns[name]
        _sample_column(found[:, own.schema.encoded_slices[name]], chosen, column, family, stream)
    return found


def _sample_column(out: Matrix, parameters: Matrix, column: Column, family: ColumnFamily, stream: Stream) -> None:
    chance = uniform_draws(stream, len(out))
    if isinstance(family, BernoulliColumn):
        out[:, 0] = chance < 1 / (1 + np.exp(-parameters[:, 0]))
        return
    if isinstance(family, CategoricalColumn):
        ends = np.cumsum(softmax(parameters, axis=1), axis=1)
        codes = np.minimum((ends <= chance[:, None]).sum(axis=1), family.width - 1)
        if column.quantity is None:
            out[np.arange(len(out)), codes] = 1.0
            return
        place = (codes + uniform_draws(stream, len(out))) / family.width
    elif isinstance(family, BetaColumn):
        shapes = np.exp(parameters)
        place = np.clip((betaincinv(shapes[:, 0], shapes[:, 1], chance) - BETA_INSET) / (1 - 2 * BETA_INSET), 0.0, 1.0)
    else:
        spot = parameters[:, 0] + np.exp(np.clip(parameters[:, 1], -PARAMETER_LIMIT / 2, PARAMETER_LIMIT / 2)) * ndtri(
            chance
        )
        cell = np.clip(np.floor(spot * family.cells), 0, family.cells - 1)
        place = (cell + uniform_draws(stream, len(out))) / family.cells
    out[:, 0] = column.quantity.from_share(place) if column.quantity else place


def uniform_draws(stream: Stream, count: int) -> NDArray[np.float64]:
    """Numbers above 0 and below 1."""
    return ((stream.uint64(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


_LEAST_SHARE, _LEAST_DEVIATION = 0.02, 0.02
_MOST_SPREAD = 0.8  # of the variance that a share with this mean can have at most


def maximise_column(
    sums: Matrix, people: NDArray[np.float64], variance: float, column: Column, family: ColumnFamily
) -> Matrix:
    """The parameters of one column, (K, ``family.width``), from sums whose noise has this variance."""
    if isinstance(family, CategoricalColumn):
        counts = sums if column.may_be_missing else sums + (people / family.width)[:, None]
        present = np.maximum(counts.sum(axis=1), 1.0) if column.may_be_missing else people
        shares = simplex(shrink_to_mean(counts / present[:, None], present, variance))
        return np.log((shares * present[:, None] + 1) / (present + family.width)[:, None])
    if isinstance(family, BernoulliColumn):
        chance = shrink_to_mean(0.5 + sums / people[:, None], people, variance)
        chance = (np.clip(chance, 0, 1) * people[:, None] + 1) / (people[:, None] + 2)
        return np.log(chance / (1 - chance))
    present = np.maximum(2 * sums[:, 2], 1.0) if column.may_be_missing else people
    moments = shrink_to_mean(sums[:, :2] / present[:, None], present, variance)
    middle = np.clip(0.5 + moments[:, 0], _LEAST_SHARE, 1 - _LEAST_SHARE)
    spread = 0.125 + moments[:, 1] - moments[:, 0] ** 2
    return parameters_from_moments(middle, spread, family)


def parameters_from_moments(middle: NDArray[np.float64], spread: NDArray[np.float64], family: ColumnFamily) -> Matrix:
    """Parameters of a number's column whose mean and variance, as shares of its range, are these or the nearest."""
    spread = np.clip(spread, _LEAST_DEVIATION**2, _MOST_SPREAD * middle * (1 - middle))
    if isinstance(family, GaussianColumn):
        return np.column_stack([middle, 0.5 * np.log(spread)])
    if not isinstance(family, BetaColumn):
        raise TypeError(f"{family} has no moments [VA142]")
    inside, variance = BETA_INSET + (1 - 2 * BETA_INSET) * middle, (1 - 2 * BETA_INSET) ** 2 * spread
    certainty = inside * (1 - inside) / variance - 1
    return np.log(np.column_stack([inside * certainty, (1 - inside) * certainty]))


def shrink_to_mean(found: Matrix, people: NDArray[np.float64], variance: float) -> Matrix:
    """Estimates of all components, pulled to their common mean as far as their distance from it may be noise.

    The positive-part rule of James and Stein, a component at a time; the deviation of the noise is known.
    """
    common = people @ found / people.sum()
    away = found - common
    noise = found.shape[1] * variance / people**2
    kept = np.maximum(0.0, 1 - noise / np.maximum((away**2).sum(axis=1), 1e-300))
    return np.asarray(common + kept[:, None] * away)


def simplex(found: Matrix) -> Matrix:
    """The nearest probability vector of every row."""
    ordered = -np.sort(-found, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, found.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    return np.asarray(np.maximum(found - excess[np.arange(len(found)), last][:, None], 0.0))


_LOWEST, _HIGHEST, _FIRST = -5.0, 0.0, -3.0  # log deviations of the posterior
_EQUAL = 0.5  # of the rounds with equal weights: otherwise few components take all rows before the others differ
_FORGETTING = 0.6


class MixtureLearner(ABC):
    """A mixture while it is fitted: what the programs need of it.

    An owner asks it for the densities of its rows and for what is summed with the responsibilities as weights.
    ``owners`` are the names of the owners of ``model.owns``; ``parameters`` are where the next sums are asked for.
    """

    def __init__(self, owners: Sequence[str], model: MixtureModel, start: Matrix) -> None:
        self.owners, self.model, self.parameters = tuple(owners), model, start.copy()
        self._read: tuple[Matrix, RowStatistics] | None = None

    def _cells(self, place: int, rows: Matrix) -> RowStatistics:
        """What an owner's components look at; densities and derivatives of a batch are asked for one after another."""
        if self._read is None or self._read[0] is not rows:
            self._read = rows, self.model.owns[place].read(rows)
        return self._read[1]

    @property
    @abstractmethod
    def posterior(self) -> ParameterPosterior:
        """What is known after the rounds so far."""

    @property
    def log_weights(self) -> NDArray[np.float64]:
        """Logarithms of the weights of the components, (K,)."""
        return np.asarray(log_softmax(np.clip(self.parameters[:, 0], -PARAMETER_LIMIT, PARAMETER_LIMIT)))

    def log_densities(self, owner: str, rows: Matrix) -> Matrix:
        """For encoded rows of one owner, (n, width), the logarithm of each component's density, (n, K)."""
        place = self.owners.index(owner)
        return self.model.owns[place].log_densities(
            self._cells(place, rows), self.parameters[:, self.model.parts[place]]
        )

    @abstractmethod
    def vectors(self, owner: str, rows: Matrix) -> NDArray[np.float64]:
        """What is summed with the responsibilities as weights.

        Statistics of the rows, (n, q), which do not depend on parameters; or derivatives of the log densities of each
        component, (n, K, q). Where these are linear in statistics, the statistics.
        """

    def linear(self, owner: str) -> LinearDerivatives:
        """The derivatives of one owner's log densities at the present parameters; only if they are linear."""
        raise StudyError("expectation maximisation has no derivatives; sum statistics instead [ST498]")

    @abstractmethod
    def step(self, sums: Matrix) -> None:
        """The next parameters, from noisy sums of one round: (K, 1 + q of all owners), with the counts first."""

    @property
    @abstractmethod
    def state(self) -> NDArray[np.float64]:
        """All that is published, as one array with a fixed number of entries."""

    @abstractmethod
    def restore(self, state: NDArray[np.float64]) -> None:
        """Take over a state."""

    @property
    def fitted(self) -> FittedMixture:
        """The mixture that was found."""
        return FittedMixture(self.owners, self.model, self.posterior)


class AdamAscent:
    """Adam's steps up a noisy slope (Kingma and Ba), the learning rate falling to zero over the last part."""

    def __init__(self, shape: tuple[int, ...], learning_rate: float, rounds: int) -> None:
        self.learning_rate, self.rounds = learning_rate, rounds
        self._first, self._second, self._done = np.zeros(shape), np.zeros(shape), 0

    def step(self, slope: Matrix) -> Matrix:
        """What to add to the parameters."""
        self._done += 1
        self._first += 0.1 * (slope - self._first)
        self._second += 0.001 * (slope**2 - self._second)
        left = max(0.0, 1 - (self._done - 1) / self.rounds)
        rate = self.learning_rate * min(1.0, 2 * left)
        size = np.sqrt(self._second / (1 - 0.999**self._done)) + 1e-12
        return rate * self._first / (1 - 0.9**self._done) / size


class VariationalLearner(MixtureLearner):
    """Variational inference (DPVI): derivatives of the log densities are summed.

    The posterior of the unconstrained parameters is approximated by independent normals. A round draws parameters from
    it by public coins, the participants open noised sums at these parameters, and the normals take a step up the bound
    on the evidence (docs/theory/mixture-model.md). ``rate`` is the chance with which a row is in a batch: sums of a
    batch stand for 1/rate times as many rows. Where derivatives are linear in statistics of the rows, an owner may be
    asked for the statistics instead (``linear``).
    """

    def __init__(
        self,
        owners: Sequence[str],
        model: MixtureModel,
        start: Matrix,
        coins: Stream,
        *,
        rate: float,
        rounds: int,
        learning_rate: float,
        linear: bool = False,
    ) -> None:
        super().__init__(owners, model, start)
        self._linear, self.rate, self.rounds = linear, rate, rounds
        self.mean, self.log_deviation = start.copy(), np.full(start.shape, _FIRST)
        self._coins = coins
        self._ascent = AdamAscent((2, *start.shape), learning_rate, rounds)
        self._totals, self._done, self._since = np.zeros((2, *start.shape)), 0, rounds - max(1, rounds // 10)
        self._told: ParameterPosterior | None = None
        self._draw()

    def _draw(self) -> None:
        """This round's parameters, the same at everybody who holds the key of the coins."""
        self._chance = normal_draws(self._coins, self.mean.shape)
        self.parameters = self.mean + np.exp(self.log_deviation) * self._chance

    @property
    def posterior(self) -> ParameterPosterior:
        """The one that was taken over, or the average of the last tenth of the rounds, or the last one before that."""
        if self._told is not None:
            return self._told
        count = self._done - self._since
        mean, deviation = self._totals / count if count > 0 else (self.mean, self.log_deviation)
        return ParameterPosterior(mean.copy(), np.exp(deviation))

    def vectors(self, owner: str, rows: Matrix) -> NDArray[np.float64]:
        """Derivatives of the owner's log densities, (n, K, q), or the statistics in which they are linear."""
        place = self.owners.index(owner)
        if self._linear:
            return self.model.owns[place].linear_statistics(self._cells(place, rows))
        return self.model.owns[place].derivatives(self._cells(place, rows), self.parameters[:, self.model.parts[place]])

    def linear(self, owner: str) -> LinearDerivatives:
        """How the derivatives of one owner's log densities follow from its statistics, at this round's parameters."""
        place = self.owners.index(owner)
        return self.model.owns[place].linear_slopes(self.parameters[:, self.model.parts[place]])

    def step(self, sums: Matrix) -> None:
        """One step from the opened sums at the drawn parameters: responsibilities first, then weighted derivatives.

        The number of rows in the batch is not told; the sum of all responsibilities stands for it.
        """
        slope = sums.copy()
        slope[:, 0] -= softmax(np.clip(self.parameters[:, 0], -PARAMETER_LIMIT, PARAMETER_LIMIT)) * sums[:, 0].sum()
        slope = slope / self.rate + self.model.scales(self.parameters) * self.model.prior_slope(self.parameters)
        if self._done < _EQUAL * self.rounds:
            slope[:, 0] = 0.0
        moved = self._chance * np.exp(self.log_deviation)
        step = self._ascent.step(np.stack([slope, slope * moved + 1.0]))
        self.mean = np.clip(self.mean + step[0], -PARAMETER_LIMIT, PARAMETER_LIMIT)
        self.log_deviation = np.clip(self.log_deviation + step[1], _LOWEST, _HIGHEST)
        self._done += 1
        if self._done > self._since:
            self._totals += np.stack([self.mean, self.log_deviation])
        self._draw()

    @property
    def state(self) -> NDArray[np.float64]:
        """Means and deviations of the posterior, as one array."""
        found = self.posterior
        return np.concatenate([found.mean.reshape(-1), found.deviation.reshape(-1)])

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take over a posterior."""
        mean, deviation = state.reshape(2, self.model.components, self.model.width)
        self._told = ParameterPosterior(np.clip(mean, -PARAMETER_LIMIT, PARAMETER_LIMIT), np.clip(deviation, 0.0, 1.0))


class ExpectationLearner(MixtureLearner):
    """Expectation maximisation: statistics of the rows are summed, which do not depend on the parameters.

    A round opens, for every component, the sum of responsibilities and the sums of each owner's statistics weighted by
    them, over all rows. Statistics of earlier rounds are averaged in, with weights that fall as in stochastic
    approximation: the noise is fresh in every round, while the responsibilities soon change little
    (docs/theory/mixture-model.md). ``deviation`` is that of the noise on every opened number, in people; it is public,
    and says how far sums are believed.
    """

    def __init__(self, owners: Sequence[str], model: MixtureModel, start: Matrix, deviation: float) -> None:
        super().__init__(owners, model, start)
        self.statistics = tuple(ColumnStatistics(own) for own in model.owns)
        self.parts = adjacent_spans((own.width for own in self.statistics), 1)
        """Which of the opened sums belong to which owner; the first is that of the responsibilities."""
        self._deviation = deviation
        self._sums, self._variance, self._done = np.zeros((model.components, self.parts[-1].stop)), 0.0, 0

    @property
    def posterior(self) -> ParameterPosterior:
        """The parameters, without a deviation."""
        return ParameterPosterior(self.parameters.copy(), np.zeros_like(self.parameters))

    def vectors(self, owner: str, rows: Matrix) -> NDArray[np.float64]:
        """Statistics of the owner's rows, (n, q)."""
        return self.statistics[self.owners.index(owner)].read(rows)

    def step(self, sums: Matrix) -> None:
        """The parameters that fit the averaged sums best under the priors."""
        self._done += 1
        fresh = self._done**-_FORGETTING
        self._sums += fresh * (sums - self._sums)
        self._variance = (1 - fresh) ** 2 * self._variance + fresh**2 * self._deviation**2
        found, people = np.empty_like(self.parameters), np.maximum(self._sums[:, 0], max(np.sqrt(self._variance), 1.0))
        found[:, 0] = np.log(people + 1)
        for own, part, place in zip(self.statistics, self.parts, self.model.parts, strict=True):
            held, out = self._sums[:, part], found[:, place]
            for name, family in own.own.families.items():
                column = own.own.schema.columns[name]
                out[:, own.own.places[name]] = maximise_column(
                    held[:, own.places[name]], people, self._variance, column, family
                )
        self.parameters = np.clip(found, -PARAMETER_LIMIT, PARAMETER_LIMIT)

    @property
    def state(self) -> NDArray[np.float64]:
        """The parameters, as one array."""
        return self.parameters.reshape(-1).copy()

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take over parameters."""
        self.parameters = np.clip(
            state.reshape(self.model.components, self.model.width), -PARAMETER_LIMIT, PARAMETER_LIMIT
        )
