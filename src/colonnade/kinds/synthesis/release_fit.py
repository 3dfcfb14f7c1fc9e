"""From noisy residuals to a mixture of products: of all that the noise allows, one that says little else.

Nothing here sees data or spends budget (docs/theory/fitting-marginals.md). The misfit is weighed by the noise, whose
level is public, so its right size is known: its degrees of freedom. The entropy of the components pulls the other way,
strongly at first; its pull fades until the misfit is right, and is then held there while steps get shorter.

In one component the columns are independent, so the residual of two columns is the weighted sum over components of
outer products: for all pairs at once one Gram matrix of the components' centred probabilities. A set of three columns
or more is a pair, weighted by what the component says of the others: its *hinge*, such as the label.

A release whose fit failed is kept, because it was paid for.

One synthetic table tells nothing about how far noise moved it. So noise of the same law is drawn again, on the
marginals of the fitted model, and the model is fitted again: these fits differ from the first about as the first
differs from the truth (docs/theory/fitting-marginals.md, section 7).

A :class:`ProductMixture` is one of categoricals: exact marginals, likelihoods, and tables of codes drawn from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from colonnade.errors import ColonnadeError, StudyError
from colonnade.kinds.tables.release import Floats, MarginalsRelease, Residual, centre, check_residuals
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables.coding import ForbiddenCodes

Codes = NDArray[np.int64]

MAX_MARGINAL_CELLS = 2**24
"""Cells of a marginal that is computed as one array."""
_BLOCK = 4096


@dataclass(frozen=True)
class ProductMixture:
    """Components with public weights, in each of which the columns are independent.

    ``tables[i][k]`` holds the probabilities of the codes of column i in component k.
    """

    weights: Floats
    tables: tuple[Floats, ...]

    def __post_init__(self) -> None:
        parts = self.weights.shape
        if len(parts) != 1 or not parts[0] or any(t.ndim != 2 or t.shape[0] != parts[0] for t in self.tables):
            raise StudyError("a mixture needs one weight and one row of every table for each component [ST382]")
        for each in (self.weights[None, :], *self.tables):
            if not (
                np.isfinite(each).all() and (each >= 0).all() and np.allclose(each.sum(axis=1), 1, rtol=0, atol=1e-9)
            ):
                raise StudyError("the weights and the rows of every table of a mixture must be probabilities [ST383]")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return tuple(table.shape[1] for table in self.tables)

    def marginal(self, columns: Sequence[int]) -> Floats:
        """The joint probabilities of some columns, an axis for each."""
        shape = tuple(self.sizes[column] for column in columns)
        if math.prod(shape) > MAX_MARGINAL_CELLS:
            raise StudyError(f"a marginal of {math.prod(shape)} cells is too large; ask for fewer columns [ST387]")
        if not columns:
            return np.array(self.weights.sum())
        joint = self.weights[:, None]
        for column in columns[:-1]:
            joint = (joint[:, :, None] * self.tables[column][:, None, :]).reshape(len(joint), -1)
        return np.asarray((joint.T @ self.tables[columns[-1]]).reshape(shape))

    def log_likelihood(self, codes: Codes) -> Floats:
        """The natural logarithm of each row's probability."""
        with np.errstate(divide="ignore"):
            logs = [np.log(table.T) for table in self.tables]
            weights = np.log(self.weights)
        found = np.empty(len(codes))
        for begin in range(0, len(codes), _BLOCK):
            block = codes[begin : begin + _BLOCK]
            total = np.broadcast_to(weights, (len(block), len(weights))).copy()
            for column, log in enumerate(logs):
                total += log[block[:, column]]
            highest = total.max(axis=1)
            shift = np.where(np.isfinite(highest), highest, 0.0)
            with np.errstate(divide="ignore"):
                found[begin : begin + _BLOCK] = shift + np.log(np.exp(total - shift[:, None]).sum(axis=1))
        return found

    def sample(self, rows: int, stream: Stream) -> Codes:
        """A table of codes by systematic rounding (docs/theory/fitting-marginals.md, section 5)."""
        people = round_systematically(rows * self.weights, stream)
        component = np.repeat(np.arange(len(people), dtype=np.uint64), people) << np.uint64(32)
        codes = np.empty((rows, len(self.tables)), dtype=np.int64)
        for column, table in enumerate(self.tables):
            counts = apportion(people, table, rows * (self.weights @ table), stream)
            drawn = np.repeat(np.tile(np.arange(table.shape[1]), len(people)), counts.ravel())
            codes[:, column] = drawn[np.argsort(component | stream.uint32(rows).astype(np.uint64))]
        return codes[np.argsort(stream.uint64(rows))]

    def arrays(self) -> dict[str, Floats]:
        """All numbers by name, to be kept in a file."""
        return {"weights": self.weights, **{f"table_{i}": table for i, table in enumerate(self.tables)}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> ProductMixture:
        """The mixture of these numbers, exactly."""
        columns = sum(name.startswith("table_") for name in arrays)
        try:
            return cls(arrays["weights"], tuple(arrays[f"table_{i}"] for i in range(columns)))
        except KeyError:
            raise StudyError("the numbers of a mixture are incomplete; fit or save it again [ST385]") from None


def round_systematically(expected: Floats, stream: Stream) -> Codes:
    """Whole numbers of the same sum: all cumulated sums are rounded with one random offset.

    Each number is its expectation rounded up or down, and on average the expectation itself.
    """
    ends = np.cumsum(expected)
    total = round(float(ends[-1]))
    ends *= total / ends[-1]
    offset = _uniform(stream, 1)[0]
    reached = np.clip(np.floor(ends + offset), 0, total).astype(np.int64)
    reached[-1] = total
    return np.asarray(np.diff(reached, prepend=0))


def apportion(people: Codes, table: Floats, totals: Floats, stream: Stream) -> Codes:
    """How many people of each component get each code of one column.

    Each number is its expectation rounded up or down, and a component's numbers sum to its people. What is owed
    to a code, so that ``totals`` of it come out over all components, is carried from one to the next, in random order.
    """
    expected = people[:, None] * table
    counts = np.floor(expected + 1e-9).astype(np.int64)
    left = people - counts.sum(axis=1)
    fraction = np.maximum(expected - counts, 0.0)
    owed = totals - expected.sum(axis=0) + _uniform(stream, table.shape[1]) - 0.5
    for part in np.argsort(stream.uint64(len(people))):
        owed += fraction[part]
        if left[part]:
            # A code without a fraction left is never rounded up.
            wanted = np.where(fraction[part] > 1e-9, owed, owed - 1e6)
            chosen = np.argpartition(-wanted, left[part] - 1)[: left[part]]
            counts[part, chosen] += 1
            owed[chosen] -= 1
    return counts


def _uniform(stream: Stream, count: int) -> Floats:
    return np.asarray((stream.uint64(count) >> np.uint64(11)) * 2.0**-53)


Singles = NDArray[np.float32]
"""Single precision: noise is far coarser than what it rounds off, and products take half the time."""


def contrast_basis(size: int) -> NDArray[np.float64]:
    """Orthonormal coordinates of what sums to zero over the values of a column, one in each row."""
    rows = np.arange(1, size)[:, None]
    places = np.arange(size)[None, :]
    found = (places < rows) - rows * (places == rows).astype(np.float64)
    return np.asarray(found / np.sqrt(rows * (rows + 1.0)))


@dataclass(frozen=True)
class HingeGroup:
    """All sets of columns that share a hinge, as pairs of the columns beside it.

    ``wanted[c]`` is the residual in coordinate c of the hinge, over all pairs of places; ``precision`` holds one over
    the noise's variance, and zero where nothing was asked for.
    """

    hinge: tuple[int, ...]
    coordinates: tuple[tuple[int, ...], ...]
    places: NDArray[np.intp]
    wanted: Singles
    precision: Singles


class ResidualTargets:
    """The residuals of one release, arranged for the misfit of a mixture of equal weights and its derivatives."""

    def __init__(self, sizes: Sequence[int], count: float, residuals: Sequence[Residual]) -> None:
        self.sizes, self.count = tuple(sizes), np.float32(count)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.width = int(self.starts[-1])
        self.degrees = sum(each.degrees for each in residuals if each.columns)
        self.even = np.repeat(1 / np.array(sizes), sizes).astype(np.float32)
        self.contrasts = [contrast_basis(size).astype(np.float32) for size in sizes]
        self.single = np.zeros(self.width, dtype=np.float32)
        self.single_precision = np.zeros(self.width, dtype=np.float32)
        for each in residuals:
            if len(each.columns) == 1:
                self.single[self.codes(each.columns[0])] = each.values
                self.single_precision[self.codes(each.columns[0])] = each.deviation**-2
        self.groups = [
            self._group(*found) for found in _group_by_hinge([r for r in residuals if len(r.columns) > 1], sizes)
        ]

    def codes(self, column: int) -> slice:
        """The places of a column's codes among all codes."""
        return slice(int(self.starts[column]), int(self.starts[column + 1]))

    def misfit(self, chances: Singles) -> tuple[float, Singles]:
        """Chi-squared of the noise that a mixture implies, and half its derivatives by the chances.

        ``chances`` has a row for each component, all of one weight, and a column for each code of each column.
        """
        scale = self.count / np.float32(len(chances))
        centred = chances - self.even
        apart = scale * centred.sum(axis=0) - self.single
        weighed = apart * self.single_precision
        squares = float(weighed @ apart)
        slopes = np.tile(scale * weighed, (len(chances), 1))
        for group in self.groups:
            squares += self._add(group, chances, centred, scale, slopes)
        return squares, slopes

    def _add(self, group: HingeGroup, chances: Singles, centred: Singles, scale: np.float32, slopes: Singles) -> float:
        """Add a group's derivatives to the slopes; gives its part of chi-squared."""
        here = centred if len(group.places) == self.width else np.ascontiguousarray(centred[:, group.places])
        turned = {column: chances[:, self.codes(column)] @ self.contrasts[column].T for column in group.hinge}
        back = {column: np.zeros_like(each) for column, each in turned.items()}
        found, squares = np.zeros_like(here), 0.0
        for wanted, coordinate in zip(group.wanted, group.coordinates, strict=True):
            factors = [turned[column][:, at] for column, at in zip(group.hinge, coordinate, strict=True)]
            weight = (scale * np.prod(factors, axis=0, dtype=np.float32))[:, None] if factors else scale
            apart = (here * weight).T @ here
            apart -= wanted
            weighed = apart * group.precision
            squares += float(np.vdot(apart, weighed)) / 2  # each pair stands there twice
            pulled = here @ weighed
            if factors:
                along = scale / 2 * np.einsum("ij,ij->i", pulled, here)
                for at, (column, place) in enumerate(zip(group.hinge, coordinate, strict=True)):
                    others = [factor for other, factor in enumerate(factors) if other != at]
                    back[column][:, place] += along * np.prod(others, axis=0, dtype=np.float32) if others else along
            pulled *= weight
            found += pulled
        slopes[:, group.places] += found
        for column, each in back.items():
            slopes[:, self.codes(column)] += each @ self.contrasts[column]
        return squares

    def _group(self, hinge: tuple[int, ...], members: Sequence[Residual]) -> HingeGroup:
        beside = sorted({column for each in members for column in each.columns} - set(hinge))
        places = np.concatenate([np.arange(self.codes(c).start, self.codes(c).stop) for c in beside])
        local = dict(zip(beside, np.cumsum([0, *(self.sizes[c] for c in beside)]), strict=False))
        coordinates = tuple(product(*(range(self.sizes[column] - 1) for column in hinge)))
        wanted = np.zeros((len(coordinates), len(places), len(places)), dtype=np.float32)
        precision = np.zeros((len(places), len(places)), dtype=np.float32)
        for each in members:
            left, right = (column for column in each.columns if column not in hinge)
            values = each.values
            for column in hinge:  # the hinge's axes go last, in order, in coordinates
                axis = each.columns.index(column) - sum(before < column for before in hinge)
                values = np.tensordot(values, contrast_basis(self.sizes[column]), axes=(axis, 1))
            rows, cols = (slice(local[c], local[c] + self.sizes[c]) for c in (left, right))
            stacked = values.reshape(self.sizes[left], self.sizes[right], len(coordinates))
            wanted[:, rows, cols] = stacked.transpose(2, 0, 1)
            wanted[:, cols, rows] = stacked.transpose(2, 1, 0)
            precision[rows, cols] = precision[cols, rows] = each.deviation**-2
        return HingeGroup(hinge, coordinates, places, wanted, precision)


def _group_by_hinge(
    residuals: Sequence[Residual], sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[Residual]]]:
    """The residuals of two columns or more by hinges that many of them share and that have few coordinates."""
    left = list(residuals)
    while left:
        shared: Counter[tuple[int, ...]] = Counter()
        for each in left:
            shared.update(combinations(each.columns, len(each.columns) - 2))

        def worth(hinge: tuple[int, ...], shared: Counter[tuple[int, ...]] = shared) -> float:
            return shared[hinge] / max(1, math.prod(sizes[column] - 1 for column in hinge))

        best = max(sorted(shared), key=worth)
        taken = [each for each in left if len(each.columns) == len(best) + 2 and set(best) <= set(each.columns)]
        yield best, taken
        left = [each for each in left if each not in taken]


