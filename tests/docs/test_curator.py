"""The trusted curator in the report's picture, as README.md and docs/tutorials/getting-started.md describe it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from colonnade import PCA
from colonnade.kinds.pca import evaluation as baselines
from colonnade.kinds.pca.evaluation import captured_by_pca
from colonnade.models.federation import Roster
from colonnade.tables.datasets import population
from colonnade.testing import seeded

EPSILON, DELTA, RUNS = 0.1, 1e-5, 20


@pytest.fixture(scope="module")
def captured() -> dict[str, np.ndarray]:
    stream = seeded(77)
    people = population(20_000)
    roster = Roster.of(people.feature_schemas)
    tables = {name: people.table(name).select(schema.names).matrix() for name, schema in roster.schemas.items()}
    joint = np.hstack(list(tables.values()))
    clip = float(np.sqrt(sum(schema.clip**2 for schema in roster.schemas.values())))

    def colonnade() -> float:
        return captured_by_pca(tables, roster, PCA(5, epsilon={"analyst": EPSILON}, delta=DELTA), stream=stream)

    def curator(**more: Any) -> float:
        found = baselines.analyze_gauss(
            joint, 5, epsilon=EPSILON, delta=DELTA, clip=clip, constant=clip / 2, stream=stream, **more
        )
        return baselines.variance_captured(joint, found, center=True)

    runs = {"colonnade": colonnade, "drawn": curator, "as published": partial(curator, copies=1)}
    return {name: np.array([run() for _ in range(RUNS)]) for name, run in runs.items()}


def gap(one: np.ndarray, other: np.ndarray) -> float:
    """The difference of two means, in its own standard errors."""
    return float((one.mean() - other.mean()) / np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / RUNS))


def test_the_curator_that_is_drawn_does_as_well_as_colonnade(captured: dict[str, np.ndarray]) -> None:
    assert abs(gap(captured["colonnade"], captured["drawn"])) < 4
    assert captured["colonnade"].mean() == pytest.approx(captured["drawn"].mean(), rel=0.05)


def test_one_noisy_copy_of_each_entry_is_worse_than_two(captured: dict[str, np.ndarray]) -> None:
    assert gap(captured["drawn"], captured["as published"]) > 4
