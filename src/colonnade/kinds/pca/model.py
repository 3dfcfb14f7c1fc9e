"""Principal components of columns that nobody holds together, from noisy second moments.

For tables with few columns all second moments are released once. For wide tables these would be too many numbers, so
their products with a few directions are released, round by round (docs/how-to/pca.md).

Error bars: how far noise turned components, and which of them it leaves apart (docs/theory/error-bars-components.md).
All of it follows from what was published and from the size of the noise, so it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.pca.subspace_iteration import NoisyProducts
from colonnade.kinds.pca.task import SubspaceIteration, fits, reach_for
from colonnade.models.base import Estimator, Matrix, People, ReadingOptions, encoded_matrix, gather_people, table_of
from colonnade.models.estimates import NORMAL_95, Estimate
from colonnade.models.planner import (
    ENOUGH_OF_A_SHARE,
    Count,
    Roster,
    RowsAtMost,
    SampleSizeForecast,
    at_least,
    check_whole,
    operator_norm,
)
from colonnade.models.serialization import read_array, read_size, read_texts
from colonnade.privacy import Budget, parse_budgets
from colonnade.protocols.moments.task import ColumnBlock, Moments, NoisyMoments
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture

_APART = 5.0
"""Two variances are apart if they differ by more than so many deviations of noise; equal ones do so by chance in 2 of
1,000 cases, since noise parts them by more than x deviations with a chance of exp(-x^2 / 4)."""
_MOST_UNSEEN = 0.25
"""So much may a component turn towards directions that were never asked for, as the square of a tangent."""


@dataclass(frozen=True)
class EntryNoise:
    """The noise on an entry of the diagonal of X'X / n (elsewhere it is smaller by the root of 2), and on the count."""

    entry: float
    count: float

    @classmethod
    def of(cls, result: NoisyMoments | NoisyProducts) -> EntryNoise:
        """That of a release, and no less than that of rounding to the grid."""
        rounding = max(0.0, result.largest) / float(result.task.gamma) ** 2
        entry, counted = math.hypot(result.entry_deviation, math.sqrt(rounding)), float(result.sum_deviations[-1])
        return cls(entry / result.count, counted / (result.constant**2 * result.count))


@dataclass(frozen=True)
class ComponentErrors:
    """What noise leaves unknown of each kept component.

    ``first`` and ``last`` are the components that it cannot be told apart from. ``angles`` are degrees between a
    component and the one that the same computation would give without noise: in 95 of 100 runs they are smaller. For
    components that cannot be told apart they are 90.
    """

    deviations: Matrix
    low: Matrix
    high: Matrix
    variances: Matrix
    variances_low: Matrix
    variances_high: Matrix
    first: list[int]
    last: list[int]
    angles: Matrix


@dataclass(frozen=True)
class _Spectrum:
    """All variances, the largest first, with their directions as columns, of which the first are the components.

    ``shifts`` are what each direction has of the constant, if means are subtracted. ``unseen`` is the squared length
    that each column has outside of all directions.
    """

    values: Matrix
    vectors: Matrix
    shifts: Matrix
    unseen: Matrix


def component_errors(
    result: NoisyMoments | NoisyProducts,
    spectrum: tuple[Matrix, Matrix],
    components: Matrix,
    variances: Matrix,
    *,
    center: bool,
) -> ComponentErrors:
    """The errors of components and of their variances, as a model found them in what was published.

    ``spectrum`` are all variances that were released, in rising order, and their directions as columns.
    """
    values, vectors = spectrum[0][::-1].copy(), spectrum[1][:, ::-1].copy()
    unseen = np.zeros(len(vectors))
    if vectors.shape[1] < len(vectors):
        unseen = np.maximum(0.0, 1 - (vectors**2).sum(axis=1))
    count = len(components)
    values[:count], vectors[:, :count] = np.where(variances > 0, variances, values[:count]), components.T
    # Around the means a direction v is (v, -v'mean / constant) in the released matrix, whose last column is constant.
    shifts = -(result.means @ vectors) / result.constant if center else np.zeros(len(values))
    return _errors(_Spectrum(values, vectors, shifts, unseen), EntryNoise.of(result), count)


