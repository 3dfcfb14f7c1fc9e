"""Variance captured by five private principal components of NSL-KDD and Adult, beside what it is measured against.

Colonnade's line is the protocol's own arithmetic on data that lies in one place: the same rounding, the same
integers and the same noise samplers as a study, which tests hold equal to the secure run bit for bit; one
secure run for each data set is shown beside it. Rows are scaled to norm at most 1, gamma is 2^12, delta 1e-5.

A run's rounded rows are drawn once and serve all epsilons, and so does the Gaussian matrix of the local noise:
runs are independent of each other, the points of one run are not.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
from numpy.typing import NDArray

from colonnade import PCA, Federation, Party
from colonnade.drawing.canvas import Picture
from colonnade.drawing.charts import Axis, Curve, LineChart
from colonnade.kinds.pca import evaluation as baselines
from colonnade.kinds.pca.model import top_eigenvectors
from colonnade.models import Roster
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.noise import discrete_gaussian
from colonnade.protocols.moments.programs import OwnMoments, exact_gram, sample_noise_share, simulate
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.randomness import Stream, new_key
from colonnade.tables import Dataset, Schema
from research.datasets import load_dataset

Matrix = NDArray[np.float64]

DATASETS = ("nsl-kdd", "adult")
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA, GAMMA, COMPONENTS, REQUIRED = 1e-5, 4096, 5, 0.99
ANALYST, EVERYONE = "Colonnade, promised to the analyst", "Colonnade, promised to everyone"
CURATOR, LOCAL, EXACT = "trusted curator (Analyze-Gauss)", "local noise", "no privacy"
BEST = "trusted curator, noise averaged"
RESULTS = Path(__file__).with_name("results")
_GRID = 2**20


class Case:
    """A data set without its label, in units in which a whole row has norm at most 1."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        schemas = dataset.feature_schemas
        self.bound = float(np.sqrt(sum(schema.clip**2 for schema in schemas.values())))
        self.tables = {
            party: dataset.table(party).select(schema.names).matrix() / self.bound for party, schema in schemas.items()
        }
        scaled = {p: Schema(schema.columns, clip=schema.clip / self.bound) for p, schema in schemas.items()}
        self.roster = Roster.of(scaled)

    @cached_property
    def joint(self) -> Matrix:
        return np.hstack(list(self.tables.values()))

    @cached_property
    def gram(self) -> Matrix:
        """X'X, and the sums and the count in a last row and column."""
        whole = np.hstack([self.joint, np.ones((len(self.joint), 1))])
        found: Matrix = whole.T @ whole
        return found

    def target(self, center: bool) -> Matrix:
        """The matrix whose trace is the variance that is to be captured."""
        return centred(self.gram, 1.0) if center else self.gram[:-1, :-1]

    def captured(self, components: Matrix, center: bool) -> float:
        """The share of the variance in the span of the components, from the matrix alone."""
        matrix = self.target(center)
        return float(np.einsum("ij,jk,ik->", components, matrix, components) / np.trace(matrix))


def centred(joint: Matrix, constant: float) -> Matrix:
    """Second moments about the means, from those of the rows and a constant column."""
    count = max(1.0, joint[-1, -1] / constant**2)
    means = joint[-1, :-1] / (constant * count)
    found: Matrix = joint[:-1, :-1] - count * np.outer(means, means)
    return found


@dataclass(frozen=True)
class Point:
    """One line of the table of results."""

    dataset: str
    center: bool
    method: str
    epsilon: float
    mean: float
    deviation: float
    runs: int