COMPONENTS = 400
STEPS = 800
_RATE = 0.05
_SPREAD = 0.35
"""How far the logits of the components are apart at the start, where all are close to independent columns."""
_PULL = 0.3
"""The pull of entropy at the start, for each person."""
_FADES = 8.0
"""By how many powers of e the pull can fade in a fit."""
_HOLD = 0.2
_LEAST = 1e-4
"""What part of the start's chances is spread evenly, so that no code is impossible from the start."""
_TINY = np.float32(1e-12)
_PRICE = 3.0
"""The price of a person in a box, where half of chi-squared is the price of the misfit."""


def fit_products(
    sizes: Sequence[int],
    count: float,
    residuals: Sequence[Residual],
    *,
    components: int = COMPONENTS,
    steps: int = STEPS,
    start: ProductMixture | None = None,
    impossible: Sequence[ForbiddenCodes] = (),
) -> ProductMixture:
    """The mixture of products that is fitted to a release; the same for the same numbers.

    ``start`` is an earlier fit to begin from, for releases that are close to the one it was fitted to. ``impossible``
    are codes that nobody has; next to nobody of the model has them.
    """
    check_residuals(sizes, residuals)
    targets = ResidualTargets(sizes, max(count, 1.0), residuals)
    logits = _independent_logits(targets, components) if start is None else _logits_of_mixture(start)
    pull = _PULL * float(targets.count)
    if start is not None:
        pull = min(pull, _balanced_pull(targets, logits))
    zeros = ForbiddenMass(sizes, float(targets.count), impossible)
    return _build_mixture(targets, _descend(targets, zeros, logits, pull, steps))


