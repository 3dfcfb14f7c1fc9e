"""SQM's Fig. 2: logistic regression on ACSIncome with about 800 columns, a thousandth of the people in a batch.

Every iterative line takes steps of one length, 2 W / (G sqrt(R)): W bounds the weights, G^2 is the expected squared
length of a noisy mean gradient, R counts the rounds. It is the step of the textbook bound, from public numbers only.
The paper does not say which step it took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression as Exact

from colonnade.kinds import LogisticRegression
from colonnade.kinds.regression.task import GradientTask
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.noise.local_mechanisms import stochastic_round
from colonnade.randomness import Stream
from research.reproduce import calibration, census, chance, dpsgd
from research.reproduce.census import People
from research.reproduce.chance import Matrix, Places
from research.reproduce.dpsgd import Schedule
from research.reproduce.lines import Ours, Splits, accuracy
from research.reproduce.options import Options
from research.reproduce.results import AS_PUBLISHED, CURATOR, LOCAL, NONE, PROVEN, Group, Row

DELTA, RATE, TRAIN = 1e-5, 0.001, 10_000
EPOCHS = {0.5: 2, 1.0: 5, 2.0: 8, 4.0: 10, 8.0: 10}
GAMMAS = (2**10, 2**13)
PAPER_BOUND, OUR_BOUND = 1.0, 8.0
IN_BALL = "without noise, weights within norm 1"

_Place = tuple[str, str, float]
_Draws = dict[_Place, list[float]]


def figure_2(options: Options) -> Iterator[Row]:
    """All lines of the figure, for one state where the paper has four."""
    people = census.income_by_code(options)
    train = 1000 if options.quick else TRAIN
    epochs = {8.0: 1} if options.quick else EPOCHS
    figure = _Figure(people, options, train, epochs)
    draws = figure.drawn()
    columns = people.features.shape[1]
    setting = f"{train} rows, {columns} columns, rate {figure.rate}"
    group = Group("SQM Fig. 2", people.name, setting, "epsilon", "accuracy")
    for (method, promise, epsilon), found in draws.items():
        yield group.row(epsilon, method, promise, found)


def step_length(bound: float, squared: float, rounds: int) -> float:
    """The textbook step for weights of norm at most ``bound`` and mean gradients of this expected squared length."""
    return 2 * bound / math.sqrt(squared * rounds)


def exact_in_ball(rows: Matrix, labels: Matrix, bound: float = PAPER_BOUND) -> Matrix:
    """What the paper's polynomial descent would find without any noise: its weights stay within the ball."""
    schedule = Schedule(rate=1.0, epochs=200, learning_rate=4.0)

    def none(count: int) -> Matrix:
        return np.zeros((count, rows.shape[1]))

    return dpsgd.descend(rows, labels, schedule, dpsgd.straight, none, Stream(bytes(32)), radius=bound)


@dataclass(frozen=True)
class _Noise:
    """Skellam noise of parameter ``mu`` on integers that are ``unit`` times a gradient, for weights within a bound."""

    mu: float
    unit: float
    bound: float

    @property
    def deviation(self) -> float:
        """In the gradient's own units."""
        return math.sqrt(2 * self.mu) / self.unit


