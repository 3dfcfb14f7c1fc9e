"""Principal components of columns that nobody holds together, from noisy second moments.

For tables with few columns all second moments are released once. For wide tables these would be too many numbers, so
their products with a few directions are released, round by round (docs/pca.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from colonnade.errors import CapacityError, DataError, StudyError
from colonnade.models.federation import Roster
from colonnade.models.newcomers import Matrix, People, summed, table_of
from colonnade.models.outlook import ENOUGH_OF_A_SHARE, Outlook, operator_norm
from colonnade.models.parameters import Count, RowsAtMost, check_whole
from colonnade.models.planner import Details
from colonnade.models.saved import Saved, numbers, size, texts
from colonnade.privacy import Budget, Statement, parse_budgets
from colonnade.protocols.directions import programs as power
from colonnade.protocols.directions.search import NoisyProducts
from colonnade.protocols.directions.task import Directions, reach_for
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Block, Moments
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

# A larger constant column gives more exact means and more noise elsewhere; exact means matter if they are subtracted.
_CONSTANT_SHARE = {True: 0.5, False: 0.125}
WIDE = 2000
"""With more encoded columns ``method="auto"`` takes directions: all moments would be over two million numbers."""
_BESIDE = 8  # directions in a round, in addition to one for each component: with more, fewer rounds are needed
_MOST_ITERATIONS = 64

Method = Literal["auto", "moments", "power"]
Task = Moments | Directions
Published = NoisyMoments | NoisyProducts


@dataclass(eq=False, repr=False)
class PCA(Saved[Task, Published]):
    """Differentially private principal component analysis over vertically partitioned columns.

    Args:
        n_components: how many components to keep.
        epsilon: one number for everyone (each observer alone, each pair, as many owners as the threshold with the
            coordinator), or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
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
    tasks = (Moments, Directions)
    saved: ClassVar = {
        "feature_names_in": texts,
        "components": numbers,
        "explained_variance": numbers,
        "explained_variance_ratio": numbers,
        "mean": numbers,
        "count": size,
        "noise_std": size,
    }

    n_components: Count = 2
    _: KW_ONLY
    epsilon: float | Mapping[str, float]
    delta: float = 1e-5
    center: bool = True
    gamma: Annotated[int, Ge(2)] = 4096
    rows_at_most: RowsAtMost = 2**24
    method: Method = "auto"
    iterations: Count | None = None

    def plan(self, roster: Roster) -> Task:
        """The least noise that meets every budget."""
        blocks = tuple(Block(owner, schema.encoded_names, schema.clip) for owner, schema in roster.schemas.items())
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
        if self.method == "auto" and self.iterations is None and not _fits(task):
            instead = self._plan_moments(blocks, roster, constant, budgets)
            return instead if _fits(instead) else task  # its error names a gamma that fits
        return task

    def _method(self, width: int, roster: Roster) -> str:
        if self.method not in ("auto", "moments", "power"):
            raise StudyError(f'method must be "auto", "moments" or "power", not {self.method!r}')
        wide = width > WIDE and not roster.hidden
        method = ("power" if wide else "moments") if self.method == "auto" else self.method
        if method == "power":
            roster.require_known_members('method="power"')
        elif self.iterations is not None:
            raise StudyError('iterations are for method="power"; all second moments are released at once')
        return method

    def _plan_moments(
        self, blocks: tuple[Block, ...], roster: Roster, constant: int, budgets: tuple[Budget, ...]
    ) -> Moments:
        draft = Moments(
            blocks, roster.trust, self.gamma, constant, self.rows_at_most, noise=len(blocks), hidden=roster.hidden
        )
        return draft.calibrated(budgets)

    def _plan_power(
        self, blocks: tuple[Block, ...], roster: Roster, constant: int, budgets: tuple[Budget, ...]
    ) -> Directions:
        width = sum(len(block.columns) for block in blocks) + 1
        directions = max(2, min(int(self.n_components) + _BESIDE, width))
        most = min(_MOST_ITERATIONS, -(-width // directions))
        # Random directions have about sqrt(directions / width) in common with a component. Each round at least doubles
        # that where there is more signal than noise, and two more settle it.
        rounds = min(most, 2 + math.ceil(math.log2(width / directions) / 2))
        if self.iterations is not None:
            check_whole("iterations", self.iterations, 1, most)
            rounds = int(self.iterations)
        draft = Directions(
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
        return draft.calibrated(budgets)

    def details(self, task: Task, statement: Statement) -> Details:
        """How many openings a wide table takes."""
        if isinstance(task, Moments):
            return Details()
        line = f"{task.rounds:,} openings of products with {task.directions:,} directions each, priced as one"
        return Details("power", {"openings": task.rounds, "directions": task.directions}, brief=(line,))

    def outlook(self, roster: Roster, task: Task, rows: int | None) -> Outlook:
        """How far noise moves the variance along a component, against an even share of half the rows' squared norm."""
        share = math.fsum(block.clip**2 for block in task.blocks) / (2 * len(task.names))
        moved = operator_norm(task.noise_std / math.sqrt(2), len(task.names))  # two copies off the diagonal
        return Outlook.falling("the variance of a component, in even shares,", ENOUGH_OF_A_SHARE, moved / share, rows)

    def owner(self, me: Owner, table: Table, task: Task) -> Published:
        """An owner's program: second moments, or products with directions, are all that is computed together."""
        rows = table.sorted_by_id()
        return moments.owner(me, rows, task) if isinstance(task, Moments) else power.owner(me, rows, task)

    def coordinator(self, me: Coordinator, task: Task) -> Published:
        """The coordinator's program."""
        return moments.coordinator(me, task) if isinstance(task, Moments) else power.coordinator(me, task)

    def simulated(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        return published({name: table.matrix() for name, table in tables.items()}, task, stream)

    def finish(self, result: Published) -> None:
        """Set the components: eigenvectors of the noisy matrix, or of its products with directions."""
        task = result.task
        if isinstance(result, NoisyMoments):
            matrix = result.covariance if self.center else result.second_moments / result.count
            values, vectors = top_eigenvectors(matrix, self.n_components)
            total = float(np.trace(matrix))
        else:
            values, vectors = result.components(self.n_components)
            vectors, total = signed(vectors), result.variance
        self.feature_names_in_ = list(task.names)
        self.components_ = vectors
        self.explained_variance_ = values
        self.explained_variance_ratio_ = values / max(total, float(values.sum()), 1e-300)
        self.mean_ = result.means if self.center else np.zeros(len(task.names))
        self.count_ = result.count
        self.noise_std_ = task.noise_std

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        names = [f"{party}.{name}" for party, schema in self.schemas_.items() for name in schema.encoded_names]
        count, width = len(self.components_), len(names)
        shapes = {"components": (count, width), "mean": (width,)}
        shapes |= dict.fromkeys(("explained_variance", "explained_variance_ratio"), (count,))
        if self.feature_names_in_ != names or any(getattr(self, f"{k}_").shape != due for k, due in shapes.items()):
            raise ValueError("components and columns do not belong together")

    def transform(self, X: People) -> Matrix:
        """Scores of new rows.

        A federation is matched on its ids, and the scores come in the order of the ids. In a mapping from party to
        table, all tables must hold the same people in the same order: nothing is matched. An array is an encoded
        matrix. The caller has all columns; one party alone computes its part with :meth:`partial`.
        """
        self._check_fitted()
        if (total := summed(X, list(self.schemas_), self.partial, "transform")) is not None:
            return total
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != len(self.mean_):
            raise DataError(f"an encoded matrix has rows of {len(self.mean_)} columns; this array has shape {X.shape}")
        scores: Matrix = (X - self.mean_) @ self.components_.T
        return scores

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

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        share = f"{float(self.explained_variance_ratio_.sum()):.1%} of the variance"
        return f"{len(self.components_)} components of {self.n_features_in_} encoded columns, {share}"

    def summary(self) -> list[str]:
        """The explained variance, and the strongest loadings of the first components."""
        self._check_fitted()
        ratios = ", ".join(f"{ratio:.3f}" for ratio in self.explained_variance_ratio_)
        lines = [f"explained variance of the {self.n_components} components: {ratios}"]
        for index, component in enumerate(self.components_[:3]):
            strongest = abs(component).argsort()[::-1][:4]
            loadings = ", ".join(f"{self.feature_names_in_[i]} {component[i]:+.2f}" for i in strongest)
            lines.append(f"  component {index + 1}: {loadings}")
        return lines


def top_eigenvectors(matrix: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues, never negative, and their vectors as rows with the largest entry positive."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1][:count], 0.0), signed(vectors[:, ::-1][:, :count].T)


def signed(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row or its opposite, so that its largest entry is positive."""
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    turned: NDArray[np.float64] = rows * np.sign(largest)[:, None]
    return turned


def published(matrices: Mapping[str, NDArray[np.float64]], task: Task, stream: Stream) -> Published:
    """What a run would publish about these encoded rows, computed in one place; for evaluation."""
    if isinstance(task, Moments):
        return moments.simulate(matrices, task, stream)
    return power.simulate(matrices, task, stream)


def _fits(task: Task) -> bool:
    """Whether the integers can hold the sums, and a message can hold what is opened."""
    try:
        return bool(task.committee.system.primes)
    except CapacityError:
        return False