def wanted_misfit(degrees: int) -> float:
    """Where chi-squared is to end: its expectation for the truth, less one standard deviation.

    For many degrees of freedom this is the expectation. For few it is lower, so that what people tell is not taken for
    noise.
    """
    return max(1.0, degrees - math.sqrt(2 * degrees))


def _descend(targets: ResidualTargets, zeros: ForbiddenMass, logits: Singles, pull: float, steps: int) -> Singles:
    """The chances that steps of Adam reach, down half the misfit and up the pull times the entropy."""
    mean, square = np.zeros_like(logits), np.zeros_like(logits)
    goal = wanted_misfit(targets.degrees)
    for step in range(1, steps + 1):
        chances = _softmax(targets, logits)
        misfit, slopes = targets.misfit(chances)
        zeros.add(chances, slopes)
        slopes += np.float32(pull / len(logits)) * _information_slopes(chances)
        slopes = _by_logits(targets, chances, slopes)
        mean += np.float32(0.1) * (slopes - mean)
        square += np.float32(0.01) * (slopes * slopes - square)
        rate = _RATE * max(0.05, min(1.0, 2 * (1 - step / steps))) / (1 - 0.9**step)
        logits -= np.float32(rate) * mean / (np.sqrt(square / np.float32(1 - 0.99**step)) + _TINY)
        # Far above the goal the pull just fades; close to it, it follows the misfit in both directions.
        change = max(-_FADES / max(steps, 40), _HOLD * (1 - misfit / goal))
        pull = min(_PULL * float(targets.count), pull * (1 + change))
    return _softmax(targets, logits)


