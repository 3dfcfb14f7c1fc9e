"""HDP-VFL's Figures 1, 2 and 4: how good a model is that two parties learn over noised messages, at which epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression as Exact
from sklearn.metrics import roc_auc_score

from colonnade.kinds.glm.model import GLM
from colonnade.tables.table import ColumnCentring
from research.reproduce import chance, vertical
from research.reproduce.census import People
from research.reproduce.chance import Matrix, Places
from research.reproduce.lines import Splits, accuracy
from research.reproduce.messages import Algorithm, unit_rows
from research.reproduce.options import Options
from research.reproduce.results import ALONE, AS_PUBLISHED, NONE, PROVEN, Group, Row

DELTA = 0.01
EPSILONS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
EPOCHS, BOUNDS = (5, 10, 15), (0.1, 0.5, 1.0)
OURS = "Colonnade, parameters by the pre-flight"
PAPER = "HDP-VFL, paper's formula"
OWN = "active party alone (scikit-learn)"
CENTRAL = "all columns in one place (scikit-learn)"
SILENT = "Colonnade's exchange, hardly any noise"

_Place = tuple[str, str, float]
_Scores = Iterator[tuple[_Place, Matrix]]


def auc(scores: Matrix, labels: Matrix) -> float:
    """The chance that somebody with the label scores above somebody without it."""
    return float(roc_auc_score(labels > 0.5, scores))


MEASURES = {"accuracy": accuracy, "AUC": auc}


class Two:
    """A data set as its two parties hold it: centred columns, once for every method."""

    def __init__(self, people: People, options: Options) -> None:
        self.people, self.options = people, options

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The places on the figures' axis."""
        return (1.0, 10.0) if self.options.quick else EPSILONS

    @property
    def learned(self) -> int:
        """How many rows there are to learn from."""
        return round(0.8 * len(self.people.label))

    @cached_property
    def active(self) -> Matrix:
        """The active party's columns, less the public middles of their bounds."""
        return self._centred(vertical.ACTIVE)

    @cached_property
    def passive(self) -> Matrix:
        """The passive party's."""
        return self._centred(vertical.PASSIVE)

    def _centred(self, party: str) -> Matrix:
        data = self.people.dataset
        label = data.label_column if party == data.label_party else None
        return ColumnCentring(data.schemas[party], label).centre_features(self.people.tables[party]).matrix()

    def model(self, epsilon: float, **parameters: Any) -> Learner:
        """One of ours, planned for this data."""
        return Learner(self, epsilon, parameters)

    def exact(self, rows: Matrix, train: Places, test: Places) -> Matrix:
        """scikit-learn's scores from these columns."""
        fitted = Exact(max_iter=1000).fit(rows[train], self.people.label[train])
        found: Matrix = fitted.decision_function(rows[test])
        return found

    def published(self, algorithm: Algorithm, epsilon: float, run: int, train: Places, test: Places) -> Matrix:
        """The paper's algorithm under its own noise, on columns centred at their means and unit rows."""
        label = self.people.label
        active, passive = (part - part[train].mean(axis=0) for part in (self.active, self.passive))
        active, passive = unit_rows(active, passive)
        noise = algorithm.deviations(len(train), epsilon, DELTA)
        source = chance.stream(self.options.seed, "HDP", self.people.name, algorithm, epsilon, run)
        own, other = algorithm.fit(active[train], passive[train], label[train], noise, source)
        found: Matrix = active[test] @ own + passive[test] @ other
        return found


