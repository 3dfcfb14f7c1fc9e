"""How much variance a private PCA captures, compared with other methods. Needs all columns in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.models import baselines
from colonnade.models.federation import Roster
from colonnade.models.pca import PCA, published
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]


def captured_by_pca(tables: Mapping[str, Matrix], roster: Roster, model: PCA, *, stream: Stream | None = None) -> float:
    """Variance captured by one draw of the private PCA, noise and rounding included."""
    model.finish(published(tables, model.plan(roster), stream or Stream.fresh()))
    joint = np.hstack([tables[owner] for owner in roster.schemas])
    return baselines.variance_captured(joint, model.components_, center=model.center)


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

    def private(epsilon: float | dict[str, float]) -> float:
        model = PCA(n_components, epsilon=epsilon, delta=delta, center=center, gamma=gamma)
        return captured_by_pca(tables, roster, model)

    def curator(epsilon: float) -> float:
        constant = clip * (0.5 if center else 0.0)
        found = baselines.analyze_gauss(joint, n_components, epsilon=epsilon, delta=delta, clip=clip, constant=constant)
        return baselines.variance_captured(joint, found, center=center)

    def local(epsilon: float) -> float:
        found = baselines.local_noise(joint, n_components, epsilon=epsilon, delta=delta, clip=clip, center=center)
        return baselines.variance_captured(joint, found, center=center)

    methods: dict[str, tuple[Callable[[float], float], int]] = {
        "Colonnade, promised to the analyst": (lambda eps: private({"analyst": eps}), runs),
        "Colonnade, promised to everyone": (private, runs),
        "trusted curator (Analyze-Gauss)": (curator, runs),
        "local noise": (local, local_runs or runs),
    }
    lines = [_line(name, method, epsilons, count) for name, (method, count) in methods.items()]
    exact = baselines.exact(joint, n_components, center=center)
    return {
        "epsilons": list(epsilons),
        "lines": lines,
        "ceiling": baselines.variance_captured(joint, exact, center=center),
        "n_components": n_components,
        "runs": runs,
    }


def _line(name: str, method: Callable[[float], float], epsilons: Sequence[float], runs: int) -> dict[str, Any]:
    draws = np.array([[method(epsilon) for _ in range(runs)] for epsilon in epsilons])
    return {"name": name, "mean": draws.mean(axis=1).tolist(), "std": draws.std(axis=1).tolist()}