def mean_deviations(result: NoisyMoments | NoisyProducts) -> Matrix:
    """The deviation of each mean: a noisy sum, divided by a noisy count."""
    summed = result.sum_deviations[:-1]
    found: Matrix = np.hypot(summed / (result.constant * result.count), result.means * EntryNoise.of(result).count)
    return found


def _errors(all_: _Spectrum, noise: EntryNoise, count: int) -> ComponentErrors:
    groups = _together(all_, noise)[:count]
    found = [_error(all_, noise, i, *group) for i, group in enumerate(groups)]
    deviations, low, high = (np.array(each) for each in zip(*(one[0] for one in found), strict=True))
    variances, middles, angles = np.array([one[1] for one in found]).T
    reach = NORMAL_95 * variances
    ends = np.maximum(middles - reach, 0.0), np.maximum(middles + reach, 0.0)
    first, last = [one[0] for one in groups], [one[1] - 1 for one in groups]
    return ComponentErrors(deviations, low, high, variances, *ends, first, last, angles)


def _error(
    all_: _Spectrum, noise: EntryNoise, i: int, first: int, end: int
) -> tuple[tuple[Matrix, Matrix, Matrix], tuple[float, float, float]]:
    """Deviation and ends of the interval of each loading; then of the variance, its middle, and the angle."""
    width, alone = len(all_.values), end - first == 1
    outside = np.r_[0:first, end:width]
    gaps = all_.values[i] - all_.values[outside]
    shift, others = all_.shifts[i], all_.shifts[outside]
    length = 1 + shift**2
    # u'Nw has half the variance of the diagonal, times |u|^2 |w|^2 + (u'w)^2, for vectors u and w of any length.
    crossed = (length * (1 + others**2) + (shift * others) ** 2) / 2 * noise.entry**2
    within = end == width  # a group that reaches the end has what was never asked for in it
    towards_unseen = np.zeros(len(all_.unseen)) if within else (noise.entry / all_.values[i]) ** 2 * all_.unseen
    turned = float(np.sum(crossed / gaps**2) + towards_unseen.sum())
    cosine = 1 / np.sqrt(1 + turned)
    beside = all_.vectors[:, outside] / gaps
    shared = beside @ others
    squares = length * ((beside**2).sum(axis=1) + shared**2) + (shift * shared) ** 2
    spread = cosine * np.sqrt(squares / 2 * noise.entry**2 + length * towards_unseen)
    middle, reach = cosine * all_.vectors[:, i], NORMAL_95 * spread
    # The count divides every variance; and where components turned, noise has made the leading variance larger.
    own = np.hypot(noise.entry * length / cosine, (shift**2 - all_.values[i]) * noise.count)
    level = all_.values[i] - float(np.sum(crossed / gaps))
    uncertain = 2 * float(np.sum(crossed**2 / gaps**4) + np.sum(towards_unseen**2))
    angle = float(np.degrees(np.arctan(np.sqrt(turned + NORMAL_95 * np.sqrt(uncertain)))))
    if not alone:
        # Any direction within the group may be the one: a loading is at most what the group has of the column.
        held = np.sqrt(np.minimum(1.0, (all_.vectors[:, first:end] ** 2).sum(axis=1) + within * all_.unseen))
        middle, reach = np.zeros_like(middle), held + reach
        spread, angle = np.hypot(held / np.sqrt(end - first), spread), 90.0
        # Variances in their order move by no more than the largest eigenvalue of the noise (Weyl).
        edge = np.sqrt(2 * len(all_.unseen)) * (1 + float(all_.shifts @ all_.shifts)) + 2
        own = min(own + float(all_.values[first] - all_.values[end - 1]) / 2, edge * noise.entry / NORMAL_95)
        level = float(all_.values[i])
    ends = np.maximum(middle - reach, -1.0), np.minimum(middle + reach, 1.0)
    return (spread, *ends), (float(own), level, angle)


