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

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn import linear_model

from colonnade.kinds import GLM, LinearRegression, LogisticRegression, PolynomialSum, SplitClassifier, SplitRegressor
from colonnade.models import Roster, assess_chances
from colonnade.models.assessment import explained
from colonnade.tables import Dataset, Table
from harness import (
    RESULTS,
    Benchmark,
    command,
    write_marked,
)
from research.datasets import load_dataset
from research.datasets.catalog import ACS_INCOME, Layout
from research.reproduce.chance import Matrix, Places, split, stream

FIGURES = RESULTS / "which-model.csv"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "which-model.md"
SEEDS, SIZES, EPSILONS = range(3), (1_000, 3_000, 10_000, 30_000), (0.3, 1.0, 3.0)
LARGER = (1.0, 3.0, 10.0)
EVERYONE, MAJORITY, ALONE, PLAIN = "one-shot, for everyone", "majority class", "label's party alone", "no privacy"
FLAGS = {"adult": "Adult", "credit-default": "Credit default"}
NUMBER, COUNT, SUM = "hours", "visits", "sum"
MESSAGES = "messages"


@dataclass(frozen=True)
class Figure:
    """One figure of one fit; ``people`` are those it learned from, and epsilon is 0 where there is no noise."""

    data: str
    method: str
    epsilon: float
    people: int
    seed: int
    measure: str
    value: float


def write_figures(figures: Iterable[Figure]) -> None:
    """As lines of a file."""
    with FIGURES.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([field.name for field in fields(Figure)])
        for figure in figures:
            lines.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(figure)])


def read_figures() -> list[Figure]:
    """What was measured."""
    with FIGURES.open(newline="", encoding="utf-8") as file:
        kinds = {"epsilon": float, "people": int, "seed": int, "value": float}
        return [
            Figure(**{key: kinds.get(key, str)(cell) for key, cell in line.items()}) for line in csv.DictReader(file)
        ]


LINES = ("one-shot", EVERYONE, "functional", "sqm", "split", MESSAGES)
NO_BETTER = 0.005
"""Less than this above the majority class, or above nothing explained, is no better."""


class Measured:
    """The figures of a file, averaged over seeds."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.values: dict[tuple[str, str, float, int, str], list[float]] = {}
        for each in figures:
            place = each.data, each.method, each.epsilon, each.people, each.measure
            self.values.setdefault(place, []).append(each.value)

    def mean(self, data: str, method: str, epsilon: float, people: int, measure: str) -> float:
        """Over seeds."""
        return fmean(self.values[data, method, epsilon, people, measure])

    def sizes(self, data: str) -> list[int]:
        """How many people were learned from."""
        return sorted({place[3] for place in self.values if place[0] == data})

    def flag(self, data: str, method: str, epsilon: float, people: int) -> str:
        """Accuracy and area, or that there are too few people."""
        accuracy, area = (self.mean(data, method, epsilon, people, measure) for measure in ("accuracy", "auc"))
        usual = self.mean(data, MAJORITY, 0.0, people, "accuracy")
        # A method may guess worse than always the same; the area says whether it orders people all the same.
        return f"{accuracy:.3f}, {area:.3f}" if accuracy >= usual + NO_BETTER else f"too few, {area:.3f}"

    def part(self, data: str, method: str, epsilon: float, people: int) -> str:
        """How much of the label is explained, or that there are too few people."""
        found = self.mean(data, method, epsilon, people, "explained")
        return f"{found:.2f}" if found >= NO_BETTER else "too few"


def flags(found: Measured, data: str) -> str:
    """How well a flag is predicted by people, epsilon and method."""
    sizes = found.sizes(data)
    lines = [f"| epsilon | method | {' | '.join(f'{size:,}' for size in sizes)} |", "|---" * (2 + len(sizes)) + "|"]
    for epsilon in EPSILONS:
        for method in LINES:
            cells = [found.flag(data, method, epsilon, size) for size in sizes]
            lines.append(f"| {epsilon:g} | {method} | {' | '.join(cells)} |")
    for method in (ALONE, PLAIN):
        lines.append(f"| no noise | {method} | {' | '.join(found.flag(data, method, 0.0, n) for n in sizes)} |")
    usual = [f"{found.mean(data, MAJORITY, 0.0, size, 'accuracy'):.3f}" for size in sizes]
    return "\n".join([*lines, f"| none | {MAJORITY} | {' | '.join(usual)} |"])


def parts(found: Measured) -> str:
    """How much of a number and of a count is explained."""
    sizes = [size for size in found.sizes(NUMBER) if size in SIZES]
    lines = [
        f"| label | epsilon | method | {' | '.join(f'{size:,}' for size in sizes)} |",
        "|---" * (3 + len(sizes)) + "|",
    ]
    rows = [(NUMBER, e, m) for e in EPSILONS for m in ("one-shot", "functional", "split", MESSAGES)]
    rows += [(COUNT, e, MESSAGES) for e in LARGER]
    rows += [(data, 0.0, method) for data in (NUMBER, COUNT) for method in (ALONE, PLAIN)]
    for data, epsilon, method in sorted(rows, key=lambda row: (row[0], row[1] == 0)):
        cells = " | ".join(found.part(data, method, epsilon, size) for size in sizes)
        budget = f"{epsilon:g}" if epsilon else "no noise"
        lines.append(f"| {data} | {budget} | {method} | {cells} |")
    return "\n".join(lines)


def cited(file: str, pattern: str) -> str:
    """A figure that another benchmark wrote."""
    found = re.search(pattern, (RESULTS / file).read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"results/{file} has no line like {pattern!r}; adapt benchmarks/which_model.py to it")
    return found[1]


def mean_of(file: str, column: str, **where: str) -> float:
    """The mean of a column over the lines of another benchmark's file that have these cells."""
    with (RESULTS / file).open(newline="", encoding="utf-8") as lines:
        found = [float(x[column]) for x in csv.DictReader(lines) if all(x[key] == cell for key, cell in where.items())]
    if not found:
        raise SystemExit(f"results/{file} has no line with {where}; adapt benchmarks/which_model.py to it")
    return fmean(found)


