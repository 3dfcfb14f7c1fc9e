"""Heads of split networks: linear ones from noisy sums or noisy embeddings, and those that learn step by step.

What reads sums sees no row, but published numbers and public sizes, so it costs no privacy and may be done again in
another way (docs/theory/heads-from-moments.md). The sums have noise of a known deviation. A symmetric D x D matrix of
it stretches no direction by more than about 2 s sqrt(D); directions of the embeddings with less signal than a part of
that are not believed.

- ``"discriminant"``: every class is a cloud of the same shape around its own mean; the scores are logarithms of the
  classes' probabilities. Eigenvalues of the clouds' shape below a third of the noise's norm are raised to it.
- ``"ridge"``: least squares of the classes' flags, or of a number, with a ridge that follows from the noise.
- ``"logistic"``: the same weights, steepened so that each class's score is about its log-odds against the others.

The same moments give a head over the embeddings of each party alone, too: it follows from the same release and costs
nothing more. Whoever is told sums with noise weighs them against its own head's scores
(docs/theory/levels-of-scores.md), because noise that hides one person is mostly larger than all that the sums say.

Where embeddings are told with noise, the active party fits a head alone, from what it was told, its own columns and its
own labels, and keeps it. Noise on the rows does not move means of classes, but adds a known covariance to their spread.
A head for exact embeddings of new people uses the spread without it; one for noised embeddings the spread with the
noise that these have.

Heads that the active party trains itself are a linear layer, or any torch module of its own. They learn together with
encoders, for the algorithm as published, or from embeddings that are there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.prediction.score_posterior import GUESSED, PUBLISHED, ScorePosterior, update_by_noisy_sums
from colonnade.kinds.regression import least_squares
from colonnade.kinds.split.encoder_base import Matrix, Places, Vector
from colonnade.kinds.split.torch_encoders import set_weights
from colonnade.models.pytorch import Adam, find_device, load_torch

if TYPE_CHECKING:
    from torch import nn


Arrays = Mapping[str, NDArray[Any]]
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


# --- what one party's embeddings alone say of the scores, and what answers with noise add to that

WEIGHTS, INTERCEPTS, SPREADS = "own_weights", "own_intercepts", "own_spreads"
_STEPS = 30


def centre_classes(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights or scores without what all classes have in common, which no chance depends on; the first axis is theirs.

    One number stays as it is.
    """
    return weights - weights.mean(axis=0) if len(weights) > 1 else weights


def prior_arrays(
    given: least_squares.LeastSquaresProblem, deviations: Matrix, head: LinearHead, own: Mapping[str, LinearHead]
) -> Arrays:
    """The heads of single parties, and how far exact scores are from theirs, from noisy moments.

    ``own_weights`` are those of all parties side by side, ``own_intercepts`` one row a party, and ``own_spreads`` the
    covariances of what each party's own embeddings do not say.
    """
    spreads, start = [], 0
    for each in own.values():
        at = slice(start, start + each.weights.shape[1])
        spreads.append(_unexplained_covariance(given, deviations, head, each, at))
        start = at.stop
    return {
        WEIGHTS: np.hstack([each.weights for each in own.values()]),
        INTERCEPTS: np.array([each.intercept for each in own.values()]),
        SPREADS: np.array(spreads),
    }


def label_only_head(kind: str, means: Vector) -> LinearHead:
    """The head of a party with nothing but the label: the same scores for everybody, by the means of the label."""
    shares = np.clip(means, 1e-3, 1 - 1e-3)
    found = {"discriminant": np.log(shares), "logistic": np.log(shares / (1 - shares))}.get(kind, means)
    return LinearHead(np.zeros((len(means), 0)), found, kind)


