"""Directions for a head: they begin at the label's columns, and go where the answers point.

The first round asks for the axes of the label's columns, so its answers are the sums of features by class (or of
features times a number; then the constant's axis is asked for too, which gives the means). The second round asks for
the directions of these sums, each later one for what the answers of the round before have outside of all directions so
far. These span the Krylov spaces in which conjugate gradients look for the weights of least squares: each round is one
step, for all classes at once, and what is known at the end is X'X within the few directions that matter to the label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.kinds.pca.directions.search import Matrix
from colonnade.kinds.pca.directions.task import Directions

Asked = tuple[NDArray[np.int32], ...]
Opened = tuple[NDArray[np.int64], ...]
_INDEPENDENT = 1e-3


def beginning(task: Directions) -> Matrix:
    """The axes of the label's columns; of a number, the constant's too."""
    first = np.zeros((task.width, task.directions))
    first[list(task.roots), np.arange(len(task.roots))] = 1.0
    return first


@dataclass(frozen=True)
class Explored:
    """What was opened about the features within the directions that were asked for, and about the label."""

    task: Directions
    asked: Asked
    opened: Opened

    @property
    def _features(self) -> NDArray[np.intp]:
        return np.setdiff1d(np.arange(self.task.width - 1), self.task.labels)

    @cached_property
    def _answers(self) -> Matrix:
        """Z'Z times all directions, noisy, in the columns' units."""
        task = self.task
        products = [round_[:-1].reshape(task.width, task.directions) for round_ in self.opened]
        return np.hstack(products) / float(task.gamma) ** 2

    @cached_property
    def _lengths(self) -> Matrix:
        """How long the directions of the label's columns are, as integers."""
        lengths = self.asked[0][list(self.task.roots)].diagonal().astype(np.float64)
        if not (lengths > 0).all():
            raise ProtocolError(f"{self.task.speaker} did not ask for the label's columns first [MS020]")
        return lengths

    @cached_property
    def _basis(self) -> tuple[Matrix, Matrix]:
        """An orthonormal basis of the features' directions, (features, m), and Z'Z times it, (width, m)."""
        directions = np.hstack(self.asked).astype(np.float64)[:, self.task.directions :]
        answers = self._answers[:, self.task.directions :]
        there = np.flatnonzero(np.abs(directions).any(axis=0))
        chosen = directions[np.ix_(self._features, there)]
        if not len(there):
            return chosen, answers[:, there]
        # They are nearly orthogonal already, and all about as long as the reach, if everybody is honest.
        values = np.linalg.eigvalsh(inner := chosen.T @ chosen)
        if values[0] < _INDEPENDENT * values[-1]:
            raise ProtocolError(f"{self.task.speaker} asked for the same directions again [MS021]")
        back = np.linalg.inv(np.linalg.cholesky(inner)).T
        return chosen @ back, answers[:, there] @ back

    @property
    def basis(self) -> Matrix:
        """Orthonormal directions of the features, (features, m); the label's columns and the constant are left out."""
        return self._basis[0]

    @property
    def labelled(self) -> Matrix:
        """Z'Z times the axes of the label's columns (and the constant's), (width, roots)."""
        return self._answers[:, : len(self.task.roots)] / self._lengths

    def following(self) -> Matrix:
        """The next directions: what the last answers have outside of all directions so far."""
        task, basis = self.task, self.basis
        last = self.labelled if len(self.opened) == 1 else self._answers[:, -task.directions :]
        wanted = last[self._features]
        for _ in range(2):  # twice, as the first time leaves rounding errors
            wanted = wanted - basis @ (basis.T @ wanted)
            wanted = np.linalg.qr(wanted)[0]
        left = len(basis) - basis.shape[1]
        found = np.zeros((task.width, min(wanted.shape[1], left)))
        found[self._features] = wanted[:, :left]
        return found

    def sums(self) -> tuple[Matrix, Matrix]:
        """Noisy second moments of (features along the basis, label, constant of a number), and their deviations.

        What was opened twice, as two entries that would be equal without noise, is averaged.
        """
        roots = list(self.task.roots)
        basis, products = self._basis
        from_labels = basis.T @ self.labelled[self._features]
        whole = np.block([[basis.T @ products[self._features], from_labels], [products[roots], self.labelled[roots]]])
        shortest = float(self._lengths.min())
        each = self.task.additive.deviation / (float(self.task.gamma) ** 2 * shortest)
        deviations = np.full(whole.shape, each / math.sqrt(2))
        np.fill_diagonal(deviations, each)
        return (whole + whole.T) / 2, deviations