def _information_slopes(chances: Singles) -> Singles:
    """Derivatives of the information that the component tells about the columns, for each component alike."""
    logs: Singles = np.log(chances + _TINY)
    logs -= np.log(chances.mean(axis=0) + _TINY)
    return logs


def _balanced_pull(targets: ResidualTargets, logits: Singles) -> float:
    """The pull of entropy at which an earlier fit is about at rest."""
    chances = _softmax(targets, logits)
    down = _by_logits(targets, chances, targets.misfit(chances)[1])
    up = _by_logits(targets, chances, _information_slopes(chances) / np.float32(len(logits)))
    return max(1.0, -float(np.vdot(down, up)) / max(float(np.vdot(up, up)), 1e-30))


def _independent_logits(targets: ResidualTargets, components: int) -> Singles:
    """Logits close to those of the noisy marginals of single columns, a little apart in a public, fixed way."""
    chances = np.concatenate(
        [
            (1 - _LEAST) * project_to_simplex(targets.single[codes] / targets.count + targets.even[codes])
            + _LEAST * targets.even[codes]
            for codes in map(targets.codes, range(len(targets.sizes)))
        ]
    )
    drawn = Stream(bytes(KEY_BYTES)).uint32((components, targets.width)) * 2.0**-31 - 1.0
    return np.asarray(np.log(chances) + _SPREAD * drawn, dtype=np.float32)


