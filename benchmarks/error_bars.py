"""How often do the error bars of regressions hold what the same computation gives without noise?

Each fit is computed in one place, with the integers, the law of noise and the code of a study. Intervals of second
moments are for least squares without noise and without a ridge; those of gradients for the same rounds over the same
batches. Coverage is the share of fits whose 95 % interval holds it, for each weight, and then averaged over weights.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds import LogisticRegression
from colonnade.kinds.regression.gradient_descent import GradientDescent, LearnedWeights
from colonnade.kinds.regression.least_squares import steepness
from colonnade.kinds.regression.programs import integer_scores, noise_shares, quantise
from colonnade.kinds.regression.task import GradientTask
from colonnade.models import Roster
from colonnade.models.design import weighted_rows
from colonnade.protocols.iteration import batch_secret, iterate_batches
from colonnade.protocols.moments.programs import OwnMoments, exact_gram, sample_noise_share
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.randomness import Stream
from colonnade.tables import Dataset, Flag, Number, Table
from research.datasets import load_dataset

Vector = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SETS = {
    "adult": "Adult",
    "credit-default": "credit default",
    "acs-income": "ACSIncome",
    "dutch-census": "Dutch census",
}
PAGE = Path(__file__).with_name("results") / "error-bars.md"
_HEAD = """\
# Error bars of regressions

Made by `python benchmarks/error_bars.py --write`: logistic regression on {sets}, the parties of each data set, the
analyst's epsilon, delta 1e-5. What intervals are for, and what they rest on, is in
[the theory](../../docs/theory/error-bars.md); its constants were set with the first two data sets in sight, the others
had no part in it. Coverage is averaged over weights; beside it that of each kind: numbers
(with flags), values of categories, the intercept. *Mostly* is the share of weights whose interval holds in at least
85 % of fits. Widths are of the whole interval, in log-odds for one step of an encoded column; *clear* is how many
weights can be told from zero, and *wrong* how many of these have the wrong sign.

| data | method | epsilon | fits | coverage | numbers | values | intercept | mostly | median width | clear | wrong |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass
class Cell:
    """What fits of one data set, method and budget showed."""

    model: LogisticRegression
    held: list[NDArray[np.bool_]]
    widths: list[float]
    clear: list[int]
    wrong: list[int]

    def add(self, true: Vector) -> None:
        """Compare the fitted model's intervals with these weights; the intercept is last."""
        model = self.model
        found = [model.estimate(0, place) for place in [*range(len(model.feature_names_in_)), None]]
        low, high = np.array([[each.low, each.high] for each in found]).T
        self.held.append((low <= true) & (true <= high))
        self.widths.append(float(np.median(high - low)))
        told = np.array([each.clear for each in found[:-1]])
        self.clear.append(int(told.sum()))
        self.wrong.append(int((told & (np.sign([float(each) for each in found[:-1]]) != np.sign(true[:-1]))).sum()))

    def row(self, name: str, method: str, epsilon: float) -> str:
        """One line of the table."""
        rates = np.mean(self.held, axis=0)
        kinds = np.array([*_kinds(self.model), "intercept"])
        parts = [f"{rates[kinds == kind].mean():.3f}" for kind in ("number", "value", "intercept")]
        figures = [f"**{rates.mean():.3f}**", *parts, f"{np.mean(rates >= 0.85):.2f}", f"{np.mean(self.widths):.2f}"]
        figures += [f"{np.mean(self.clear):.1f}", f"{np.mean(self.wrong):.2f}"]
        return " | ".join([f"| {name}", method, f"{epsilon:g}", str(len(self.held)), *figures]) + " |"


def _kinds(model: LogisticRegression) -> Iterator[str]:
    for party, schema in model.schemas_.items():
        for name, column in schema.columns.items():
            if f"{party}.{name}" != model.label_:
                yield from ["number" if isinstance(column, Number | Flag) else "value"] * len(column.parts)


class People:
    """A data set in one place."""

    def __init__(self, data: Dataset) -> None:
        self.data, self.tables = data, data.tables()
        self.roster = Roster.of(data.schemas)

    def model(self, method: str, epsilon: float) -> LogisticRegression:
        """A model to be fitted."""
        rows = self.data.rows if method == "sqm" else None
        return LogisticRegression(epsilon={"analyst": epsilon}, label=self.data.label, method=method, rows=rows)

    def least_squares(self, fitted: LogisticRegression) -> Vector:
        """The weights of least squares without noise, the shortest ones, and the intercept, as log-odds."""
        parts = [_encoded(self.tables[party], fitted, party) for party in self.data.schemas]
        x, y = np.hstack(parts), fitted.label_of(dict(self.tables))[:, 0]
        centred = x - x.mean(axis=0)
        weights = np.linalg.pinv(centred.T @ centred, rcond=1e-9, hermitian=True) @ (centred.T @ (y - y.mean()))
        explained = float(np.var(centred @ weights))
        slope = steepness(0.5, float(y.mean()), explained**0.5, explained)
        return np.append(slope * weights, slope * (y.mean() - x.mean(axis=0) @ weights - 0.5))