def decisions(found: Measured) -> str:
    """From a question to a method; every figure is read from a file of results."""
    usual, few = found.sizes("adult")[-1], 3_000
    adult = "adult"
    fit = cited("regression.md", r"Adult, K = 2: one-shot, whole fit .*?\*\*([\d.]+ s)\*\*")
    pure = cited("regression.md", r"Adult, K = 2: functional .*?\*\*([\d.]+ s)\*\*")
    messages = cited("exchange.md", r"alternating fits, .*?\*\*([\d.]+ s)\*\*")
    head = cited("split.md", r"\| all moments \| 60,000 .*?\*\*([\d.]+)\*\*") + " s"
    digits = cited("split.md", r"\| all moments \| 60,000 .*\| ([\d.]+) \|")
    products = cited("speed.md", r"wall time, three nodes .*?; ([\d.]+ s)")
    table = cited("synthetic.md", r"\| 32,561 x 15 \| \*\*([\d.]+ s)")
    lanes = cited("lanes.md", r"\| 5,000,000 \|.*?\| (\d+ s) \|")
    answer = cited("scores_on_demand.md", r"\| epsilon 2 \| ([\d.]+)") + " ms"
    variance = [
        mean_of("pca_utility.csv", "mean", dataset=adult, centred="yes", epsilon="1", method=method)
        for method in ("Colonnade, promised to the analyst", "no privacy")
    ]
    boosted = [
        mean_of("synthetic-scores.csv", "auc", data=adult, model="gradient boosting", method=method, epsilon=epsilon)
        for method, epsilon in (("Colonnade, promised to the analyst", "1"), ("trained on real people", "inf"))
    ]
    told = [
        mean_of("story.csv", "auc", data=adult, to="bank", model=model, how=how, epsilon=epsilon)
        for model, how, epsilon in (("1.0", "levels", "3.0"), ("0.0", "alone, regression", "0.0"))
    ]

    def areas(method: str, epsilon: float) -> str:
        first, second = (found.mean(adult, method, epsilon, people, "auc") for people in (few, usual))
        return f"AUC {first:.3f}; {second:.3f}"

    def explained(data: str, method: str, epsilon: float) -> str:
        return f"explained {'; '.join(found.part(data, method, epsilon, people) for people in (10_000, 30_000))}"

    both, large = f"{few:,}; {usual:,}", "10,000; 30,000"
    off = [found.mean(SUM, "polynomial", 1.0, people, "deviation") for people in (1_000, few)]
    one_shot, pure_epsilon = (f"[LogisticRegression](regression.md), {name}" for name in ("one-shot", "functional"))
    rows = [
        ("predict a flag", "2", both, "1", one_shot, areas("one-shot", 1.0), _at("regression.md", fit)),
        ("without a delta", "2", both, "1", pure_epsilon, areas("functional", 1.0), _at("regression.md", pure)),
        (
            "of pictures",
            "2",
            "60,000",
            "1",
            "[SplitClassifier](split-networks.md)",
            f"accuracy {digits}",
            _at("split.md", head),
        ),
        ("without a committee", "2", both, "3", "[GLM](glm.md)", areas(MESSAGES, 3.0), _at("exchange.md", messages)),
        (
            "predict a number",
            "2",
            large,
            "1",
            "[LinearRegression](regression.md)",
            explained(NUMBER, "one-shot", 1.0),
            _at("regression.md", f"as a flag: {fit}"),
        ),
        (
            "predict a count",
            "2",
            large,
            "10",
            "[GLM](glm.md), poisson",
            explained(COUNT, MESSAGES, 10.0),
            _at("exchange.md", messages),
        ),
        (
            "find structure",
            "3",
            "48,842",
            "1",
            "[PCA](pca.md)",
            f"variance {variance[0]:.3f}; no noise {variance[1]:.3f}",
            _at("speed.md", products),
        ),
        (
            "of millions",
            "3",
            "5,000,000",
            "1",
            "[PCA](pca.md) in [lanes](lanes.md)",
            "time only",
            _at("lanes.md", lanes),
        ),
        (
            "publish a table",
            "3",
            "32,561",
            "1",
            "[Synthesizer](synthetic-data.md)",
            f"AUC {boosted[0]:.3f}; real people {boosted[1]:.3f}",
            _at("synthetic.md", table),
        ),
        (
            "score new people",
            "2",
            "1 or more",
            "3",
            "[joint_scores](joint-prediction.md)",
            f"AUC {told[0]:.3f}; alone {told[1]:.3f}",
            _at("scores_on_demand.md", answer),
        ),
        (
            "any sum",
            "2",
            f"1,000; {few:,}",
            "1",
            "[PolynomialSum](polynomials.md)",
            f"off by {off[0]:.1%}; {off[1]:.1%}",
            "not measured",
        ),
    ]
    lines = ["| question | parties: people | epsilon | take | expect | time |", "|---|---|---|---|---|---|"]
    for question, parties, people, *rest in rows:
        lines.append(f"| {' | '.join((question, f'{parties}: {people}', *rest))} |")
    return "\n".join(lines)


def _at(file: str, time: str) -> str:
    return f"[{time}](../../benchmarks/results/{file})"


def page_tables(figures: Iterable[Figure]) -> dict[str, str]:
    """Every table of the page, by the name of its marks."""
    found = Measured(figures)
    return {
        "decisions": decisions(found),
        **{name: flags(found, name) for name in FLAGS},
        "explained": parts(found),
    }


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


def measure_grid(workers: int) -> Iterator[Figure]:
    """The whole grid, in this order."""
    jobs = [(name, seed) for name in (*KINDS, SUM) for seed in SEEDS]
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(job, *zip(*jobs, strict=True)):
            yield from found


def measure(write: bool = False, tables: bool = False, workers: int = 1) -> dict[str, str]:
    """Which method for which question: the tables of the page, from the file of figures, or measured anew."""
    if write:
        write_figures(measure_grid(workers))
    made = page_tables(read_figures())
    if write or tables:
        write_marked(PAGE, made)
    return made


BENCHMARKS = {
    "": Benchmark(
        measure,
        lambda found: "\n\n".join(found.values()),
        help={
            "write": "measure, write the file of figures, then the page",
            "tables": "write the page from the file of figures",
            "workers": "processes that measure side by side",
        },
    )
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