class Rounded:
    """One run's integers: rows rounded by coin, and their exact second moments. Serves every task of the grid."""

    def __init__(self, case: Case, task: Moments, stream: Stream) -> None:
        whole = [OwnMoments(task, owner).quantise(case.tables[owner], stream) for owner in task.owners]
        joint = np.hstack([*whole, np.ones((len(whole[0]), 1))])
        self.gram = exact_gram(joint, task.norm_squared)

    def release(self, task: Moments, stream: Stream) -> NoisyMoments:
        """What the protocol would open: the integers under this task's constant, and everybody's noise."""
        scale = np.ones(task.width, dtype=np.int64)
        scale[-1] = task.constant
        rows, columns = np.triu_indices(task.width)
        entries = (self.gram * np.outer(scale, scale))[rows, columns] * np.where(rows == columns, 1, 2)
        for _ in task.owners:
            entries += sample_noise_share(task, stream)
        return NoisyMoments(task, entries)


def models(center: bool) -> dict[tuple[str, float], PCA]:
    """The private models of the grid."""
    common = {"n_components": COMPONENTS, "delta": DELTA, "center": center, "gamma": GAMMA}
    found = {}
    for epsilon in EPSILONS:
        found[ANALYST, epsilon] = PCA(**common, epsilon={"analyst": epsilon})
        found[EVERYONE, epsilon] = PCA(**common, epsilon=epsilon)
    return found


def private(case: Case, runs: int) -> Iterator[Point]:
    """Colonnade: a new rounding for every run, new noise for every run and every point."""
    grid = [
        (center, method, epsilon, model, model.plan(case.roster))
        for center in (True, False)
        for (method, epsilon), model in models(center).items()
    ]
    same_as_simulate(case, grid[0][-1])
    draws = np.empty((runs, len(grid)))
    for run in range(runs):
        rounded = Rounded(case, grid[0][-1], Stream.fresh())
        for place, (center, _, _, model, task) in enumerate(grid):
            model.finish(rounded.release(task, Stream.fresh()))
            draws[run, place] = case.captured(model.components_, center)
    for place, (center, method, epsilon, *_) in enumerate(grid):
        yield _point(case, center, method, epsilon, draws[:, place])


def same_as_simulate(case: Case, task: Moments) -> None:
    """The shortcut must publish what the library's own simulation does, given the same coins."""
    key = new_key()
    stream = Stream(key)
    short = Rounded(case, task, stream).release(task, stream)
    assert np.array_equal(short.opened, simulate(case.tables, task, Stream(key)).opened)


def curator(case: Case, runs: int) -> Iterator[Point]:
    """Analyze-Gauss from the matrix alone: what baselines.analyze_gauss does, without multiplying anew.

    As published, it draws one number for each pair of columns. The full matrix has the same sensitivity, so a
    curator may draw two and average them, which halves the variance off the diagonal. That is what SQM's full
    matrix of noise amounts to, and why Colonnade can be ahead of Analyze-Gauss; it is shown as a line too.
    """
    same_as_baseline(case)
    for center in (True, False):
        for epsilon in EPSILONS:
            for method in (CURATOR, BEST):
                found = [curated(case, method, epsilon, center, Stream.fresh()) for _ in range(runs)]
                draws = np.array([case.captured(one, center) for one in found])
                yield _point(case, center, method, epsilon, draws)


def curated(case: Case, method: str, epsilon: float, center: bool, stream: Stream) -> Matrix:
    """Components from a trusted curator; the constant column, where it is needed, is half as long as a row."""
    constant = 0.5 if center else 0.0
    scale = np.append(np.ones(len(case.gram) - 1), constant)
    joint = case.gram * np.outer(scale, scale) if center else case.gram[:-1, :-1]
    noise = gaussian(joint.shape, stream) * (1 + constant**2) / gaussian_mu(epsilon, DELTA)
    noise = (noise + noise.T) / 2 if method == BEST else np.triu(noise) + np.triu(noise, 1).T
    noisy = joint + noise
    return top_eigenvectors(centred(noisy, constant) if center else noisy, COMPONENTS)[1]


def same_as_baseline(case: Case) -> None:
    """The shortcut must find what the library's baseline finds, given the same noise."""
    for center, (method, copies) in product((True, False), ((CURATOR, 1), (BEST, 2))):
        key = new_key()
        known = baselines.analyze_gauss(
            case.joint,
            COMPONENTS,
            epsilon=1.0,
            delta=DELTA,
            clip=1.0,
            constant=0.5 if center else 0.0,
            copies=copies,
            stream=Stream(key),
        )
        ours = case.captured(curated(case, method, 1.0, center, Stream(key)), center)
        assert np.isclose(ours, baselines.variance_captured(case.joint, known, center=center), atol=1e-6)


