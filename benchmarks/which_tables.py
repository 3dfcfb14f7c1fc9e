"""The tables of ``docs/how-to/which-model.md``, from what `which_model.py` and other benchmarks measured."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import fmean

RESULTS = Path(__file__).with_name("results")
FIGURES = RESULTS / "which-model.csv"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "which-model.md"
MARKS = "<!-- {} -->", "<!-- end of {} -->"
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


def write(figures: Iterable[Figure]) -> None:
    """As lines of a file."""
    with FIGURES.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([field.name for field in fields(Figure)])
        for figure in figures:
            lines.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(figure)])


def read() -> list[Figure]:
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


def tables(figures: Iterable[Figure]) -> dict[str, str]:
    """Every table of the page, by the name of its marks."""
    found = Measured(figures)
    return {
        "decisions": decisions(found),
        **{name: flags(found, name) for name in FLAGS},
        "explained": parts(found),
    }
