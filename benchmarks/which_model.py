"""Which model for which question: how good each is by people and budget, on people whom it has not seen.

Each fit is computed in one place, with the integers, the noise and the code of a study (``simulate``). A fifth of the
people is held out; of the others, so many are taken as the table says. People are divided, and noise is drawn, anew for
each seed. Flags are of Adult and credit default, a number is the weekly hours of ACSIncome, a count the visits
of made-up people.
``--write`` measures and writes ``results/which-model.csv``; then, and with ``--tables`` alone, the tables of
``docs/how-to/which-model.md`` are made from it and from what other benchmarks found. Needs ``adult.parquet``,
``credit_default.parquet`` and ``acsincome_2018_co_ne.parquet`` in the folder that COLONNADE_DATA names.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
from sklearn import linear_model

from colonnade.kinds import GLM, LinearRegression, LogisticRegression, PolynomialSum, SplitClassifier, SplitRegressor
from colonnade.models import Roster, assess_chances
from colonnade.models.assessment import explained
from colonnade.tables import Dataset, Table
from research.datasets import load_dataset
from research.datasets.catalog import ACS_INCOME, Layout
from research.reproduce.chance import Matrix, Places, split, stream
from which_tables import (
    ALONE,
    COUNT,
    EPSILONS,
    EVERYONE,
    FLAGS,
    LARGER,
    MAJORITY,
    MARKS,
    MESSAGES,
    NUMBER,
    PAGE,
    PLAIN,
    SEEDS,
    SIZES,
    SUM,
    Figure,
    read,
    tables,
    write,
)

Fit = Callable[[float, int], Any]
"""A model to be fitted at an epsilon for so many people."""


def classifiers(label: str) -> dict[str, Fit]:
    """Every way to predict a flag; but for one, epsilon is for whoever reads the result."""
    return {
        "one-shot": lambda e, n: LogisticRegression(label=label, method="one-shot", epsilon={"analyst": e}),
        EVERYONE: lambda e, n: LogisticRegression(label=label, method="one-shot", epsilon=e),
        "functional": lambda e, n: LogisticRegression(label=label, method="functional", epsilon={"analyst": e}),
        "sqm": lambda e, n: LogisticRegression(label=label, method="sqm", epsilon={"analyst": e}, rows=n),
        "split": lambda e, n: SplitClassifier(label=label, epsilon={"analyst": e}, rows=n),
        MESSAGES: lambda e, n: GLM(label=label, epsilon=e, rows=n),
    }


def regressors(label: str) -> dict[str, Fit]:
    """The same for a number."""
    return {
        "one-shot": lambda e, n: LinearRegression(label=label, method="one-shot", epsilon={"analyst": e}),
        "functional": lambda e, n: LinearRegression(label=label, method="functional", epsilon={"analyst": e}),
        "split": lambda e, n: SplitRegressor(label=label, epsilon={"analyst": e}, rows=n),
        MESSAGES: lambda e, n: GLM(family="linear", label=label, epsilon=e, rows=n),
    }


def counters(label: str) -> dict[str, Fit]:
    """The same for a count."""
    return {MESSAGES: lambda e, n: GLM(family="poisson", label=label, epsilon=e, rows=n)}


class People:
    """A data set of two parties, the first of whom has the label."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == NUMBER:
            layout = Layout(ACS_INCOME.description, ACS_INCOME.parties, "employer.WKHP")
            self.data: Dataset = load_dataset("acs-income", layout=layout, parties=2)
        elif name in (COUNT, SUM):
            made = load_dataset("population", rows=37_500)
            columns = {party: made.schemas[party].columns for party in ("shop", "bank")}
            layout = Layout(made.description, columns, "shop.visits")
            self.data = load_dataset("population", rows=37_500, layout=layout)
        else:
            self.data = load_dataset(name, parties=2)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Everyone's, in the order of the ids."""
        return {party: table.sorted_by_id() for party, table in self.data.tables().items()}

    @cached_property
    def roster(self) -> Roster:
        """Who takes part."""
        return Roster.of(self.data.schemas)

    @cached_property
    def label(self) -> Matrix:
        """Of everybody, as encoded."""
        found: Matrix = self.tables[self.data.label_party].column(self.data.label_column)[:, 0]
        return found

    def features(self, parties: Iterable[str]) -> Matrix:
        """All encoded columns of some parties but the label."""
        schemas = self.data.feature_schemas
        return np.hstack([self.tables[party].select(schemas[party].names).matrix() for party in parties])

    def part(self, rows: Places) -> dict[str, Table]:
        """The tables of some people."""
        return {party: table.take_rows(rows) for party, table in self.tables.items()}

    @property
    def sizes(self) -> list[int]:
        """How many people are learned from: as the table says, and all."""
        most = round(0.8 * len(self.label))
        return [*(size for size in SIZES if size < most), most]

    def divided(self, size: int, seed: int) -> tuple[Places, Places]:
        """People to learn from, the first of a list that is the same for every size, and people held out."""
        known, new = split(len(self.label), seed, 0)
        return np.sort(np.random.default_rng(seed).permutation(known)[:size]), new