class Learner:
    """The library's model, planned once from public numbers and learned on each split."""

    def __init__(self, data: Two, epsilon: float, parameters: dict[str, Any]) -> None:
        self.data, self.key = data, (epsilon, sorted(map(str, parameters.items())))
        self.glm = GLM(
            family="logistic",
            label=data.people.dataset.label,
            epsilon=epsilon,
            delta=DELTA,
            rows=data.learned,
            **parameters,
        )
        self.task = self.glm.plan(data.people.roster)

    def silenced(self) -> Learner:
        """The same with the least noise that the task can express; promises next to nothing."""
        twin = copy(self)
        twin.task = replace(self.task, noise=1)
        return twin

    def scores(self, run: int, train: Places, test: Places) -> Matrix:
        """What both parties together would say of the test people."""
        people = self.data.people
        source = chance.stream(self.data.options.seed, "ours", people.name, *self.key, run)
        self.glm.simulate(people.part(train), people.roster, source, task=self.task)
        return self.glm.decision_function(people.part(test))


def figure_1(split: vertical.Split, options: Options) -> Iterator[Row]:
    """One data set: all lines over epsilon, accuracy and AUC (Fig. 4 of Appendix C has the paper's full range)."""
    data = Two(split.people(options), options)
    ours = {epsilon: data.model(epsilon) for epsilon in data.epsilons}
    silent = ours[max(ours)].silenced()

    def lines(run: int, train: Places, test: Places) -> _Scores:
        central = data.exact(np.hstack([data.active, data.passive]), train, test)
        alone, exchange = data.exact(data.active, train, test), silent.scores(run, train, test)
        for epsilon in data.epsilons:
            yield (OURS, PROVEN, epsilon), ours[epsilon].scores(run, train, test)
            yield (PAPER, AS_PUBLISHED, epsilon), data.published(Algorithm(), epsilon, run, train, test)
            yield (OWN, ALONE, epsilon), alone
            yield (CENTRAL, NONE, epsilon), central
            yield (SILENT, NONE, epsilon), exchange

    setting = f"{len(data.people.label)} people"
    yield from _measured(data, lines, "HDP Fig. 1", setting, tuple(MEASURES))


def figure_2(options: Options) -> Iterator[Row]:
    """Breast: how epochs and the bound on the weights matter, in the paper's formula and in our gradient method."""
    data = Two(vertical.BREAST.people(options), options)
    every = 2 if options.quick else 1
    epochs = {f"{count} epochs": {"epochs": count, "weight_bound": 1.0} for count in EPOCHS[::every]}
    bounds = {f"k = {bound:g}": {"epochs": 10, "weight_bound": bound} for bound in BOUNDS[::every]}
    for setting, cases in (("k = 1", epochs), ("10 epochs", bounds)):
        yield from _panel(data, setting, cases)


def _panel(data: Two, setting: str, cases: dict[str, dict[str, Any]]) -> Iterator[Row]:
    ours = {
        (name, epsilon): data.model(epsilon, method="gradient", **case)
        for name, case in cases.items()
        for epsilon in data.epsilons
    }

    def lines(run: int, train: Places, test: Places) -> _Scores:
        for name, case in cases.items():
            for epsilon in data.epsilons:
                ours_here = ours[name, epsilon].scores(run, train, test)
                yield (f"Colonnade, gradient steps, {name}", PROVEN, epsilon), ours_here
                scores = data.published(Algorithm(**case), epsilon, run, train, test)
                yield (f"{PAPER}, {name}", AS_PUBLISHED, epsilon), scores

    yield from _measured(data, lines, "HDP Fig. 2", setting, ("accuracy",))


def _measured(data: Two, lines: Any, part: str, setting: str, measures: tuple[str, ...]) -> Iterator[Row]:
    """Every line on every split, and what it is worth by each measure."""
    found: dict[tuple[str, _Place], list[float]] = {}
    for run, train, test in Splits(data.people, data.options):
        for place, scores in lines(run, train, test):
            for measure in measures:
                worth = MEASURES[measure](scores, data.people.label[test])
                found.setdefault((measure, place), []).append(worth)
    for measure in measures:
        group = Group(part, data.people.name, setting, "epsilon", measure)
        for (name, (method, promise, epsilon)), draws in found.items():
            if name == measure:
                yield group.row(epsilon, method, promise, draws)