def _logits_of_mixture(start: ProductMixture) -> Singles:
    if np.ptp(start.weights) > 1e-9:
        raise StudyError("a fit can only start from one whose components have equal weights [ST346]")
    return np.asarray(np.log(np.concatenate(start.tables, axis=1) + 1e-12), dtype=np.float32)


def _build_mixture(targets: ResidualTargets, chances: Singles) -> ProductMixture:
    tables = (chances[:, codes].astype(np.float64) for codes in map(targets.codes, range(len(targets.sizes))))
    even = np.full(len(chances), 1 / len(chances))
    return ProductMixture(even, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def project_to_simplex(values: NDArray[np.floating[Any]]) -> Floats:
    """The nearest probabilities to some numbers, in the sum of squares."""
    falling = np.sort(values)[::-1]
    beyond = (np.cumsum(falling, dtype=np.float64) - 1) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - beyond[np.nonzero(falling > beyond)[0][-1]], 0), dtype=np.float64)


def _softmax(targets: ResidualTargets, logits: Singles) -> Singles:
    highest = np.maximum.reduceat(logits, targets.starts[:-1], axis=1)
    found: Singles = np.exp(logits - np.repeat(highest, targets.sizes, axis=1))
    found /= _over_columns(targets, found)
    return found


def _by_logits(targets: ResidualTargets, chances: Singles, slopes: Singles) -> Singles:
    """Derivatives by the logits, from those by the chances."""
    slopes = slopes * chances
    slopes -= chances * _over_columns(targets, slopes)
    return slopes


def _over_columns(targets: ResidualTargets, values: Singles) -> Singles:
    """The sum over the codes of each column, at each of its codes."""
    return np.repeat(np.add.reduceat(values, targets.starts[:-1], axis=1), targets.sizes, axis=1)


class ForbiddenMass:
    """Boxes of impossible codes, arranged for their mass in a mixture of equal weights and its derivatives."""

    def __init__(self, sizes: Sequence[int], count: float, boxes: Sequence[ForbiddenCodes]) -> None:
        starts = np.cumsum([0, *sizes])
        self.count = count
        self.boxes: list[list[NDArray[np.intp]]] = [
            [starts[column] + np.flatnonzero(marked) for column, marked in zip(box.columns, box.marked, strict=True)]
            for box in boxes
        ]

    def add(self, chances: Singles, slopes: Singles) -> None:
        """Add the derivatives of the price of all boxes by the chances; ``chances`` is as in a misfit."""
        each = np.float32(_PRICE * self.count / len(chances))
        for box in self.boxes:
            held = [chances[:, places].sum(axis=1, dtype=np.float32) for places in box]
            for at, places in enumerate(box):
                others = math.prod((part for other, part in enumerate(held) if other != at), start=each)
                slopes[:, places] += np.broadcast_to(others, (len(chances),))[:, None]