@dataclass(frozen=True)
class ScorePrior:
    """The scores as one party's own embeddings foretell them, and the covariance of what these do not say."""

    weights: Matrix
    intercept: Vector
    spread: Matrix
    doubt: float = PUBLISHED

    @classmethod
    def read(cls, public: Arrays, widths: Mapping[str, int], party: str) -> ScorePrior:
        """What was learned with the head; in models of earlier releases, a guess.

        There the others' embeddings are taken to point anywhere, so that they add nothing that one could foretell.
        """
        ends = dict(zip(widths, np.cumsum(list(widths.values())).tolist(), strict=True))
        parts = {name: slice(end - widths[name], end) for name, end in ends.items()}
        if WEIGHTS in public:
            place = list(widths).index(party)
            return cls(public[WEIGHTS][:, parts[party]], public[INTERCEPTS][place], public[SPREADS][place])
        weights = centre_classes(public["weights"])
        others = [weights[:, at] / math.sqrt(widths[name]) for name, at in parts.items() if name != party]
        spread = sum((each @ each.T for each in others), start=np.zeros((len(weights),) * 2))
        slope = flattening_factor(spread)
        return cls(public["weights"][:, parts[party]] / slope, public["intercept"] / slope, spread, GUESSED)

    def scores(self, embeddings: Matrix) -> Matrix:
        """What is expected of the exact scores; their chances are those of the party's own head, once flattened."""
        found = embeddings @ self.weights.T + self.intercept
        return np.asarray(flattening_factor(self.spread) * centre_classes(found.T).T)

    def update(self, foreseen: Matrix, own: Matrix, heard: Matrix, deviation: float) -> tuple[Matrix, Matrix]:
        """The others' part as it is believed after it was heard with noise, and the covariance of what is not known.

        Noise of one deviation on every output is such noise along any axes, so along those in which the parts do not
        go together each is weighed by itself.
        """
        variances, axes = np.linalg.eigh(self.spread)
        rows = len(heard)
        before = ScorePosterior(foreseen @ axes, np.tile(np.maximum(variances, 0.0), (rows, 1)), self.doubt)
        after = update_by_noisy_sums(before, own @ axes, heard @ axes, deviation)
        left = after.variance[0] if rows else np.zeros(len(axes))
        return after.mean @ axes.T, np.asarray((axes * left) @ axes.T)


def flattening_factor(unknown: Matrix) -> float:
    """By how much to divide scores of classes that are known up to an error of this covariance; 1 for a number.

    A lead over another class, as a logarithm of odds, is divided by sqrt(1 + pi/8 variance); of several classes all
    pairs count alike.
    """
    outputs = len(unknown)
    if outputs < 2:
        return 1.0
    between = 2 * (np.trace(unknown) / outputs - (unknown.sum() - np.trace(unknown)) / (outputs * (outputs - 1)))
    return math.sqrt(1 + math.pi / 8 * max(0.0, float(between)))