def _together(all_: _Spectrum, noise: EntryNoise) -> list[tuple[int, int]]:
    """For each component, where those begin and end that follow each other so closely that noise may bridge them."""
    values, unseen = all_.values, float(all_.unseen.sum())
    # What was never asked for counts as zero: a variance that noise may have made from it is among the last.
    lost = int(np.sum(values**2 * _MOST_UNSEEN > noise.entry**2 * unseen)) if unseen else len(values)
    apart = np.flatnonzero(values[:-1] - values[1:] > _APART * noise.entry) + 1
    return list(_spans([0, *(cut for cut in apart.tolist() if cut <= lost), len(values)]))


def _spans(cuts: list[int]) -> Iterator[tuple[int, int]]:
    for first, end in pairwise(cuts):
        yield from [(first, end)] * (end - first)


def not_apart(first: int, last: int, kept: int) -> str:
    """A sentence about components, counted from 1, of which the first ``kept`` were kept."""
    if last > kept:
        if first == kept:
            return f"component {kept} cannot be told apart from later ones, which were not kept"
        return f"components {_span(first, kept)} cannot be told apart from each other and from later ones"
    return f"components {_span(first, last)} cannot be told apart: any mixture of them fits as well"


def _span(first: int, last: int) -> str:
    return f"{first} and {last}" if last == first + 1 else f"{first} to {last}"


# A larger constant column gives more exact means and more noise elsewhere; exact means matter if they are subtracted.
_CONSTANT_SHARE = {True: 0.5, False: 0.125}
WIDE = 2000
"""With more encoded columns ``method="auto"`` takes directions: all moments would be over two million numbers."""
_BESIDE = 8  # directions in a round, in addition to one for each component: with more, fewer rounds are needed
_MOST_ITERATIONS = 64

Method = Literal["auto", "moments", "power"]
Task = Moments | SubspaceIteration
Published = NoisyMoments | NoisyProducts