def local(case: Case, runs: int) -> Iterator[Point]:
    """Published rows with noise: (X + sN)'(X + sN) for every s from three products of one Gaussian matrix."""
    draws = np.empty((runs, 2, len(EPSILONS)))
    ones = np.ones((len(case.joint), 1))
    for run in range(runs):
        noise = np.hstack([gaussian(case.joint.shape, Stream.fresh()), 0 * ones])
        mixed = np.hstack([case.joint, ones]).T @ noise
        square = noise.T @ noise
        for place, epsilon in enumerate(EPSILONS):
            sigma = 2 / gaussian_mu(epsilon, DELTA)  # replacing a row moves it by up to 2
            noisy = case.gram + sigma * (mixed + mixed.T) + sigma**2 * square
            for side, center in enumerate((True, False)):
                matrix = centred(noisy, 1.0) if center else noisy[:-1, :-1]
                draws[run, side, place] = case.captured(top_eigenvectors(matrix, COMPONENTS)[1], center)
    for side, center in enumerate((True, False)):
        for place, epsilon in enumerate(EPSILONS):
            yield _point(case, center, LOCAL, epsilon, draws[:, side, place])


def gaussian(shape: tuple[int, ...], stream: Stream) -> Matrix:
    """Standard normal numbers on a grid of 2^-20."""
    drawn: Matrix = discrete_gaussian(Fraction(_GRID**2), shape, stream) / _GRID
    return drawn


def ceiling(case: Case) -> Iterator[Point]:
    """Without privacy."""
    for center in (True, False):
        best = top_eigenvectors(case.target(center), COMPONENTS)[1]
        for epsilon in EPSILONS:
            yield _point(case, center, EXACT, epsilon, np.array([case.captured(best, center)]))


def _point(case: Case, center: bool, method: str, epsilon: float, draws: Matrix) -> Point:
    return Point(case.dataset.name, center, method, epsilon, float(draws.mean()), _deviation(draws), len(draws))


def _deviation(draws: Matrix) -> float:
    return float(draws.std(ddof=1)) if len(draws) > 1 else 0.0


def secure(case: Case) -> float:
    """One secure run of the whole library, epsilon 1 for the analyst, centred; the same grid in other units."""
    parties = [
        Party(name, case.dataset.arrow[name], schema=schema, id="person_id")
        for name, schema in case.dataset.feature_schemas.items()
    ]
    gamma = round(GAMMA / case.bound)
    model = PCA(COMPONENTS, epsilon={"analyst": 1.0}, delta=DELTA, gamma=gamma).fit(Federation(parties))
    return case.captured(model.components_, center=True)


def verdict(points: list[Point], dataset: str, center: bool) -> tuple[bool, str]:
    """Whether the private mean at epsilon 1 is close enough to the trusted curator's."""
    found = {p.method: p for p in points if (p.dataset, p.center, p.epsilon) == (dataset, center, 1.0)}
    ours, theirs, best = (found[method].mean for method in (ANALYST, CURATOR, BEST))
    share = ours / theirs
    good = share >= REQUIRED
    return good, (
        f"{'PASS' if good else 'FAIL'}: {dataset}, {_kind(center)}, epsilon 1: {ours:.2%} captured, Analyze-Gauss "
        f"{theirs:.2%}: {share:.2%} of it (at least {REQUIRED:.0%}); {ours / best:.2%} of the best curator"
    )