class _Figure:
    """One data set, its schedule, and the lines on each split of it."""

    def __init__(self, people: People, options: Options, train: int, epochs: dict[float, int]) -> None:
        self.people, self.options, self.train, self.epochs = people, options, train, epochs
        self.rate = 0.05 if options.quick else RATE
        self.gammas = GAMMAS[:1] if options.quick else GAMMAS
        self.ours = {(gamma, epsilon): self._plan(gamma, epsilon) for gamma in self.gammas for epsilon in epochs}
        self.moments = {
            epsilon: Ours(people, LogisticRegression, options.seed, epsilon={"analyst": epsilon}, method="one-shot")
            for epsilon in epochs
        }

    def drawn(self) -> _Draws:
        """The accuracies of every line."""
        draws: _Draws = {}
        few = self.options.few(4)
        for run, train, test in Splits(self.people, self.options, train=self.train):
            slow = run < few  # these vary little and take long
            for place, scores in self._lines(run, train, test, slow):
                draws.setdefault(place, []).append(accuracy(scores, self.people.label[test]))
        return draws

    def _lines(self, run: int, train: Places, test: Places, slow: bool) -> Iterator[tuple[_Place, Matrix]]:
        rows, labels = self.people.unit, self.people.label[train]
        source = chance.stream(self.options.seed, "Fig. 2", run)
        for gamma in self.gammas:
            power = f"gamma 2^{gamma.bit_length() - 1}"
            whole = stochastic_round(rows[train] * float(gamma), source) / gamma
            for epsilon in self.epochs:
                weights = self._published(whole, labels, gamma, epsilon, source)
                yield (f"SQM, paper's formula, {power}", AS_PUBLISHED, epsilon), rows[test] @ weights
                weights = self._ours(whole, labels, gamma, epsilon, source)
                yield (f"Colonnade, SQM by batches, {power}", PROVEN, epsilon), rows[test] @ weights
        for epsilon in self.epochs:
            weights = self._central(rows[train], labels, epsilon, source)
            yield ("DP-SGD, trusted curator", CURATOR, epsilon), rows[test] @ weights
        if slow:
            yield from self._slow(run, train, test, source)

    def _slow(self, run: int, train: Places, test: Places, source: Stream) -> Iterator[tuple[_Place, Matrix]]:
        features, labels = self.people.features, self.people.label[train]
        exact = Exact(max_iter=200).fit(features[train], labels).decision_function(features[test])
        for epsilon in self.epochs:
            yield ("Colonnade, one release", PROVEN, epsilon), self.moments[epsilon].scores(run, train, test)
            yield ("local noise", LOCAL, epsilon), self._local(train, test, epsilon, source)
            yield ("without privacy (scikit-learn)", NONE, epsilon), exact
        bounded = self.people.unit[test] @ exact_in_ball(self.people.unit[train], labels)
        for epsilon in self.epochs:
            yield (IN_BALL, NONE, epsilon), bounded

    def _schedule(self, epsilon: float, bound: float, longest: float, deviation: float) -> Schedule:
        plain = Schedule(self.rate, self.epochs[epsilon])
        batch = self.rate * self.train
        noise = self.people.unit.shape[1] * (deviation / batch) ** 2
        return Schedule(self.rate, self.epochs[epsilon], step_length(bound, longest**2 + noise, plain.rounds))

    def _published(self, rows: Matrix, labels: Matrix, gamma: int, epsilon: float, source: Stream) -> Matrix:
        """The paper's noise, from Eq. 22 and Renyi divergences, at its bound of 1 on the weights."""
        rounds = Schedule(self.rate, self.epochs[epsilon]).rounds
        mu = calibration.paper_gradient_noise(gamma, rows.shape[1], epsilon, DELTA, self.rate, rounds)
        return self._polynomial(rows, labels, epsilon, _Noise(mu, float(gamma) ** 3, PAPER_BOUND), source)

    def _ours(self, rows: Matrix, labels: Matrix, gamma: int, epsilon: float, source: Stream) -> Matrix:
        """The protocol's steps with its planned noise; in floats, whose error is far below the noise."""
        task = self.ours[gamma, epsilon]
        return self._polynomial(rows, labels, epsilon, _Noise(task.noise, task.divisor, task.weight_bound), source)

    def _polynomial(self, rows: Matrix, labels: Matrix, epsilon: float, given: _Noise, source: Stream) -> Matrix:
        """Descent along x (1/2 - y + <w, x> / 4), back into the ball after every step."""
        schedule = self._schedule(epsilon, given.bound, 0.5 + given.bound / 4, given.deviation)

        def noise(count: int) -> Matrix:
            return chance.skellam_real(given.mu, given.unit, (count, rows.shape[1]), source)

        return dpsgd.descend(rows, labels, schedule, dpsgd.straight, noise, source, radius=given.bound)

    def _central(self, rows: Matrix, labels: Matrix, epsilon: float, source: Stream) -> Matrix:
        rounds = Schedule(self.rate, self.epochs[epsilon]).rounds
        deviation = calibration.gradient_deviation(1.0, rows.shape[1], epsilon, DELTA, self.rate, rounds)
        schedule = self._schedule(epsilon, OUR_BOUND, 1.0, deviation)
        return dpsgd.logistic(rows, labels, schedule, epsilon=epsilon, delta=DELTA, source=source)

    def _local(self, train: Places, test: Places, epsilon: float, source: Stream) -> Matrix:
        """Rows and labels published with noise; both together are at most sqrt(5)/2 long, and move twice that."""
        rows = np.column_stack([self.people.unit[train][:, :-1], self.people.label[train] - 0.5])
        noisy = rows + chance.gaussian(math.sqrt(5) / gaussian_mu(epsilon, DELTA), rows.shape, source)
        model = Exact(max_iter=200).fit(noisy[:, :-1], noisy[:, -1] > 0)
        found: Matrix = model.decision_function(self.people.unit[test][:, :-1])
        return found

    def _plan(self, gamma: int, epsilon: float) -> GradientTask:
        model = LogisticRegression(
            epsilon={"analyst": epsilon},
            delta=DELTA,
            label=self.people.dataset.label,
            method="sqm",
            rows=self.train,
            rate=self.rate,
            epochs=self.epochs[epsilon],
            weight_bound=OUR_BOUND,
            gamma=gamma,
        )
        task = model.plan(self.people.roster)
        assert isinstance(task, GradientTask)
        return task
