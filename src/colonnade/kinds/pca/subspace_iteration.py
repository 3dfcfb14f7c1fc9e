"""The public part of subspace iteration: which directions to ask for next, and what the answers give.

Directions are integers, because products are computed with integers. Floats differ between machines, so one participant
chooses them, and everybody checks exactly that they keep the bound which the sensitivity counts on. Directions may also
be sought that matter to a label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError, ProtocolError
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]
IntegerDirections = NDArray[np.int32]
_LESS = 0.98


class DirectionHistory:
    """All directions of the rounds so far, with a check that together they are within the task's ``reach``.

    The squared spectral norm of C is the largest eigenvalue of C'C, which is at most the largest sum of absolute values
    in one of its rows. These are integers below 2^53, so the floats are exact.
    """

    def __init__(self, task: SubspaceIteration) -> None:
        self.task = task
        self.rounds: list[IntegerDirections] = []
        self._sums: Matrix = np.zeros(0)

    def add(self, directions: Any) -> None:
        """Add the directions of one more round, or refuse them if their form is wrong or they are not within reach."""
        shape = (self.task.width, self.task.directions)
        if not isinstance(directions, np.ndarray) or directions.dtype != np.int32 or directions.shape != shape:
            raise ProtocolError(f"{self.task.speaker} sent directions of another form than was due [MS022]")
        sums = self._with(directions)
        if sums is None:
            raise PrivacyError(
                "the directions are longer, or nearer to those asked before, than the sensitivity allows; nothing more "
                "is revealed [PR108]"
            )
        self.rounds.append(directions)
        self._sums = sums

    def round_directions(self, wanted: Matrix) -> IntegerDirections:
        """Orthonormal columns as integers, within reach together with all rounds before; missing columns are zero.

        Rounded columns are not quite orthogonal, which adds up over the rounds, so each leaves room for later rounds.
        """
        task = self.task
        if not np.isfinite(wanted).all():
            raise ProtocolError("the next directions cannot be computed from what was opened [MS023]")
        left = task.rounds - len(self.rounds) - 1
        scale = math.sqrt(max(task.reach**2 / 4, task.reach**2 - task.rounds * task.room - task.width / 6))
        while True:
            whole = np.zeros((task.width, task.directions), dtype=np.int32)
            whole[:, : wanted.shape[1]] = np.rint(wanted * scale)
            sums = self._with(whole)
            if sums is not None and (not whole.any() or float(sums.max()) <= task.reach**2 - left * task.room):
                return whole
            scale *= _LESS

    def _with(self, directions: IntegerDirections) -> Matrix | None:
        """The row sums of C'C with one more round, or ``None`` if they are not within reach."""
        if max(int(directions.max(initial=0)), -int(directions.min(initial=0))) > self.task.reach:
            return None
        new = directions.astype(np.float64)
        beside = [np.abs(before.T.astype(np.float64) @ new) for before in self.rounds]
        across = np.vstack(beside) if beside else np.zeros((0, new.shape[1]))
        own = np.abs(new.T @ new).sum(axis=1) + across.sum(axis=0)
        sums = np.concatenate([self._sums + across.sum(axis=1), own])
        return sums if float(sums.max()) <= float(self.task.reach**2) else None


