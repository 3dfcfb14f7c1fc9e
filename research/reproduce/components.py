"""SQM's Fig. 1: variance captured by private principal components, on KDD Cup 1999 and on CiteSeer.

A run rounds the rows once for each gamma; all epsilons and both accountings share them. Second moments are added
up once and noise is drawn for each point, which is what the protocol publishes, integer for integer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import eigsh

from colonnade.kinds import PCA
from colonnade.kinds.pca.model import top_eigenvectors
from colonnade.models import Roster
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.noise import skellam
from colonnade.privacy.noise.local_mechanisms import stochastic_round
from colonnade.protocols.moments.programs import exact_gram
from colonnade.randomness import Stream
from colonnade.tables import Schema
from research.reproduce import calibration, chance
from research.reproduce.chance import Matrix
from research.reproduce.options import Options
from research.reproduce.results import AS_PUBLISHED, CURATOR, LOCAL, NONE, PROVEN, Group, Row

DELTA = 1e-5
_LARGE = 1000  # columns: from here on the top eigenvectors are found by Lanczos


@dataclass(frozen=True)
class Case:
    """Rows of norm at most 1, whole and by party, and which points of the figure to draw."""

    name: str
    parts: Mapping[str, Matrix]
    schemas: Mapping[str, Schema]
    gammas: tuple[int, ...]
    components: tuple[int, ...]
    epsilons: tuple[float, ...]

    @cached_property
    def joint(self) -> Matrix:
        """All columns side by side."""
        return np.hstack(list(self.parts.values()))

    @cached_property
    def gram(self) -> Matrix:
        """X'X."""
        found: Matrix = self.joint.T @ self.joint
        return found

    def captured(self, vectors: Matrix) -> list[float]:
        """The share of |X|^2 in the span of the first k vectors, for each k of the figure."""
        each = np.einsum("ij,ij->i", vectors @ self.gram, vectors) / np.trace(self.gram)
        return [float(each[:count].sum()) for count in self.components]

    def found_in(self, matrix: Matrix) -> list[float]:
        """What the leading eigenvectors of a noisy matrix capture."""
        return self.captured(leading(matrix, max(self.components)))


def leading(matrix: Matrix, count: int) -> Matrix:
    """The leading eigenvectors as rows; of a large matrix by Lanczos, to the digits that are printed."""
    if len(matrix) < _LARGE:
        return top_eigenvectors(matrix, count)[1]
    # Single precision halves the time; the start vector is fixed so that a run can be repeated.
    single = matrix.astype(np.float32)
    start = np.ones(len(matrix), dtype=np.float32)
    values, vectors = eigsh(single, count, which="LA", tol=1e-2, ncv=4 * count, v0=start)
    found: Matrix = vectors[:, np.argsort(-values)].T.astype(np.float64)
    return found


def figure_1(case: Case, options: Options) -> Iterator[Row]:
    """Every line of one data set, for each number of components."""
    runs = options.few(4) if case.joint.shape[1] >= _LARGE else options.runs
    draws: dict[tuple[str, str, float], list[list[float]]] = {}
    for run in range(runs):
        options.progress(f"Fig. 1 {case.name}", run, runs)
        for (method, promise, epsilon), matrix in _run(case, run, options):
            draws.setdefault((method, promise, epsilon), []).append(case.found_in(matrix))
    options.progress(f"Fig. 1 {case.name}", runs, runs)
    rows, columns = case.joint.shape
    best = case.found_in(case.gram)
    for place, count in enumerate(case.components):
        setting = f"{rows} rows, {columns} columns, top {count}"
        group = Group("SQM Fig. 1", case.name, setting, "epsilon", "share of |X|^2 captured")
        for (method, promise, epsilon), found in draws.items():
            yield group.row(epsilon, method, promise, np.array(found)[:, place])
        for epsilon in case.epsilons:
            yield group.known(epsilon, "without privacy", NONE, best[place])


_Point = tuple[tuple[str, str, float], Matrix]


def _run(case: Case, run: int, options: Options) -> Iterator[_Point]:
    """The noisy matrices of one run, each made when it is asked for."""
    source = chance.stream(options.seed, "Fig. 1", case.name, run)
    columns = case.joint.shape[1]
    for gamma in case.gammas:
        yield from _grid(case, gamma, source)
    for epsilon in case.epsilons:
        noise = chance.gaussian(1 / gaussian_mu(epsilon, DELTA), (columns, columns), source)
        once = np.triu(noise) + np.triu(noise, 1).T
        yield ("trusted curator (Analyze-Gauss)", CURATOR, epsilon), case.gram + once
    noise = chance.gaussian(1.0, case.joint.shape, source)
    mixed, square = case.joint.T @ noise, noise.T @ noise
    for epsilon in case.epsilons:
        # Publishing rows tells how many there are, so replacing one must be hidden: it moves by up to 2.
        sigma = 2 / gaussian_mu(epsilon, DELTA)
        yield ("local noise", LOCAL, epsilon), case.gram + sigma * (mixed + mixed.T) + sigma**2 * square


def _grid(case: Case, gamma: int, source: Stream) -> Iterator[_Point]:
    """Both accountings on the same rounded rows."""
    columns = case.joint.shape[1]
    whole = stochastic_round(case.joint * float(gamma), source)
    limit = math.ceil((gamma + math.sqrt(columns)) ** 2)
    gram = exact_gram(whole, limit).astype(np.float64) / gamma**2
    power = f"gamma 2^{gamma.bit_length() - 1}"
    for epsilon in case.epsilons:
        mu = calibration.paper_moments_noise(gamma, columns, epsilon, DELTA)
        noise = _skellam_matrix(mu, gamma, columns, source)
        yield (f"SQM, paper's formula, {power}", AS_PUBLISHED, epsilon), gram + noise
        noise = _skellam_matrix(our_noise(case, gamma, epsilon), gamma, columns, source)
        yield (f"Colonnade, {power}", PROVEN, epsilon), gram + noise


def our_noise(case: Case, gamma: int, epsilon: float) -> int:
    """The total mu of the library's own plan, for the analyst."""
    model = PCA(1, epsilon={"analyst": epsilon}, delta=DELTA, center=False, gamma=gamma, method="moments")
    return int(model.plan(Roster.of(case.schemas)).noise)


def _skellam_matrix(mu: float, gamma: int, columns: int, source: Stream) -> Matrix:
    """Sk(mu) on each of the columns^2 entries, as Algorithm 3 has it; made symmetric, which is free."""
    entries = skellam(Fraction(round(mu)), (columns, columns), source) / float(gamma) ** 2
    found: Matrix = (entries + entries.T) / 2
    return found
