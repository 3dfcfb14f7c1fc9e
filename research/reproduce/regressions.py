"""The functional mechanism's Tables I and III: regressions on census data, at three budgets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import LinearRegression as ExactLinear, LogisticRegression as ExactLogistic

from colonnade.kinds import LinearRegression, LogisticRegression
from colonnade.tables import Number
from research.reproduce import census, chance, dpsgd, published
from research.reproduce.census import People
from research.reproduce.chance import Matrix, Places
from research.reproduce.dpsgd import Schedule
from research.reproduce.lines import Ours, Splits, accuracy, mean_squared_error
from research.reproduce.mechanism import Quadratic, linear_sensitivity, logistic_sensitivity
from research.reproduce.options import Options
from research.reproduce.results import AS_PUBLISHED, CURATOR, NONE, PROVEN, Group, Row

DELTA = 1e-5
SCHEDULE = Schedule(rate=0.01, epochs=10)
PAPER = "functional mechanism, paper's formula"
PURE = "Colonnade, functional (pure epsilon)"
NORMAL = "Colonnade, one release (Skellam)"
BATCHES = "Colonnade, SQM by batches"
EXACT = "without privacy (scikit-learn)"
CENTRAL = "DP-SGD, trusted curator"

_Found = dict[tuple[str, str, float], list[float]]


def table_1(options: Options) -> Iterator[Row]:
    """Linear regression; the paper's two censuses cannot be had, so its numbers stand in tables of their own."""
    for data, lines in published.TABLE_1.items():
        group = Group("FM Table I", data, "as printed", "epsilon", "mean squared error")
        yield from published.printed(group, lines, published.EPSILONS)
    people = census.working_hours(options)
    plans = [
        (name, epsilon, Ours(people, LinearRegression, options.seed, epsilon={"analyst": epsilon}, method=method))
        for epsilon in _epsilons(options)
        for name, method in ((PURE, "functional"), (NORMAL, "one-shot"))
    ]
    found: _Found = {}
    for run, train, test in Splits(people, options):
        for place, error in _linear(people, plans, options, run, train, test):
            found.setdefault(place, []).append(error)
    yield from _rows(Group("FM Table I", people.name, _size(people), "epsilon", "mean squared error"), found)


def _linear(
    people: People, plans: list[tuple[str, float, Ours]], options: Options, run: int, train: Places, test: Places
) -> Iterator[tuple[tuple[str, str, float], float]]:
    box, label, features = people.box, people.label, people.features
    objective = Quadratic.linear(box[train].T @ box[train], box[train].T @ label[train])
    exact = ExactLinear().fit(features[train], label[train]).predict(features[test])
    middle, half = _unit(people)
    for epsilon in _epsilons(options):
        source = chance.stream(options.seed, "Table I", run, epsilon)
        weights = objective.noisy(linear_sensitivity(box.shape[1]), epsilon, source)
        yield (PAPER, AS_PUBLISHED, epsilon), mean_squared_error(box[test] @ weights, label[test])
        yield (EXACT, NONE, epsilon), mean_squared_error(exact, label[test])
    for name, epsilon, ours in plans:
        predicted = (ours.scores(run, train, test) - middle) / half
        yield (name, PROVEN, epsilon), mean_squared_error(predicted, label[test])


def _unit(people: People) -> tuple[float, float]:
    """What the middle of the label's range is in its own unit, and half the range."""
    declared = people.dataset.schemas[people.dataset.label_party].columns[people.dataset.label_column]
    assert isinstance(declared, Number)
    return (declared.low + declared.high) / 2, (declared.high - declared.low) / 2


def table_3(options: Options) -> Iterator[Row]:
    """Logistic regression on Adult and on the Dutch census, as in the paper."""
    for people in (census.adult(options), census.dutch(options)):
        group = Group("FM Table III", people.name, _size(people), "epsilon", "accuracy")
        yield from published.printed(group, published.TABLE_3[people.name], published.EPSILONS)
        box = census.adult_box(people) if people.name == "Adult" else people.box
        yield from _rows(group, _accuracies(people, box, options))


def _accuracies(people: People, box: Matrix, options: Options) -> _Found:
    schedule = _schedule(options)
    train_size = len(chance.split(len(people.label), 0, options.seed)[0])
    ways = (
        (PURE, {"method": "functional"}),
        (NORMAL, {"method": "one-shot"}),
        (BATCHES, {"method": "sqm", "rows": train_size, "rate": schedule.rate, "epochs": int(schedule.epochs)}),
    )
    plans = [
        (name, epsilon, Ours(people, LogisticRegression, options.seed, epsilon={"analyst": epsilon}, **way))
        for epsilon in _epsilons(options)
        for name, way in ways
    ]
    found: _Found = {}
    for run, train, test in Splits(people, options):
        for place, scores in _logistic(people, box, plans, options, run, train, test):
            found.setdefault(place, []).append(accuracy(scores, people.label[test]))
    return found


def _logistic(
    people: People,
    box: Matrix,
    plans: list[tuple[str, float, Ours]],
    options: Options,
    run: int,
    train: Places,
    test: Places,
) -> Iterator[tuple[tuple[str, str, float], Matrix]]:
    label, features, unit = people.label, people.features, people.unit
    objective = Quadratic.logistic(box[train].T @ box[train], box[train].T @ (0.5 - label[train]))
    model = ExactLogistic(max_iter=300).fit(features[train], label[train])
    exact: Matrix = model.decision_function(features[test])
    for epsilon in _epsilons(options):
        source = chance.stream(options.seed, "Table III", people.name, run, epsilon)
        weights = objective.noisy(logistic_sensitivity(box.shape[1]), epsilon, source)
        yield (PAPER, AS_PUBLISHED, epsilon), box[test] @ weights
        yield (EXACT, NONE, epsilon), exact
        learned = unit[train], label[train], _schedule(options)
        weights = dpsgd.logistic(*learned, epsilon=epsilon, delta=DELTA, source=source)
        yield (CENTRAL, CURATOR, epsilon), unit[test] @ weights
    for name, epsilon, ours in plans:
        yield (name, PROVEN, epsilon), ours.scores(run, train, test)


def _rows(group: Group, found: _Found) -> Iterator[Row]:
    order = (PAPER, PURE, NORMAL, BATCHES, CENTRAL, EXACT)
    for (method, promise, epsilon), draws in sorted(found.items(), key=lambda item: order.index(item[0][0])):
        yield group.row(epsilon, method, promise, np.array(draws))


def _epsilons(options: Options) -> tuple[float, ...]:
    return (1.0,) if options.quick else published.EPSILONS


def _schedule(options: Options) -> Schedule:
    return Schedule(rate=0.05, epochs=1) if options.quick else SCHEDULE


def _size(people: People) -> str:
    return f"{len(people.label)} people"