@dataclass(frozen=True)
class NoisyProducts:
    """The published result: the directions, the opened products, and numbers that are computed from them."""

    task: SubspaceIteration
    directions: tuple[IntegerDirections, ...]
    opened: tuple[NDArray[np.int64], ...]

    @cached_property
    def _basis(self) -> tuple[Matrix, Matrix]:
        """An orthonormal basis of all directions, that of the constant first, and the noisy Z'Z times the basis."""
        task = self.task
        directions = np.hstack(self.directions).astype(np.float64)
        products = np.hstack([round_[:-1].reshape(task.width, -1) for round_ in self.opened]) / float(task.gamma) ** 2
        there = np.flatnonzero(np.abs(directions).any(axis=0))
        # They are nearly orthogonal already, so this is exact enough, and faster than a QR decomposition.
        chosen = directions[:, there]
        back = np.linalg.inv(np.linalg.cholesky(chosen.T @ chosen)).T
        return chosen @ back, products[:, there] @ back

    @property
    def constant(self) -> float:
        """The constant column's value, in the units of the encoded columns."""
        return self.task.constant / self.task.gamma

    @cached_property
    def count(self) -> float:
        """The noisy number of rows, never below one."""
        basis, products = self._basis
        return max(1.0, float(basis[:, 0] @ products[:, 0]) / self.constant**2)

    @cached_property
    def means(self) -> Matrix:
        """The noisy column means."""
        basis, products = self._basis
        means: Matrix = products[:-1, 0] * basis[-1, 0] / (self.constant * self.count)
        return means

    def variance(self, *, center: bool = True) -> float:
        """The noisy mean squared norm of a row, less that of the means if the task centres; never below zero."""
        task = self.task
        total = float(self.opened[0][-1]) / (task.total_weight * float(task.gamma) ** 2)
        squared = total / self.count - self.constant**2
        if task.center:
            # Noise makes the means longer; this much on average.
            added = len(self.means) * (task.noise_std / (self.constant * self.count)) ** 2
            squared -= max(0.0, float(self.means @ self.means) - added)
        return max(0.0, squared)

    @property
    def entry_deviation(self) -> float:
        """The deviation of the noise on an entry of X'X q for a direction q of length one, or of the diagonal.

        Directions are as long as they were asked.
        """
        lengths = np.linalg.norm(np.hstack(self.directions).astype(np.float64), axis=0)
        return self.task.noise_std * self.task.reach / float(np.sqrt(np.mean(lengths[lengths > 0] ** 2)))

    @property
    def sum_deviations(self) -> Matrix:
        """The same for each column's sum, times the constant, and for the constant itself."""
        return np.full(self.task.width, self.entry_deviation)

    @property
    def largest(self) -> float:
        """About the largest sum of squares in one direction: that of all of them."""
        return self.variance() * self.count

    def spectrum(self, *, center: bool = True) -> tuple[Matrix, Matrix]:
        """The variances within all directions that were asked, in rising order, and the directions as columns."""
        inside, _, basis = self._centred()
        values, vectors = np.linalg.eigh(inside)
        return values / self.count, (basis @ vectors)[:-1]

    def components(self, count: int, *, center: bool = True) -> tuple[Matrix, Matrix]:
        """The largest variances, never negative, and orthonormal directions of them as rows.

        They are combinations of all directions that were asked and of those that would be asked next; the products of
        the latter with each other are not known and count as zero.
        """
        inside, products, basis = self._centred()
        fresh = orthogonal_to(self._basis[0], products @ _leading(inside, self.task.directions))
        across = fresh.T @ products
        rest = np.zeros((len(across), len(across)))
        values, vectors = np.linalg.eigh(np.block([[inside, across.T], [across, rest]]))
        found = (np.hstack([basis, fresh]) @ vectors[:, ::-1][:, :count])[:-1]
        return np.maximum(values[::-1][:count], 0.0) / self.count, found.T

    def following(self) -> Matrix:
        """The next directions: what the products of the leading directions have outside of all directions so far."""
        inside, products, _ = self._centred()
        leading = products @ _leading(inside, self.task.directions)
        beside = np.hstack([leading, self._basis[1][:, :1]])[:, : self.task.directions]
        return orthogonal_to(self._basis[0], beside)

    def _centred(self) -> tuple[Matrix, Matrix, Matrix]:
        """X'X in the basis, its products, and the basis, without the constant; around the means if the task centres."""
        basis, products = self._basis
        inside = basis.T @ products
        inside = (inside + inside.T) / 2
        around, mean = inside[1:, 1:], inside[1:, 0]
        wide = products[:, 1:]
        if self.task.center:
            squares = self.constant**2 * self.count
            around = around - np.outer(mean, mean) / squares
            wide = wide - np.outer(products[:, 0], mean) / squares
        return around, wide, basis[:, 1:]


def orthogonal_to(basis: Matrix, wanted: Matrix) -> Matrix:
    """Orthonormal columns that are orthogonal to all directions so far; fewer if that many do not exist."""
    for _ in range(2):  # twice, as the first time leaves rounding errors
        wanted = wanted - basis @ (basis.T @ wanted)
        wanted = np.linalg.qr(wanted)[0]
    return wanted[:, : basis.shape[0] - basis.shape[1]]


def random_directions(task: SubspaceIteration, stream: Stream) -> Matrix:
    """The first directions: that of the constant, and random ones."""
    width = task.width
    first = np.zeros((width, 1 + min(width - 1, task.directions - 1)))
    first[-1, 0] = 1.0
    # Not random signs: numbers of equal size are rounded in the same direction, and the errors add up.
    first[:-1, 1:] = np.linalg.qr(stream.uint32((width - 1, first.shape[1] - 1)) / 2.0**31 - 1.0)[0]
    return first


def _leading(inside: Matrix, count: int) -> Matrix:
    """The eigenvectors of the largest eigenvalues, as columns."""
    return np.linalg.eigh(inside)[1][:, ::-1][:, :count]


DirectionsByRound = tuple[NDArray[np.int32], ...]
ProductsByRound = tuple[NDArray[np.int64], ...]
_INDEPENDENT = 1e-3


def label_directions(task: SubspaceIteration) -> Matrix:
    """The axes of the label's columns; of a number, the constant's too."""
    first = np.zeros((task.width, task.directions))
    first[list(task.roots), np.arange(len(task.roots))] = 1.0
    return first


@dataclass(frozen=True)
class LabelledProducts:
    """What was opened about the features within the directions that were asked for, and about the label."""

    task: SubspaceIteration
    asked: DirectionsByRound
    opened: ProductsByRound

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
        wanted = orthogonal_to(basis, last[self._features])
        found = np.zeros((task.width, wanted.shape[1]))
        found[self._features] = wanted
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
