"""From published noisy sums of embeddings and labels to the linear head of a split network.

Nothing here sees a row: it reads published numbers and public sizes, so it costs no privacy and may be done again in
another way (docs/theory/heads-from-moments.md). The sums have noise of a known deviation. A symmetric D x D matrix of
it stretches no direction by more than about 2 s sqrt(D); directions of the embeddings with less signal than a part of
that are not believed.

- ``"discriminant"``: every class is a cloud of the same shape around its own mean; the scores are logarithms of the
  classes' probabilities. Eigenvalues of the clouds' shape below a third of the noise's norm are raised to it.
- ``"ridge"``: least squares of the classes' flags, or of a number, with a ridge that follows from the noise.
- ``"logistic"``: the same weights, steepened so that each class's score is about its log-odds against the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.regression import least_squares

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Solver = Literal["auto", "ridge", "discriminant", "logistic"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)

# Parts of the noise's norm, chosen by accuracy on test rows of digits, photographs and census at epsilon 1 and 8.
_FLOOR = {False: 1 / 3, True: 0.4}  # False: of all features; True: of directions that were sought
_RIDGE = {False: 1 / 4, True: 1.0}


@dataclass(frozen=True)
class LinearHead:
    """Public weights, (outputs, features), and an intercept for each output: a class, or the one number."""

    weights: Matrix
    intercept: Vector
    kind: str
    facts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.intercept.shape != self.weights.shape[:1]:
            raise ValueError("weights and intercepts of a head do not belong together [VA067]")

    def scores(self, embeddings: Matrix) -> Matrix:
        """The scores of joint embeddings, (rows, outputs)."""
        return np.asarray(embeddings @ self.weights.T + self.intercept)

    def probabilities(self, embeddings: Matrix) -> Matrix:
        """A probability for each class, as the head's kind reads its scores."""
        scores = self.scores(embeddings)
        if self.kind == "discriminant":
            found = np.exp(scores - scores.max(axis=1, keepdims=True))
        elif self.kind == "logistic":
            found = 1 / (1 + np.exp(-np.clip(scores, -500.0, 500.0)))
        else:
            found = np.clip(scores, 1e-6, 1.0)
        return np.asarray(found / found.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class LabelledSums:
    """Noisy sums over all rows, the last columns the label's, and the deviations of their noise.

    ``matrix`` is (D + outputs, D + outputs). Of classes, the label's columns are flags, exactly one of which is 1, so
    that they tell the number of rows and the means as well. Of a number, ``matrix`` has one more column, a constant.
    Features that are few directions, ``sought`` for by noisy answers, all matter to the label, and so does noise in
    each of them: eigenvalues are then believed less.
    """

    matrix: Matrix
    deviations: Matrix
    outputs: int
    sought: bool = False

    def __post_init__(self) -> None:
        if self.matrix.shape != self.deviations.shape or self.matrix.ndim != 2 or len(set(self.matrix.shape)) != 1:
            raise ValueError("sums and their deviations are square matrices of one size [VA068]")
        if not 1 <= self.outputs < len(self.matrix):
            raise ValueError("sums have columns of a label, and others [VA069]")


def fit_head(
    sums: LabelledSums, *, classes: int, constant: float = 1.0, solver: str = "auto", ridge: float | str = "auto"
) -> LinearHead:
    """The head that the sums give; ``classes`` is 0 for a number, whose sums end with a column of the ``constant``."""
    if solver not in SOLVERS:
        raise StudyError(f"solver must be one of {', '.join(SOLVERS)}, not {solver!r} [ST280]")
    if ridge != "auto":
        least_squares.check_ridge(ridge)
    if not classes:
        if solver not in ("auto", "ridge"):
            raise StudyError(f'a number is predicted by solver = "ridge"; {solver!r} is for classes [ST281]')
        return _regression(sums, constant, ridge)
    if solver in ("auto", "discriminant"):
        return _discriminant(sums, ridge)
    return _least_squares(sums, ridge, steep=solver == "logistic")


def features_of(sums: LabelledSums, *, classes: int, constant: float) -> least_squares.LeastSquaresProblem:
    """Least squares of the label on the features, around their means; sums of a number end with the ``constant``."""
    if not classes:
        labels = np.arange(len(sums.matrix) - 1 - sums.outputs, len(sums.matrix) - 1)
        return least_squares.least_squares_problem(sums.matrix, sums.deviations, constant, labels)
    gram, cross, sizes, noise = _parts(sums)
    rows, width = float(sizes.sum()), len(gram)
    mean = cross.sum(axis=1) / rows
    return least_squares.LeastSquaresProblem(
        gram=gram - rows * np.outer(mean, mean),
        cross=cross - np.outer(mean, sizes),
        rows=rows,
        feature_means=mean,
        label_means=sizes / rows,
        noise=noise,
        cross_deviations=sums.deviations[:width, width:],
    )


def _discriminant(sums: LabelledSums, ridge: float | str) -> LinearHead:
    """Log-probabilities of classes that are normal around their means, all with the same covariance."""
    gram, cross, sizes, noise = _parts(sums)
    rows = float(sizes.sum())
    means = cross / sizes
    within = gram - means @ cross.T
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    floor = _FLOOR[sums.sought] * noise if ridge == "auto" else float(ridge)
    floor = max(floor, float(values.max(initial=0.0)) * len(values) * float(np.finfo(np.float64).eps), 1e-300)
    kept = np.maximum(values, floor) if ridge == "auto" else np.maximum(values, 0.0) + floor
    weights = (vectors / kept) @ (vectors.T @ means) * rows
    offsets = np.log(sizes / rows) - np.einsum("dk,dk->k", means, weights) / 2
    facts = {"rows": rows, "ridge": floor, "raised": float(np.count_nonzero(values < floor)), "noise": noise}
    return LinearHead(weights.T, offsets, "discriminant", facts)


def _least_squares(sums: LabelledSums, ridge: float | str, *, steep: bool) -> LinearHead:
    """Least squares of the classes' flags; ``steep`` turns each fitted share into log-odds."""
    whole = features_of(sums, classes=sums.outputs, constant=1.0)
    given = replace(whole, noise=_RIDGE[sums.sought] * whole.noise)
    found = least_squares.solve(given, ridge)
    facts = {"rows": given.rows, "ridge": found.ridge, "raised": float(found.clipped), "noise": whole.noise}
    if not steep:
        return LinearHead(found.weights, found.intercepts, "ridge", facts)
    known = zip(given.label_means, found.spreads, found.agreements, strict=True)
    slope = math.fsum(least_squares.steepness(0.5, *map(float, each)) for each in known) / sums.outputs
    return LinearHead(slope * found.weights, slope * (found.intercepts - 0.5), "logistic", facts | {"slope": slope})


def _regression(sums: LabelledSums, constant: float, ridge: float | str) -> LinearHead:
    """Least squares of a number, around the means that the constant's column gives."""
    given = features_of(sums, classes=0, constant=constant)
    if sums.sought:
        # What is subtracted around the means has noise too, along them; of few directions one is theirs.
        far = float(np.linalg.norm(given.feature_means)) / constant
        given = replace(given, noise=given.noise * (1 + far) + far**2 * float(sums.deviations[-1, -1]))
    found = least_squares.solve(given, ridge)
    facts = {"rows": given.rows, "ridge": found.ridge, "raised": float(found.clipped), "noise": given.noise}
    return LinearHead(found.weights, found.intercepts, "ridge", facts)


def _parts(sums: LabelledSums) -> tuple[Matrix, Matrix, Vector, float]:
    """Z'Z, Z'Y, the classes' sizes, never below their noise, and about the operator norm of the noise in Z'Z."""
    width = len(sums.matrix) - sums.outputs
    sizes = np.maximum(np.diagonal(sums.matrix)[width:], np.maximum(1.0, np.diagonal(sums.deviations)[width:]))
    noise = least_squares.operator_norm(sums.deviations[:width, :width])
    cross = sums.matrix[:width, width:]
    if sums.sought and width > 1:
        # Sums of classes are subtracted, and have noise of their own; it lies along the means.
        far = float(np.linalg.norm(cross.sum(axis=1))) / float(sizes.sum())
        noise *= 1 + far * float(sums.deviations[0, width] / max(sums.deviations[0, 1], 1e-300))
    return sums.matrix[:width, :width], cross, sizes, noise
