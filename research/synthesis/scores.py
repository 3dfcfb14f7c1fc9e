"""What a synthetic table of a data set is worth: the numbers of the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from colonnade.kinds.synthesis.quality import score_learners
from colonnade.kinds.synthesis.table_comparison import total_variation
from research.synthesis.layouts import Bench


@dataclass(frozen=True)
class Score:
    """One line of the table: one synthetic table, and one model that learned from it."""

    data: str
    method: str
    epsilon: float
    seed: int
    model: str
    accuracy: float
    auc: float
    two_way: float


def scored(bench: Bench, synthetic: Any, method: str, epsilon: float, seed: int) -> Iterator[Score]:
    """Train on the synthetic table, test on real people; the error of two-way marginals is their mean distance."""
    common, (train, made_up, test) = bench.compared(synthetic)
    pairs = list(combinations(range(len(common.names)), 2))
    two_way = float(np.mean([total_variation(train.codes, made_up.codes, pair, common.sizes) for pair in pairs]))
    for model, found in score_learners(common, made_up, test, common.index_of(bench.label)).items():
        yield Score(bench.name, method, epsilon, seed, model, found["accuracy"], found["auc"], two_way)


def ideal(bench: Bench) -> list[Score]:
    """The same for the real training people: no privacy."""
    return list(scored(bench, bench.real[0], "trained on real people", float("inf"), 0))