def show(points: list[Point], dataset: str, center: bool) -> None:
    """A table with a line for each method."""
    chosen = [p for p in points if (p.dataset, p.center) == (dataset, center)]
    print(f"\n{dataset}, {_kind(center)}: variance captured by {COMPONENTS} components, mean (deviation) in %")
    print(f"  {'':<36}" + "".join(f"{f'epsilon {epsilon:g}':>17}" for epsilon in EPSILONS))
    for method in (EXACT, BEST, CURATOR, ANALYST, EVERYONE, LOCAL):
        line = {p.epsilon: p for p in chosen if p.method == method}
        cells = "".join(f"{f'{100 * line[e].mean:.2f} ({100 * line[e].deviation:.3f})':>17}" for e in EPSILONS)
        print(f"  {method:<36}{cells}")


def write(points: list[Point]) -> None:
    """The table and the picture."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "pca_utility.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["dataset", "centred", "method", "epsilon", "mean", "deviation", "runs"])
        for p in points:
            values = [f"{p.epsilon:g}", f"{p.mean:.6f}", f"{p.deviation:.6f}", p.runs]
            lines.writerow([p.dataset, "yes" if p.center else "no", p.method, *values])
    picture(points).save(RESULTS / "pca_utility.svg")


def picture(points: list[Point]) -> Picture:
    """A chart for each data set and each kind of PCA, one below the other."""
    cases = [(dataset, center) for dataset in dict.fromkeys(p.dataset for p in points) for center in (True, False)]
    return Picture([chart([p for p in points if (p.dataset, p.center) == case], *case) for case in cases])


def chart(points: list[Point], dataset: str, center: bool) -> LineChart:
    """One chart, in the manner of the report."""
    lines = [_line(method, [p for p in points if p.method == method]) for method in _DRAWN]
    level = next(p.mean for p in points if p.method == EXACT)
    title = f"{dataset}, {_kind(center)}: variance captured by {COMPONENTS} components"
    percent = "{:.0%}".format
    return LineChart(lines, Axis("epsilon (logarithmic)", "log"), Axis("", text=percent), {EXACT: level}, title=title)


_DRAWN = (ANALYST, EVERYONE, CURATOR, LOCAL, BEST)


def _line(method: str, points: list[Point]) -> Curve:
    return Curve(method, [(p.epsilon, p.mean) for p in points], [p.deviation for p in points], marked=True)


def _kind(center: bool) -> str:
    return "centred" if center else "uncentred"


def data_folder() -> Path | None:
    """COLONNADE_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    named = Path(os.environ["COLONNADE_DATA"]) if os.environ.get("COLONNADE_DATA") else beside
    return named if named.is_dir() else None


def study(name: str, folder: Path, runs: int, local_runs: int) -> tuple[list[Point], bool]:
    """All points of one data set, shown as they are found."""
    start = time.perf_counter()
    case = Case(load_dataset(name, folder=folder))
    points = [*private(case, runs), *curator(case, runs), *local(case, local_runs), *ceiling(case)]
    good = True
    for center in (True, False):
        show(points, name, center)
        passed, words = verdict(points, name, center)
        print(f"  {words}")
        good &= passed
    once = secure(case)
    simulated = next(p for p in points if p.center and p.method == ANALYST and p.epsilon == 1.0)
    apart = abs(once - simulated.mean) / max(simulated.deviation, 1e-9)
    good &= apart < 6
    print(f"  one secure run, centred, epsilon 1: {once:.2%}, {apart:.1f} deviations from the simulated mean")
    rows, columns = case.joint.shape
    print(f"  {rows:,} rows, {columns} columns; {time.perf_counter() - start:.0f} s")
    return points, good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--local-runs", type=int, default=5, help="each draws noise for every cell")
    options: Any = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print(
            "The data is not here, so nothing was measured. Set COLONNADE_DATA to a folder with nsl_kdd.parquet "
            "and adult.parquet, or make them there with python -m research fetch nsl-kdd adult --data FOLDER."
        )
        return
    points, good = [], True
    for name in DATASETS:
        found, passed = study(name, folder, options.runs, options.local_runs)
        points += found
        good &= passed
    write(points)
    print(f"\nwritten: {RESULTS / 'pca_utility.csv'} and .svg; {options.runs} runs, local noise {options.local_runs}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