def fit_release(
    release: MarginalsRelease, sizes: tuple[int, ...], components: int | None, impossible: Sequence[ForbiddenCodes]
) -> ProductMixture | str:
    """A model for a release, or why there is none: the release is paid for, and is kept."""
    several = int(components or COMPONENTS)
    try:
        return fit_products(sizes, release.count, release.parts, components=several, impossible=impossible)
    except ColonnadeError as error:
        return str(error)
    except Exception as error:  # whatever it is, also a lack of memory, it must not take the release with it
        return f"stopped by {type(error).__name__}"


MIN_REFITS = 3
"""Tables: of fewer, the variance between them says too little."""
REFIT_STEPS = 250
"""Steps of a fit that starts from the first one."""


def redraw_noise(model: ProductMixture, count: float, residuals: Sequence[Residual], stream: Stream) -> list[Residual]:
    """The residuals of the model with new noise of the same deviations."""
    return [
        Residual(
            each.columns,
            count * centre(model.marginal(each.columns))
            + centre(each.deviation * _normal_draws(each.values.shape, stream)),
            each.deviation,
        )
        for each in residuals
        if each.columns
    ]


def refit_redrawn(
    model: ProductMixture,
    count: float,
    residuals: Sequence[Residual],
    times: int,
    stream: Stream,
    *,
    count_deviation: float = 0.0,
    impossible: Sequence[ForbiddenCodes] = (),
    steps: int = REFIT_STEPS,
) -> list[ProductMixture]:
    """The model fitted to as many redrawn releases; ``count_deviation`` is that of the count's noise."""
    found = []
    for _ in range(times):
        counted = max(1.0, count + count_deviation * float(_normal_draws((1,), stream)[0]))
        redrawn = redraw_noise(model, count, residuals, stream)
        found.append(fit_products(model.sizes, counted, redrawn, start=model, steps=steps, impossible=impossible))
    return found


@dataclass(frozen=True)
class CombinedInterval:
    """An estimate with an interval for what it would be for the population of the real people.

    ``within`` is the mean variance of the estimate as the tables' own rows give it. ``between`` is the mean square of
    how far the estimates of tables with redrawn noise are from the first: what noise and fit cause, bias included.
    """

    estimate: float
    low: float
    high: float
    within: float
    between: float
    freedom: float

    @property
    def deviation(self) -> float:
        """The root of the mean squared error that the interval rests on."""
        return math.sqrt(self.within + self.between)


def combine_estimates(estimates: Sequence[float], variances: Sequence[float], level: float = 0.95) -> CombinedInterval:
    """One interval from an estimate and its usual variance in each of several tables.

    The first table comes from the model, the others from :func:`refit_redrawn`, and each is as long as the number of
    real people. The interval is around the first estimate, by Student's law.
    """
    values, usual = np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if values.ndim != 1 or values.shape != usual.shape or len(values) <= MIN_REFITS:
        raise StudyError(
            f"combining needs an estimate and a variance from a table and from {MIN_REFITS} refits or more [ST358]"
        )
    if not (np.isfinite(values).all() and np.isfinite(usual).all() and (usual >= 0).all()):
        raise StudyError("an estimate or its variance is not a finite number, or a variance is negative [ST359]")
    if not 0 < level < 1:
        raise StudyError("the level of an interval lies between 0 and 1 [ST360]")
    estimate, within = float(values[0]), float(usual.mean())
    between = float(np.mean((values[1:] - estimate) ** 2))
    if between == 0:
        freedom, quantile = math.inf, float(ndtri((1 + level) / 2))
    else:
        # Satterthwaite: the variance between rests on as many squares as there are refits, that within on many people.
        freedom = (len(values) - 1) * (1 + within / between) ** 2
        quantile = float(stdtrit(freedom, (1 + level) / 2))
    reach = quantile * math.sqrt(within + between)
    return CombinedInterval(estimate, estimate - reach, estimate + reach, within, between, freedom)


def _normal_draws(shape: tuple[int, ...], stream: Stream) -> Floats:
    uniform = ((stream.uint64(shape) >> np.uint64(12)) + 0.5) * 2.0**-52
    return np.asarray(ndtri(uniform))
