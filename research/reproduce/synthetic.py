"""The functional mechanism's Table II: linear regression on three made-up tables of growing density.

The paper says how many entries and true weights are not zero, and nothing else about the numbers. Here entries are
uniform in [-1, 1] where they are not zero, weights normal, and the label is the product, scaled so that its
deviation is a quarter, plus normal noise of deviation 0.06, cut at [-1, 1]. A model that always says 0 has a mean
squared error of about 0.066; the best one about 0.0036.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LinearRegression as ExactLinear

from colonnade.kinds import LinearRegression
from colonnade.tables import Column, Dataset, Schema, number
from colonnade.tables.datasets import PERSON_ID, person_ids
from research.reproduce import chance, published
from research.reproduce.census import People
from research.reproduce.chance import Matrix, Places
from research.reproduce.lines import Ours, Splits, mean_squared_error
from research.reproduce.mechanism import Quadratic, linear_sensitivity
from research.reproduce.options import Options
from research.reproduce.regressions import EXACT, NORMAL, PAPER, PURE
from research.reproduce.results import AS_PUBLISHED, NONE, PROVEN, Group, Row

EPSILON = 1.0
FULL, USUAL, QUICK = (80_000, 800), (16_000, 160), (1_000, 20)
_SPREAD, _NOISE = 0.25, 0.06
_PARTIES = 4
_SLACK = 1.2  # a row's norm hardly varies; this bound is as public as the recipe


def table_2(options: Options) -> Iterator[Row]:
    """All three tables; at a fifth of the paper's rows and columns unless the full size is asked for."""
    rows, columns = QUICK if options.quick else FULL if options.full else USUAL
    group = Group("FM Table II", "as printed", "80000 rows, 800 columns", "sparsity", "mean squared error")
    yield from published.printed(group, published.TABLE_2, published.SPARSITIES)
    group = Group("FM Table II", "made up here", f"{rows} rows, {columns} columns", "sparsity", "mean squared error")
    for sparsity in published.SPARSITIES[:: 2 if options.quick else 1]:
        people = made_up(rows, columns, sparsity, options.seed)
        plans = [
            (name, Ours(people, LinearRegression, options.seed, epsilon={"analyst": EPSILON}, method=method))
            for name, method in ((PURE, "functional"), (NORMAL, "one-shot"))
        ]
        found: dict[tuple[str, str], list[float]] = {}
        runs = options.few(10) if options.full else options.runs
        for run, train, test in Splits(people, options, runs):
            for place, predicted in _predictions(people, plans, options.seed, run, train, test):
                found.setdefault(place, []).append(mean_squared_error(predicted, people.label[test]))
        for (method, promise), errors in found.items():
            yield group.row(sparsity, method, promise, errors)


def _predictions(
    people: People, plans: list[tuple[str, Ours]], seed: int, run: int, train: Places, test: Places
) -> Iterator[tuple[tuple[str, str], Matrix]]:
    rows, label = people.features, people.label
    learned = rows[train]
    square, product = learned.T @ learned, learned.T @ label[train]
    source = chance.stream(seed, people.name, run)
    weights = Quadratic.linear(square, product).noisy(linear_sensitivity(rows.shape[1]), EPSILON, source)
    yield (PAPER, AS_PUBLISHED), rows[test] @ weights
    for name, ours in plans:
        yield (name, PROVEN), ours.scores(run, train, test)
    exact = ExactLinear(copy_X=False).fit(learned, label[train])
    yield (EXACT, NONE), exact.predict(rows[test])


def made_up(rows: int, columns: int, sparsity: float, seed: int) -> People:
    """A table of the recipe above, its columns dealt to four parties, the label with the first."""
    # A recipe for made-up data: no privacy rests on these numbers.
    draw = np.random.default_rng([seed, round(100 * sparsity)])
    table = draw.uniform(-1, 1, (rows, columns))
    if sparsity < 1:
        table[draw.random(table.shape) >= sparsity] = 0.0
    weights = draw.normal(size=columns) * (draw.random(columns) < sparsity)
    weights *= _SPREAD / (math.sqrt(sparsity / 3) * max(float(np.linalg.norm(weights)), 1e-9))
    label = np.clip(table @ weights + draw.normal(0, _NOISE, rows), -1, 1)
    return People(f"made up, sparsity {sparsity:g}", _dealt(table, label, sparsity))


def _dealt(table: Matrix, label: Matrix, sparsity: float) -> Dataset:
    ids = person_ids(np.arange(len(table)))
    arrow, schemas = {}, {}
    for place, held in enumerate(np.array_split(np.arange(table.shape[1]), _PARTIES), start=1):
        names = [f"x{column}" for column in held]
        cells = {name: pa.array(table[:, column]) for name, column in zip(names, held, strict=True)}
        declared: dict[str, Column] = {name: number(-1, 1) for name in names}
        if place == 1:
            cells["y"], declared["y"] = pa.array(label), number(-1, 1)
        clip = _SLACK * math.sqrt(len(names) * sparsity / 3)
        arrow[f"party{place}"] = pa.table({PERSON_ID: ids, **cells})
        schemas[f"party{place}"] = Schema(declared, clip=clip)
    return Dataset("made-up", "a made-up table", arrow, schemas, "party1.y")
