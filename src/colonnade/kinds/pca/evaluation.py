"""How much variance a private PCA captures, compared with other methods; never for a study: it needs all columns.

``analyze_gauss`` is what a trusted curator would do (Dwork, Talwar, Thakurta and Zhang 2014); ``local_noise`` is
what parties can do without any joint computation: publish noisy rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.pca.model import PCA, Task, top_eigenvectors
from colonnade.models.planner import Roster
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.noise.local_mechanisms import Grid
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]


def variance_captured(X: NDArray[np.float64], components: NDArray[np.float64], *, center: bool) -> float:
    """The share of the rows' variance that lies in the span of the components."""
    Y = X - X.mean(axis=0) if center else X
    return float(np.sum((Y @ components.T) ** 2) / np.sum(Y**2))


def exact(X: NDArray[np.float64], count: int, *, center: bool) -> NDArray[np.float64]:
    """The components without any privacy."""
    Y = X - X.mean(axis=0) if center else X
    return top_eigenvectors(Y.T @ Y, count)[1]


def analyze_gauss(
    X: NDArray[np.float64],
    count: int,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    constant: float = 0.0,
    copies: int = 2,
    stream: Stream | None = None,
) -> NDArray[np.float64]:
    """Components of X'X plus a symmetric Gaussian matrix; with a constant column, centred afterwards.

    The paper has one noisy copy of each entry off the diagonal. Releasing the full matrix costs the same and gives two
    copies, which are averaged by default: this is the strongest curator that we know, and Colonnade does the same.

    ``clip`` bounds the norm of a row without the constant. The noise meets (epsilon, delta) when one row is added
    or removed, calibrated exactly (analytic Gaussian).
    """
    joint = np.hstack([X, np.full((len(X), 1), constant)]) if constant else X
    sigma = (clip**2 + constant**2) / gaussian_mu(epsilon, delta)
    noise = _gaussian(sigma, (joint.shape[1], joint.shape[1]), stream)
    if copies == 1:
        noise = np.triu(noise) + np.triu(noise, 1).T
    matrix = joint.T @ joint + (noise + noise.T) / 2
    if constant:
        rows = max(1.0, matrix[-1, -1] / constant**2)
        means = matrix[-1, :-1] / (constant * rows)
        matrix = matrix[:-1, :-1] - rows * np.outer(means, means)
    return top_eigenvectors(matrix, count)[1]


def local_noise(
    X: NDArray[np.float64],
    count: int,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    center: bool,
    stream: Stream | None = None,
) -> NDArray[np.float64]:
    """Components of rows that were published with Gaussian noise on every cell.

    Published rows tell how many rows there are, so the promise can only be about replacing one row: it moves by 2 clip.
    """
    sigma = 2 * clip / gaussian_mu(epsilon, delta)
    noisy = X + _gaussian(sigma, X.shape, stream)
    Y = noisy - noisy.mean(axis=0) if center else noisy
    return top_eigenvectors(Y.T @ Y, count)[1]


def _gaussian(sigma: float, shape: tuple[int, ...], stream: Stream | None) -> NDArray[np.float64]:
    """Gaussian noise on a grid far finer than its deviation."""
    grid = Grid()
    return grid.real(grid.release(np.zeros(shape), sigma, stream or Stream.fresh()))


def captured_by_pca(
    tables: Mapping[str, Matrix],
    roster: Roster,
    model: PCA,
    *,
    task: Task | None = None,
    stream: Stream | None = None,
) -> float:
    """Variance captured by one draw of the private PCA, noise and rounding included; ``task`` if it is planned."""
    planned = task or model.plan_as_requested(roster)
    model.finish(planned.programs.simulate(tables, planned, stream or Stream.fresh()))
    joint = np.hstack([tables[owner] for owner in roster.schemas])
    return variance_captured(joint, model.components_, center=model.center)


def compare(
    tables: Mapping[str, Matrix],
    roster: Roster,
    *,
    n_components: int,
    epsilons: Sequence[float],
    delta: float,
    runs: int,
    center: bool = True,
    gamma: int = 4096,
    local_runs: int | None = None,
) -> dict[str, Any]:
    """Mean and deviation over ``runs`` draws of the private PCA, a trusted curator and local noise."""
    joint = np.hstack([tables[owner] for owner in roster.schemas])
    clip = float(np.sqrt(sum(schema.clip**2 for schema in roster.schemas.values())))
    planned: dict[str, Task] = {}

    def private(epsilon: float | dict[str, float]) -> float:
        model = PCA(n_components, epsilon=epsilon, delta=delta, center=center, gamma=gamma)
        if (said := str(epsilon)) not in planned:
            planned[said] = model.plan_as_requested(roster)
        return captured_by_pca(tables, roster, model, task=planned[said])

    def curator(epsilon: float) -> float:
        constant = clip * (0.5 if center else 0.0)
        found = analyze_gauss(joint, n_components, epsilon=epsilon, delta=delta, clip=clip, constant=constant)
        return variance_captured(joint, found, center=center)

    def local(epsilon: float) -> float:
        found = local_noise(joint, n_components, epsilon=epsilon, delta=delta, clip=clip, center=center)
        return variance_captured(joint, found, center=center)

    methods: dict[str, tuple[Callable[[float], float], int]] = {
        "Colonnade, promised to the analyst": (lambda eps: private({"analyst": eps}), runs),
        "Colonnade, promised to everyone": (private, runs),
        "trusted curator (Analyze-Gauss)": (curator, runs),
        "local noise": (local, local_runs or runs),
    }
    lines = [_line(name, method, epsilons, count) for name, (method, count) in methods.items()]
    best = exact(joint, n_components, center=center)
    return {
        "epsilons": list(epsilons),
        "lines": lines,
        "ceiling": variance_captured(joint, best, center=center),
        "n_components": n_components,
        "runs": runs,
    }


def _line(name: str, method: Callable[[float], float], epsilons: Sequence[float], runs: int) -> dict[str, Any]:
    draws = np.array([[method(epsilon) for _ in range(runs)] for epsilon in epsilons])
    return {"name": name, "mean": draws.mean(axis=1).tolist(), "std": draws.std(axis=1).tolist()}
