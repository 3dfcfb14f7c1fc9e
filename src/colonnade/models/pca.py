"""Principal components of columns that nobody holds together, from one noisy release of second moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.base import Estimator
from colonnade.models.federation import Federation, Roster
from colonnade.privacy import parse_budgets
from colonnade.protocols import moments
from colonnade.protocols.moments_task import Block, Moments, NoisyMoments, calibrated
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.tables import Schema, Table, read_table

# The constant column costs sensitivity and buys the means: worth more when they are subtracted.
_CONSTANT_SHARE = {True: 0.5, False: 0.125}


class PCA(Estimator):
    """Differentially private principal component analysis over vertically partitioned columns.

    Args:
        n_components: how many components to keep.
        epsilon: one number for everyone (each observer alone, each pair, as many owners as the threshold with the
            coordinator), or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all these promises.
        center: subtract the (noisy) column means first.
        gamma: the scale of the integer grid; rounding costs about sqrt(columns)/gamma of the clip.
        rows_at_most: a public limit on the number of rows, from which the arithmetic is sized.
    """

    kind = "pca"

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float | Mapping[str, float],
        delta: float = 1e-5,
        center: bool = True,
        gamma: int = 4096,
        rows_at_most: int = 2**24,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.center = center
        self.gamma = gamma
        self.rows_at_most = rows_at_most

    def plan(self, roster: Roster) -> Moments:
        """The least noise that meets every budget."""
        blocks = tuple(Block(owner, schema.encoded_names, schema.clip) for owner, schema in roster.schemas.items())
        width = sum(len(block.columns) for block in blocks)
        _whole("n_components", self.n_components, 1, width)
        _whole("gamma", self.gamma, 2, 2**26)
        _whole("rows_at_most", self.rows_at_most, 1, 2**40)
        budgets = parse_budgets(self.epsilon, self.delta, roster.trust)
        norm = float(np.sqrt(sum(block.clip**2 for block in blocks)))
        constant = max(1, round(_CONSTANT_SHARE[bool(self.center)] * norm * self.gamma))
        draft = Moments(
            blocks, roster.trust, self.gamma, constant, self.rows_at_most, noise=len(blocks), hidden=roster.hidden
        )
        return calibrated(draft, budgets)

    def owner(self, me: Owner, table: Table, task: Moments) -> NoisyMoments:
        """An owner's program: second moments are all that is computed together."""
        return moments.owner(me, table.sorted_by_id(), task)

    def coordinator(self, me: Coordinator, task: Moments) -> NoisyMoments:
        """The coordinator's program."""
        return moments.coordinator(me, task)

    def finish(self, result: NoisyMoments) -> None:
        """Eigenvectors of the noisy matrix."""
        task = result.task
        matrix = result.covariance if self.center else result.second_moments / result.count
        values, vectors = top_eigenvectors(matrix, self.n_components)
        self.feature_names_in_ = list(task.names)
        self.components_ = vectors
        self.explained_variance_ = values
        self.explained_variance_ratio_ = values / max(float(np.trace(matrix)), float(values.sum()), 1e-300)
        self.mean_ = result.means if self.center else np.zeros(len(task.names))
        self.count_ = result.count
        self.noise_std_ = task.noise_std

    def transform(self, X: Federation | Mapping[str, Any] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of new rows.

        A federation is matched on its ids, and the scores come in the order of the ids. Of a mapping from party to
        table, the tables must hold the same people in the same order: nothing is matched. An array is an encoded
        matrix. Whoever calls this holds all the columns; a party alone gets its summand from :meth:`partial`.
        """
        self._check_fitted()
        if isinstance(X, Federation):
            X = X.tables()
        if isinstance(X, Mapping):
            if missing := set(self.schemas_) - set(X):
                raise DataError(f"no table of {', '.join(sorted(missing))}; transform needs one of each party")
            parts = [self.partial(party, X[party]) for party in self.schemas_]
            if len({len(part) for part in parts}) > 1:
                raise DataError("the tables have different numbers of rows; transform needs the same people in each")
            total: NDArray[np.float64] = np.sum(parts, axis=0)
            return total
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != len(self.mean_):
            raise DataError(f"an encoded matrix has rows of {len(self.mean_)} columns; this array has shape {X.shape}")
        scores: NDArray[np.float64] = (X - self.mean_) @ self.components_.T
        return scores

    def partial(self, party: str, source: Any) -> NDArray[np.float64]:
        """One party's summand of the scores, from its own columns alone, in the order of its rows."""
        self._check_fitted()
        schema = self.schemas_.get(party)
        if schema is None:
            raise DataError(f"the model knows no party {party}; it knows {', '.join(self.schemas_)}")
        X = encoded(source, schema)
        span = self._span(party)
        part: NDArray[np.float64] = (X - self.mean_[span]) @ self.components_[:, span].T
        return part

    def learned(self) -> dict[str, Any]:
        """The learned attributes as plain values."""
        return {
            "feature_names_in": self.feature_names_in_,
            "components": self.components_.tolist(),
            "explained_variance": self.explained_variance_.tolist(),
            "explained_variance_ratio": self.explained_variance_ratio_.tolist(),
            "mean": self.mean_.tolist(),
            "count": self.count_,
            "noise_std": self.noise_std_,
        }

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""
        self.feature_names_in_ = [str(name) for name in learned["feature_names_in"]]
        self.components_ = np.array(learned["components"], dtype=np.float64)
        self.explained_variance_ = np.array(learned["explained_variance"], dtype=np.float64)
        self.explained_variance_ratio_ = np.array(learned["explained_variance_ratio"], dtype=np.float64)
        self.mean_ = np.array(learned["mean"], dtype=np.float64)
        self.count_ = float(learned["count"])
        self.noise_std_ = float(learned["noise_std"])

    def _span(self, party: str) -> slice:
        start = 0
        for name, schema in self.schemas_.items():
            if name == party:
                return slice(start, start + schema.encoded_width)
            start += schema.encoded_width
        raise KeyError(party)


def top_eigenvectors(matrix: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues, never negative, and their vectors as rows with the largest entry positive."""
    values, vectors = np.linalg.eigh(matrix)
    rows = vectors[:, ::-1][:, :count].T.copy()
    rows *= np.sign(rows[np.arange(count), np.abs(rows).argmax(axis=1)])[:, None]
    return np.maximum(values[::-1][:count], 0.0), rows


def encoded(source: Any, schema: Schema) -> NDArray[np.float64]:
    """The encoded rows of a table, in its own order."""
    table = source if isinstance(source, Table) else read_table(source, schema, id=None)
    if table.schema != schema:
        raise DataError(f"{table.source} was read under another schema than the model was fitted with")
    return table.matrix()


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