@dataclass(eq=False, repr=False)
class PCA(Estimator[Task, Published]):
    """Differentially private principal component analysis over vertically partitioned columns.

    Args:
        n_components: how many components to keep.
        epsilon: one number for everyone (each observer alone, and groups of them within the committee's threshold), or
            a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all these promises.
        center: subtract the (noisy) column means first.
        gamma: the scale of the integer grid; rounding costs about sqrt(columns)/gamma of the clip.
        rows_at_most: a public limit on the number of rows, from which the arithmetic is sized.
        method: ``"moments"`` releases all second moments once; ``"power"`` releases their products with few directions,
            in rounds, for tables with so many columns that all moments would be too many; ``"auto"`` takes the second
            above 2,000 encoded columns, unless the alignment was hidden, or its sums do not fit and all moments do.
        iterations: the rounds of ``"power"``. All rounds together cost what one release costs, so more of them take
            time and no budget. By default they follow from the number of columns.
    """

    kind = "pca"
    tasks = (Moments, SubspaceIteration)
    saved: ClassVar = {
        "feature_names_in": read_texts,
        "components": read_array,
        "explained_variance": read_array,
        "explained_variance_ratio": read_array,
        "mean": read_array,
        "count": read_size,
        "noise_std": read_size,
    }
    saved_if_known: ClassVar = {
        "components_deviations": read_array,
        "components_low": read_array,
        "components_high": read_array,
        "explained_variance_deviations": read_array,
        "explained_variance_low": read_array,
        "explained_variance_high": read_array,
        "mean_deviations": read_array,
        "angles": read_array,
        "together": read_array,
    }

    n_components: Count = 2
    _: KW_ONLY
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    center: bool = True
    gamma: Annotated[int, at_least(2)] = 4096
    rows_at_most: RowsAtMost = 2**24
    method: Method = "auto"
    iterations: Count | None = None

    def plan(self, roster: Roster) -> Task:
        """The least noise that meets every budget."""
        blocks = tuple(
            ColumnBlock(owner, schema.encoded_names, schema.clip) for owner, schema in roster.schemas.items()
        )
        width = sum(len(block.columns) for block in blocks)
        check_whole("n_components", self.n_components, 1, width)
        check_whole("gamma", self.gamma, 2, 2**26)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        method = self._method(width, roster)
        budgets = parse_budgets(self.epsilon, self.delta, roster.trust)
        norm = float(np.sqrt(sum(block.clip**2 for block in blocks)))
        constant = max(1, round(_CONSTANT_SHARE[bool(self.center)] * norm * self.gamma))
        if method == "moments":
            return self._plan_moments(blocks, roster, constant, budgets)
        task = self._plan_power(blocks, roster, constant, budgets)
        if self.method == "auto" and self.iterations is None and not fits(task):
            instead = self._plan_moments(blocks, roster, constant, budgets)
            return instead if fits(instead) else task  # its error names a gamma that fits
        return task

    def _method(self, width: int, roster: Roster) -> str:
        if self.method not in ("auto", "moments", "power"):
            raise StudyError(f'method must be "auto", "moments" or "power", not {self.method!r} [ST151]')
        wide = width > WIDE and not roster.hidden
        method = ("power" if wide else "moments") if self.method == "auto" else self.method
        if method == "power":
            roster.require_known_members('method="power"')
        elif self.iterations is not None:
            raise StudyError('iterations are for method="power"; all second moments are released at once [ST152]')
        return method

    def _plan_moments(
        self, blocks: tuple[ColumnBlock, ...], roster: Roster, constant: int, budgets: tuple[Budget, ...]
    ) -> Moments:
        draft = Moments(
            blocks, roster.trust, self.gamma, constant, self.rows_at_most, noise=len(blocks), hidden=roster.hidden
        )
        return draft.calibrate(budgets)

    def _plan_power(
        self, blocks: tuple[ColumnBlock, ...], roster: Roster, constant: int, budgets: tuple[Budget, ...]
    ) -> SubspaceIteration:
        width = sum(len(block.columns) for block in blocks) + 1
        directions = max(2, min(int(self.n_components) + _BESIDE, width))
        most = min(_MOST_ITERATIONS, -(-width // directions))
        # Random directions have about sqrt(directions / width) in common with a component. Each round at least doubles
        # that where there is more signal than noise, and two more settle it.
        rounds = min(most, 2 + math.ceil(math.log2(width / directions) / 2))
        if self.iterations is not None:
            check_whole("iterations", self.iterations, 1, most)
            rounds = int(self.iterations)
        draft = SubspaceIteration(
            blocks=blocks,
            trust=roster.trust,
            gamma=self.gamma,
            constant=constant,
            rows_at_most=self.rows_at_most,
            directions=directions,
            rounds=rounds,
            noise=len(blocks),
            center=bool(self.center),
            reach=reach_for(width, rounds, directions),
        )
        return draft.calibrate(budgets)

    def outlook(self, roster: Roster, task: Task, rows: int | None) -> SampleSizeForecast:
        """How far noise moves the variance along a component, against an even share of half the rows' squared norm."""
        share = math.fsum(block.clip**2 for block in task.blocks) / (2 * len(task.names))
        moved = operator_norm(task.noise_std / math.sqrt(2), len(task.names))  # two copies off the diagonal
        return SampleSizeForecast.falling(
            "the variance of a component, in even shares,", ENOUGH_OF_A_SHARE, moved / share, rows
        )

    def simulate_result(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        found: Published = task.programs.simulate(
            {name: table.matrix() for name, table in tables.items()}, task, stream
        )
        return found

    def finish(self, result: Published) -> None:
        """Set the components: eigenvectors of the noisy matrix, or of its products with directions."""
        task = result.task
        center = bool(self.center)
        spectrum, total = result.spectrum(center=center), result.variance(center=center)
        values, vectors = result.components(self.n_components, center=center)
        self.feature_names_in_ = list(task.names)
        self.components_ = signed(vectors)
        self.explained_variance_ = values
        self.explained_variance_ratio_ = values / max(total, float(values.sum()), 1e-300)
        self.mean_ = result.means if self.center else np.zeros(len(task.names))
        self.count_ = result.count
        self.noise_std_ = task.noise_std
        self._finish_errors(result, spectrum)

    def _finish_errors(self, result: Published, spectrum: tuple[Matrix, Matrix]) -> None:
        found = component_errors(result, spectrum, self.components_, self.explained_variance_, center=bool(self.center))
        self.components_deviations_ = found.deviations
        self.components_low_, self.components_high_ = found.low, found.high
        self.explained_variance_deviations_ = found.variances
        self.explained_variance_low_, self.explained_variance_high_ = found.variances_low, found.variances_high
        self.mean_deviations_ = mean_deviations(result) if self.center else np.zeros(len(self.mean_))
        self.angles_ = found.angles
        self.together_ = np.array([found.first, found.last], dtype=np.float64).T

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        names = [f"{party}.{name}" for party, schema in self.schemas_.items() for name in schema.encoded_names]
        count, width = len(self.components_), len(names)
        shapes = {"components": (count, width), "mean": (width,)}
        shapes |= dict.fromkeys(("explained_variance", "explained_variance_ratio"), (count,))
        if self.components_deviations_ is not None:
            shapes |= dict.fromkeys(("components_deviations", "components_low", "components_high"), (count, width))
            ends = ("explained_variance_deviations", "explained_variance_low", "explained_variance_high", "angles")
            shapes |= dict.fromkeys(ends, (count,)) | {"mean_deviations": (width,), "together": (count, 2)}
        if self.feature_names_in_ != names or any(getattr(self, f"{k}_").shape != due for k, due in shapes.items()):
            raise ValueError("components and columns do not belong together [VA031]")

    def transform(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores of new rows, of whom the caller has all columns; one party computes its part with :meth:`partial`.

        X is raw: a federation, a mapping from party to table, or one table with all parties' columns. The rows of a
        mapping are matched by the column ``id``, in the order of the first table, or with ``same_order=True`` stay as
        they are. With ``encoded=True`` X is a matrix that is encoded already.
        """
        self._check_fitted()
        if given.get("encoded"):
            scores: Matrix = (encoded_matrix(X, self.feature_names_in_) - self.mean_) @ self.components_.T
            return scores
        people = gather_people(X, self.schemas_, self.schemas_, "transform", **given)
        return np.asarray(np.sum([self.partial(party, people[party]) for party in self.schemas_], axis=0))

    def partial(self, party: str, source: Any) -> NDArray[np.float64]:
        """One party's part of the scores, from its own columns alone; the parts of all parties add up to the scores."""
        self._check_fitted()
        self._check_party(party)
        rows = table_of(source, self.schemas_[party]).matrix()
        parties = list(self.schemas_)
        start = sum(self.schemas_[name].encoded_width for name in parties[: parties.index(party)])
        span = slice(start, start + rows.shape[1])
        part: Matrix = (rows - self.mean_[span]) @ self.components_[:, span].T
        return part

    def to_onnx(self, path: str | Path) -> Path:
        """Write the components with the encoder as an ONNX file: raw columns in, scores out."""
        from colonnade.models.onnx_export import components_to_onnx, onnx_metadata, write_export

        self._check_fitted()
        return write_export(
            components_to_onnx(onnx_metadata(self.kind), self.schemas_, self.components_, self.mean_), path
        )

    # --- how far noise may have moved it

    def loadings(self, component: int) -> dict[str, Estimate]:
        """The loadings of one component, counted from 1, by column, each with its deviation and its interval."""
        self._check_fitted()
        check_whole("component", component, 1, len(self.components_))
        own = self.components_[component - 1]
        if self.components_deviations_ is None:
            return {name: Estimate(value) for name, value in zip(self.feature_names_in_, own, strict=True)}
        errors = self.components_deviations_, self.components_low_, self.components_high_
        rows = (own, *(each[component - 1] for each in errors))
        found = zip(self.feature_names_in_, *rows, strict=True)
        return {name: Estimate(value, deviation, (low, high)) for name, value, deviation, low, high in found}

    def variances(self) -> list[Estimate]:
        """The variance of each component, with its deviation and its interval."""
        self._check_fitted()
        if self.explained_variance_deviations_ is None:
            return [Estimate(value) for value in self.explained_variance_]
        ends = (self.explained_variance_deviations_, self.explained_variance_low_, self.explained_variance_high_)
        found = zip(self.explained_variance_, *ends, strict=True)
        return [Estimate(value, deviation, (low, high)) for value, deviation, low, high in found]

    def means(self) -> dict[str, Estimate]:
        """The mean of each column, with its deviation and its interval; zeros where no means were subtracted."""
        self._check_fitted()
        known = self.mean_deviations_ if self.mean_deviations_ is not None else [None] * len(self.mean_)
        found = zip(self.feature_names_in_, self.mean_, known, strict=True)
        return {name: Estimate(value, deviation) for name, value, deviation in found}

    @property
    def clear(self) -> list[bool] | None:
        """For each component, whether it can be told apart from all others; ``None`` if that is not known."""
        return None if self.together_ is None else [bool(first == last) for first, last in self.together_]

    def unclear(self) -> list[str]:
        """Sentences about the components that cannot be told apart."""
        if self.together_ is None:
            return []
        spans = dict.fromkeys((int(first) + 1, int(last) + 1) for first, last in self.together_ if first != last)
        return [not_apart(first, last, len(self.components_)) for first, last in spans]

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        share = f"{float(self.explained_variance_ratio_.sum()):.1%} of the variance"
        return f"{len(self.components_)} components of {self.n_features_in_} encoded columns, {share}"

    def picture(self) -> Picture:
        """Variances with their intervals, and loadings."""
        from colonnade.drawing.canvas import Picture
        from colonnade.kinds.pca.report import loadings_chart, variance_chart

        return Picture([variance_chart(self), loadings_chart(self, list(self.schemas_))])

    def summary(self) -> list[str]:
        """The explained variance, and the strongest loadings of the first components."""
        self._check_fitted()
        ratios = ", ".join(f"{ratio:.3f}" for ratio in self.explained_variance_ratio_)
        lines = [f"explained variance of the {self.n_components} components: {ratios}"]
        if (clear := self.clear) is not None:
            lines.append(f"{sum(clear)} of {len(clear)} components are clear of the noise")
        for index in range(min(3, len(self.components_))):
            found = self.loadings(index + 1)
            strongest = sorted(found, key=lambda name: (-found[name].surely, -abs(found[name])))[:4]
            loadings = ", ".join(f"{name} {found[name].text()}" for name in strongest)
            lines.append(f"  component {index + 1}{_within(self.angles_, index)}: {loadings}")
        return lines + [f"  {text}" for text in self.unclear()]


def _within(angles: Matrix | None, index: int) -> str:
    return "" if angles is None or angles[index] >= 90 else f" (within {math.ceil(angles[index])} degrees)"


def top_eigenvectors(matrix: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """The largest eigenvalues, never negative, and their vectors as rows with the largest entry positive."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1][:count], 0.0), signed(vectors[:, ::-1][:, :count].T)


def signed(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row or its opposite, so that its largest entry is positive."""
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    turned: NDArray[np.float64] = rows * np.sign(largest)[:, None]
    return turned