def check_prior(public: Arrays, outputs: int, parties: int) -> None:
    """Raise an error unless single parties' heads belong to that of all; earlier releases had none."""
    if not {WEIGHTS, INTERCEPTS, SPREADS} & set(public):
        return
    shapes = {WEIGHTS: public["weights"].shape, INTERCEPTS: (parties, outputs), SPREADS: (parties, outputs, outputs)}
    if any(name not in public or public[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("heads of single parties do not belong to that of all [VA064]")
    if not np.allclose(public[SPREADS], public[SPREADS].transpose(0, 2, 1)):
        raise ValueError("a covariance is symmetric [VA065]")


def _unexplained_covariance(
    given: least_squares.LeastSquaresProblem, deviations: Matrix, head: LinearHead, own: LinearHead, at: slice
) -> Matrix:
    """The covariance of exact scores around what a party expects of them; never below what noise gives it.

    What it expects is its own head's scores, made steeper by as much as this covariance asks for.
    """
    spread, slope = np.zeros((len(head.weights),) * 2), 1.0
    for _ in range(_STEPS):
        missed = head.weights.copy()
        missed[:, at] -= slope * own.weights
        missed = centre_classes(missed)
        squares = np.square(missed)
        blur = np.sqrt(2 * np.diag(squares @ np.square(deviations) @ squares.T)) / given.rows
        variances, axes = np.linalg.eigh(missed @ given.gram @ missed.T / given.rows)
        spread = (axes * np.maximum(variances, np.square(axes).T @ blur)) @ axes.T
        slope = flattening_factor(spread)
    found = centre_classes(centre_classes(spread).T)  # what noise gives all classes in common says nothing
    return np.asarray((found + found.T) / 2)


# --- from embeddings that were told with noise

_LEAST = 1e-6


@dataclass(frozen=True)
class HeadStatistics:
    """All that heads need of the rows that were told: enough for new rows with any noise, and about nobody alone.

    Of classes ``middles`` are their means and ``weights`` their shares. Of a number, ``middles`` has one row, how the
    rows move with the number, and ``weights`` its mean.
    """

    spread: Matrix
    """The covariance of the rows, or within classes, without the noise that they have."""
    centre: Vector
    middles: Matrix
    weights: Vector
    told: int
    """How many columns were told; the others are the active party's own."""

    def head(self, noise: Vector) -> LinearHead:
        """The head for new rows with noise of these variances on the columns that are told."""
        spread = self.spread + np.diag(_pad_noise(noise, len(self.centre)))
        slopes = np.asarray(np.linalg.solve(spread, self.middles.T).T, dtype=np.float64)
        if len(self.weights) == 1:
            return LinearHead(slopes, self.weights - slopes @ self.centre, "ridge")
        intercept = np.log(self.weights) - 0.5 * (slopes * self.middles).sum(axis=1)
        return LinearHead(slopes, intercept, "discriminant")

    def alone(self) -> HeadStatistics:
        """The same of the active party's own columns, as if nothing had been told."""
        own = slice(self.told, None)
        return HeadStatistics(self.spread[own, own], self.centre[own], self.middles[:, own], self.weights, 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same as plain arrays, for a file."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> HeadStatistics:
        """Statistics from such arrays; a ValueError unless they belong together."""
        named = ("spread", "centre", "middles", "weights")
        found = {name: np.asarray(arrays[name], dtype=np.float64) for name in named}
        width, outputs, told = found["centre"].size, found["weights"].size, arrays["told"]
        shapes = ((width, width), (width,), (outputs, width), (outputs,))
        if tuple(each.shape for each in found.values()) != shapes or not 0 <= int(told) <= width:
            raise ValueError("the arrays of a head do not belong together [VA130]")
        return cls(**found, told=int(told))


def told_statistics(rows: Matrix, labels: NDArray[Any], noise: Vector, classes: int) -> HeadStatistics:
    """What a discriminant needs of rows and their classes, or least squares of rows and a number.

    The first columns were told with ``noise`` of these variances; the others are the active party's own.
    """
    centre, count = rows.mean(axis=0), len(rows)
    centred, known = rows - centre, _pad_noise(noise, rows.shape[1])
    if not classes:
        middle = float(labels.mean())
        spread, moved = (
            _subtract_noise(centred.T @ centred / count, known, count),
            centred.T @ (labels - middle) / count,
        )
        return HeadStatistics(spread, centre, moved[None, :], np.array([middle]), len(noise))
    members = (labels[:, None] == np.arange(classes)).astype(np.float64)
    sizes = members.sum(axis=0)
    # A class without people is put in the middle with the weight of one person.
    counts, sums = np.maximum(sizes, 1.0), np.where(sizes[:, None] < 1, centre, members.T @ rows)
    means = sums / counts[:, None]
    away = means - centre
    within = (centred.T @ centred - (away * counts[:, None]).T @ away) / count
    return HeadStatistics(_subtract_noise(within, known, count), centre, means, counts / counts.sum(), len(noise))


def _subtract_noise(spread: Matrix, noise: Vector, count: int) -> Matrix:
    """A covariance less the known noise on its diagonal, kept above what chance could leave of nothing.

    The floor is in units of each column's own deviation, so that columns of other scales do not decide for each other.
    """
    units = np.sqrt(np.maximum(np.diag(spread), np.finfo(float).tiny))
    relative = spread / units / units[:, None] - np.diag(noise / units**2)
    values, vectors = np.linalg.eigh(relative)
    chance = 2 * math.sqrt(len(units) / max(1, count)) * float(np.max(noise / units**2, initial=0.0))
    kept = (vectors * np.maximum(values, max(_LEAST, chance))) @ vectors.T
    return np.asarray(kept * units * units[:, None])


def _pad_noise(noise: Vector, columns: int) -> Vector:
    """The variance of noise on every column; own ones have none."""
    return np.pad(noise, (0, columns - len(noise)))


_ROWS = 4096


class SoftmaxHead:
    """A linear head, in numpy: logistic loss over ``classes``, or with 0 classes half the squared error of a number.

    It learns by Adam's steps of this rate, from the mean loss of a batch.
    """

    def __init__(self, labels: NDArray[Any], width: int, classes: int, *, rate: float = 0.01) -> None:
        self.labels, self.classes = check_labels(labels, classes), classes
        self.weights, self.offsets = np.zeros((width, max(1, classes))), np.zeros(max(1, classes))
        self._adam = Adam(rate)

    def scores(self, embeddings: Matrix) -> Matrix:
        """Scores of classes, or predicted numbers, (n, classes or 1)."""
        return np.asarray(embeddings @ self.weights + self.offsets)

    def slopes(self, places: Places, embeddings: Matrix, /) -> Matrix:
        """The slopes of the loss of each row of a batch; then the head moves."""
        _, pulls = loss_and_slopes(self.scores(embeddings), self.labels[places])
        back = pulls @ self.weights.T
        step = self._adam.step(np.vstack([embeddings.T @ pulls, pulls.sum(axis=0)]) / len(places))
        self.weights, self.offsets = self.weights + step[:-1], self.offsets + step[-1]
        return np.asarray(back)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned."""
        return {"weights": self.weights, "offsets": self.offsets}


class TorchHead:
    """Any torch module as the head, from all parties' embeddings to scores; it learns by Adam's steps of this rate.

    The module is copied.
    """

    def __init__(
        self,
        labels: NDArray[Any],
        width: int,
        classes: int,
        module: nn.Module,
        *,
        rate: float = 0.01,
    ) -> None:
        self.labels, self.classes = check_labels(labels, classes), classes
        self._device = find_device("auto")
        self.module: nn.Module = copy.deepcopy(module).to(self._device).float().eval()
        self._check(width)
        self._learned = [each for each in self.module.parameters() if each.requires_grad]
        self._adam = [Adam(rate) for _ in self._learned]

    def scores(self, embeddings: Matrix) -> Matrix:
        """Scores of classes, or predicted numbers, (n, classes or 1)."""
        torch = load_torch()
        with torch.no_grad():
            starts = range(0, max(1, len(embeddings)), _ROWS)
            blocks = [self._applied(self._tensor(embeddings[at : at + _ROWS])) for at in starts]
            return np.vstack([each.double().cpu().numpy() for each in blocks])

    def _applied(self, given: Any) -> Any:
        """What the party's own module makes of embeddings; if it fails, its words are not told, which may hold some."""
        try:
            return self.module(given)
        except Exception as error:
            raise StudyError(
                f"the module of the head failed on embeddings: {type(error).__name__} (its "
                "message is not shown) [ST288]"
            ) from None

    def slopes(self, places: Places, embeddings: Matrix, /) -> Matrix:
        """The slopes of the loss of each row of a batch; then the head moves."""
        given = self._tensor(embeddings).requires_grad_()
        scores = self._applied(given)
        _, pulls = loss_and_slopes(scores.detach().double().cpu().numpy(), self.labels[places])
        torch = load_torch()
        back, *grads = torch.autograd.grad(scores, [given, *self._learned], self._tensor(pulls))
        with torch.no_grad():
            for each, adam, grad in zip(self._learned, self._adam, grads, strict=True):
                each.add_(adam.step(grad / len(places)))
        found: Matrix = back.double().cpu().numpy()
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, by its names in the module."""
        return {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}

    def _tensor(self, values: Matrix) -> Any:
        made = load_torch().from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        return made.to(self._device)

    def _check(self, width: int) -> None:
        """Try the module on zeros, of which its message may be shown."""
        try:
            with load_torch().no_grad():
                shape = tuple(self.module(self._tensor(np.zeros((2, width)))).shape)
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:200]
            raise StudyError(
                f"the module of the head cannot be applied to embeddings of {width} numbers: {said} [ST289]"
            ) from None
        if shape != (2, max(1, self.classes)):
            raise StudyError(f"the module of the head must make {max(1, self.classes)} scores of each row [ST290]")


def check_labels(labels: NDArray[Any], classes: int) -> NDArray[Any]:
    """Labels as numbers, or as the numbers of classes."""
    found = np.asarray(labels)
    if classes == 0:
        return found.astype(np.float64)
    if classes < 2 or found.dtype.kind not in "iub" or (found.size and not 0 <= found.min() <= found.max() < classes):
        raise StudyError("the labels of a head are numbers of classes, from 0 to one below how many there are [ST292]")
    return found.astype(np.int64)


def loss_and_slopes(scores: Matrix, labels: NDArray[Any]) -> tuple[Vector, Matrix]:
    """Each row's loss, and how it changes with the row's scores."""
    if labels.dtype.kind == "f":
        error = scores[:, 0] - labels
        return error**2 / 2, error[:, None]
    rows, shifted = np.arange(len(labels)), scores - scores.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    totals = powers.sum(axis=1, keepdims=True)
    pulls = powers / totals
    pulls[rows, labels] -= 1.0
    return np.log(totals[:, 0]) - shifted[rows, labels], pulls


_EPOCHS, _BATCH, _RATE = 20, 256, 0.01


LearningHead = SoftmaxHead | TorchHead
"""What learns from the joint embeddings of a batch, and gives the slopes of each row's own loss before it moves."""


def create_head(
    labels: NDArray[Any], width: int, classes: int, module: Any = None, rate: float | None = None
) -> LearningHead:
    """A head that is to learn these labels from joint embeddings of this width."""
    if module is None:
        return SoftmaxHead(labels, width, classes, rate=rate or _RATE)
    return TorchHead(labels, width, classes, module, rate=rate or _RATE / 10)


def train_head(rows: Matrix, labels: NDArray[Any], classes: int, module: Any) -> dict[str, NDArray[Any]]:
    """What such a head learns from embeddings that are there; its order of batches is fixed."""
    head = create_head(labels, rows.shape[1], classes, module)
    random, count = np.random.default_rng(0), max(1, len(rows) // _BATCH)
    for _ in range(_EPOCHS):
        for places in np.array_split(random.permutation(len(rows)), count):
            head.slopes(places, rows[places])
    return head.arrays()


def head_scores(rows: Matrix, arrays: Mapping[str, NDArray[Any]], classes: int, module: Any = None) -> Matrix:
    """Scores by a head that was learned before, (rows, outputs)."""
    nobody = np.zeros(0, dtype=np.int64 if classes else np.float64)
    if module is None:
        if set(arrays) != {"weights", "offsets"}:
            raise StudyError(
                "the head is a module, of which files hold the weights alone: set head_module to it [ST295]"
            )
        if arrays["weights"].shape != (rows.shape[1], max(1, classes)):
            raise StudyError("the head that was kept does not belong to embeddings of this width [ST296]")
        return np.asarray(rows @ arrays["weights"] + arrays["offsets"])
    head = TorchHead(nobody, rows.shape[1], classes, module)
    set_weights(head.module, arrays)
    return head.scores(rows)