def measured(people: People, fits: dict[str, Fit], sizes: Iterable[int], seeds: Iterable[int]) -> Iterator[Figure]:
    """Every method at every size and epsilon, and what there is without noise."""
    for size in sizes:
        for seed in seeds:
            known, new = people.divided(size, seed)
            for method, measure, value in without_noise(people, known, new):
                yield Figure(people.name, method, 0.0, size, seed, measure, value)
            seen, others = people.part(known), people.part(new)
            for method, made in fits.items():
                for epsilon in LARGER if people.name == COUNT else EPSILONS:
                    model = made(epsilon, size)
                    source = stream(seed, "which model", people.name, method, epsilon, size)
                    model.simulate(seen, people.roster, source)
                    for measure, value in judged(model, people, others):
                        yield Figure(people.name, method, epsilon, size, seed, measure, value)


def judged(model: Any, people: People, others: dict[str, Table]) -> Iterator[tuple[str, float]]:
    """Of people whom a fitted model has not seen."""
    # Weights that parties keep: predictions by all of them, which nobody can make without asking.
    given = {"same_order": True} | ({"exact": True} if isinstance(model, GLM) else {})
    if people.name in FLAGS:
        found = model.assess(others, **given)
        yield "accuracy", found.at(0.5).accuracy
        yield "auc", found.auc
    else:
        yield "explained", model.score(others, **given)


def without_noise(people: People, known: Places, new: Places) -> Iterator[tuple[str, str, float]]:
    """Scikit-learn on the same encoded columns: those of the label's party, and all."""
    parties = {ALONE: [people.data.label_party], PLAIN: list(people.data.schemas)}
    truth = people.label
    if people.name in FLAGS:
        majority = truth[known].mean() > 0.5
        yield MAJORITY, "accuracy", float(np.mean((truth[new] > 0.5) == majority))
    for method, held in parties.items():
        columns = people.features(held)
        if people.name in FLAGS:
            fitted = linear_model.LogisticRegression(max_iter=2000).fit(columns[known], truth[known] > 0.5)
            found = assess_chances(truth[new] > 0.5, fitted.predict_proba(columns[new])[:, 1])
            yield method, "accuracy", found.at(0.5).accuracy
            yield method, "auc", found.auc
        elif people.name == NUMBER:
            line = linear_model.Ridge().fit(columns[known], truth[known])
            yield method, "explained", float(line.score(columns[new], truth[new]))
        else:
            counts = 15 * (truth + 1)  # visits lie between 0 and 30, and in [-1, 1] when encoded
            curve = linear_model.PoissonRegressor(max_iter=2000, alpha=1e-4).fit(columns[known], counts[known])
            yield method, "explained", explained("poisson", counts[new], curve.predict(columns[new]))


def sums(seeds: Iterable[int]) -> Iterator[Figure]:
    """How far a sum of products of two parties' columns is off, as a share of the sum."""
    people = People(SUM)
    product = "shop.basket * bank.utilisation"
    columns = [people.tables[party].column(name)[:, 0] for party, name in (("shop", "basket"), ("bank", "utilisation"))]
    for size in people.sizes:
        for seed in seeds:
            known, _ = people.divided(size, seed)
            true = float(columns[0][known] @ columns[1][known])
            for epsilon in EPSILONS:
                model = PolynomialSum(product, epsilon={"analyst": epsilon})
                source = stream(seed, "which model", SUM, epsilon, size)
                model.simulate(people.part(known), people.roster, source)
                yield Figure(SUM, "polynomial", epsilon, size, seed, "deviation", model.deviations_[0] / true)


KINDS = {**dict.fromkeys(FLAGS, classifiers), NUMBER: regressors, COUNT: counters}


def job(name: str, seed: int) -> list[Figure]:
    """All figures of one data set and one seed."""
    if name == SUM:
        return list(sums([seed]))
    people = People(name)
    return list(measured(people, KINDS[name](people.data.label), people.sizes, [seed]))


def measure(workers: int) -> Iterator[Figure]:
    """The whole grid, in this order."""
    jobs = [(name, seed) for name in (*KINDS, SUM) for seed in SEEDS]
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(job, *zip(*jobs, strict=True)):
            yield from found


def main() -> None:
    """Measure, and write; or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="measure, write the file of figures, then the page")
    parser.add_argument("--tables", action="store_true", help="write the page from the file of figures")
    parser.add_argument("--workers", type=int, default=1, help="processes that measure side by side")
    options = parser.parse_args()
    if options.write:
        write(measure(options.workers))
    made = tables(read())
    if not (options.write or options.tables):
        print("\n\n".join(made.values()))
        return
    text = PAGE.read_text(encoding="utf-8")
    for name, table in made.items():
        begin, end = (mark.format(name) for mark in MARKS)
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