def _encoded(table: Table, fitted: LogisticRegression, party: str) -> Vector:
    centred = fitted.design_.centred_columns(party)
    found: Vector = centred.centre_features(table).matrix() + centred.middle[: len(centred.feature_names)]
    return found


def _from_moments(
    people: People, model: LogisticRegression, task: Moments, fits: int, stream: Stream
) -> Iterator[Vector]:
    """Fits to the same moments with other noise; after each, the weights that its intervals are for."""
    rows = [
        np.vstack(list(weighted_rows(party, people.tables[party], model.label, task).blocks(task.block_rows)))
        for party in task.owners
    ]
    whole = [OwnMoments(task, party).quantise(part, stream) for party, part in zip(task.owners, rows, strict=True)]
    joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
    exact = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights
    true = None
    for _ in range(fits):
        noise = sum(sample_noise_share(task, stream) for _ in task.owners)
        model.conclude(people.roster, task, NoisyMoments(task, exact + noise))
        true = people.least_squares(model) if true is None else true
        yield true


def _from_gradients(
    people: People, model: LogisticRegression, task: GradientTask, fits: int, stream: Stream
) -> Iterator[Vector]:
    """Rounds with and without noise over the same batches; after each, the weights without noise."""
    parts = {party: model._for_gradients(party, people.tables[party], task) for party in task.owners}
    matrices = {party: found.features(people.tables[party]).matrix() for party, (found, _) in parts.items()}
    labels = parts[task.label_owner][1]
    assert labels is not None
    whole = [quantise(matrices[block.owner], block, task, stream)[:, : len(block.columns)] for block in task.blocks]
    x = np.hstack([*whole, np.full((len(labels), 1), float(task.constant))])
    signs, ids = 1 - 2 * np.rint(labels), [str(index) for index in range(len(x))]
    for _ in range(fits):
        quiet, noisy = GradientDescent(task), GradientDescent(task)
        for batch in iterate_batches(task, len(x), batch_secret(task, stream.bytes(32), ids)):
            rows, sign = x[batch], signs[batch]
            for descent in (quiet, noisy):
                total = (rows.T @ integer_scores(rows @ descent.integer_weights.T.astype(float), sign, task)).reshape(
                    -1
                )
                if descent is noisy:
                    total = total + sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
                descent.step(total)
        true = _weights(people, model, quiet.learned)
        model.conclude(people.roster, task, noisy.learned)
        yield true


def _weights(people: People, model: LogisticRegression, learned: LearnedWeights) -> Vector:
    model.conclude(people.roster, learned.task, learned)
    return np.append(model.coef_[0], model.intercept_)


def measured(name: str, method: str, epsilon: float, fits: int, people: People) -> str:
    """One line of the table."""
    model = people.model(method, epsilon)
    task = model.plan(people.roster)
    stream = Stream(hashlib.sha256(f"{name} {method} {epsilon}".encode()).digest())  # the same each time
    cell = Cell(model, [], [], [], [])
    found = (
        _from_gradients(people, model, task, fits, stream)
        if isinstance(task, GradientTask)
        else _from_moments(people, model, task, fits, stream)
    )
    for true in found:
        cell.add(true)
    return cell.row(SETS[name], method, epsilon)


def main() -> None:
    """Print the table, or write its page."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given.add_argument("--fits", type=int, default=30, help="of second moments, for each line; a sixth of gradients")
    given.add_argument("--methods", nargs="+", default=["one-shot", "functional", "sqm"])
    options = given.parse_args()
    lines, sizes = [], []
    for name, title in SETS.items():
        people = People(load_dataset(name, split="train"))
        sizes.append(f"{title} ({people.data.rows:,} people)")
        for method in options.methods:
            for epsilon in EPSILONS:
                fits = max(2, options.fits // 6) if method == "sqm" else options.fits
                lines.append(measured(name, method, epsilon, fits, people))
                print(lines[-1], flush=True)
    if options.write:
        PAGE.write_text(_HEAD.format(sets=", ".join(sizes)) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
