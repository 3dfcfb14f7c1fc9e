"""Choosing parameters of generalised linear models by cross-validation; every run and every score is charged."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.glm import plan as glm_plan
from colonnade.kinds.glm.exchange.programs import Outcome
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.fitted import CLASSES
from colonnade.kinds.glm.kept import Everyone
from colonnade.kinds.glm.kept_scores.model import KeptScores, asking
from colonnade.kinds.glm.kept_scores.programs import Answers
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask
from colonnade.kinds.glm.losses.labels import labels_for
from colonnade.kinds.glm.model import GLM
from colonnade.models import metrics as glm_metrics
from colonnade.models.assessment import assess
from colonnade.models.federation import Federation
from colonnade.models.parameters import check_whole
from colonnade.privacy import Event, Statement, least_noise, parse_budgets
from colonnade.privacy.statement import UNMATCHED
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.roles import Owner
from colonnade.tables import Table

METRICS = ("auto", "accuracy", "auc", "log-loss", "loss")
_FIXED = ("label", "epsilon", "delta", "rows", "release")


@dataclass(frozen=True)
class Candidate:
    """One choice of parameters, and the metric on each fold, by a fit without that fold."""

    name: str
    parameters: Mapping[str, Any]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the folds."""
        return math.fsum(self.values) / len(self.values)


@dataclass(frozen=True)
class CrossValidation:
    """What the party with the label learned about the candidates, and the cost of all of it.

    ``multiplier`` is the noise of every run, divided by its sensitivity; ``alone`` is the same for a single fit of the
    first candidate under the same budget.
    """

    active: str
    metric: str
    folds: int
    rows: int
    candidates: tuple[Candidate, ...]
    privacy_: Statement
    multiplier: float
    alone: float

    @property
    def best(self) -> Candidate:
        """The candidate with the best mean; the first one if several are equal."""
        return (min if self.metric in ("loss", "log-loss") else max)(self.candidates, key=lambda each: each.mean)

    @property
    def runs(self) -> int:
        """The number of fits that were charged; there were as many questions."""
        return self.folds * len(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("active", "metric", "folds", "rows", "multiplier", "alone")}
        found = [asdict(each) | {"mean": each.mean} for each in self.candidates]
        return plain | {"candidates": found, "best": self.best.name, "privacy": self.privacy_.to_dict()}

    def __str__(self) -> str:
        wide = max(9, *(len(each.name) for each in self.candidates))
        lines = [f"{'candidate'.ljust(wide)}  {self.metric}, mean of {self.folds} folds"]
        lines += [
            f"{each.name.ljust(wide)}  {each.mean:.4f}{'  best' if each is self.best else ''}"
            for each in self.candidates
        ]
        lines.append(
            f"{self.runs} fits and as many questions are charged together; each has {self.multiplier / self.alone:.1f} "
            "times the noise of a single fit"
        )
        return "\n".join([*lines, str(self.privacy_)])


@dataclass(frozen=True)
class _Run:
    """One candidate's fit without one fold, and the question about that fold."""

    name: str
    fold: int
    fit: Exchange
    ask: KeptScoresTask

    def with_noise(self, noise: int) -> _Run:
        return replace(self, fit=replace(self.fit, noise=noise), ask=replace(self.ask, noise=noise))

    @property
    def events(self) -> Iterator[Event]:
        yield from self.fit.events
        yield from self.ask.events


def cross_validate(
    people: Federation,
    candidates: Mapping[str, Mapping[str, Any]],
    *,
    label: str,
    epsilon: float | Mapping[str, float],
    delta: float = 1e-5,
    folds: int = 5,
    metric: str = "auto",
    **common: Any,
) -> CrossValidation:
    """Compare parameters of a :class:`GLM` on people that each fit left out, within one privacy budget.

    Noise is such that all fits of all candidates and all questions about left-out people *together* keep ``epsilon``.
    They are composed in full, as if everybody were in every fit and in every question; that is an upper bound. Folds
    are fixed and public: row ``i`` of the common order is in fold ``i % folds``. Values of the metric are known to the
    party with the label alone. Going on with the best candidate tells the others something about that party's own
    columns, and no figure here covers it.

    Args:
        people: the federation, aligned.
        candidates: a name and the parameters of each, such as ``{"one": {"epochs": 1}, "two": {"epochs": 2}}``.
        label: the column to predict, written ``"party.column"``.
        epsilon: what all of it together may tell, as for a :class:`GLM`.
        delta: the delta of all promises.
        folds: in how many parts the people are split.
        metric: ``"accuracy"``, ``"auc"`` or ``"log-loss"`` (of the chances) for classes, ``"loss"`` (the family's) for
            numbers; ``"auto"`` takes the first that fits.
        common: parameters that all candidates share, such as ``family``.
    """
    if not isinstance(people, Federation):
        raise StudyError(f"cross_validate takes a Federation, not {type(people).__name__} [ST100]")
    models = _models(candidates, common, {"label": label, "epsilon": epsilon, "delta": delta})
    chosen = _metric(metric, [model.family for model in models.values()])
    for model in models.values():
        model.choices()
        model.setting(people.roster, 1)  # everything is checked before tables are read
    rows = people.common_rows()
    check_whole("folds", folds, 2, rows)
    runs, alone = _planned(models, people, rows, folds)
    people.charges.check("cross-validation", [event for run in runs for event in run.events], runs[0].fit.trust)
    values: dict[str, list[float]] = {name: [] for name in models}
    for run in runs:
        values[run.name].append(_value(models[run.name], run, folds, people, chosen))
    statement = _statement(runs, people, delta)
    found = (Candidate(name, dict(candidates[name]), tuple(each)) for name, each in values.items())
    multiplier = math.sqrt(runs[0].fit.noise / NOISE_UNIT)
    return CrossValidation(runs[0].fit.active, chosen, folds, rows, tuple(found), statement, multiplier, alone)


def _models(candidates: object, common: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, GLM]:
    if not isinstance(candidates, Mapping) or not candidates:
        raise StudyError('candidates is a mapping from names to parameters, such as {"one": {"epochs": 1}} [ST101]')
    known = [name for name in inspect.signature(GLM).parameters if name not in _FIXED]
    found = {}
    for name, given in candidates.items():
        if not isinstance(name, str) or not isinstance(given, Mapping):
            raise StudyError("each candidate is a name and a mapping of parameters [ST102]")
        for parameter in (*common, *given):
            glm_plan.one_of(f"a parameter of candidate {name!r}", parameter, known)
        found[name] = GLM(**{**common, **given, **fixed})
    return found


def _metric(metric: str, families: list[str]) -> str:
    glm_plan.one_of("metric", metric, METRICS)
    classes = {family in CLASSES for family in families}
    if classes == {True}:
        if metric == "loss":
            raise StudyError('metric="loss" is for numbers; classes have "accuracy", "auc" and "log-loss" [ST103]')
        return "accuracy" if metric == "auto" else metric
    if len(set(families)) > 1:
        raise StudyError("losses of different families cannot be compared: give all candidates the same family [ST104]")
    if metric not in ("auto", "loss"):
        raise StudyError(f'metric="{metric}" is for classes; numbers have "loss" [ST105]')
    return "loss"


def _planned(models: Mapping[str, GLM], people: Federation, rows: int, folds: int) -> tuple[list[_Run], float]:
    """All runs with the least noise under which they keep the budget together, and that of the first fit alone."""
    first = next(iter(models.values()))
    trust = first.setting(people.roster, rows).trust
    budgets = parse_budgets(first.epsilon, first.delta, trust)

    def calibrated(drafts: list[_Run]) -> list[_Run]:
        def events(noise: int) -> list[Event]:
            return [event for run in drafts for event in run.with_noise(noise).events]

        noise = least_noise(events, trust, budgets, owners=1)
        return [run.with_noise(noise) for run in drafts]

    rough = calibrated(_drafts(models, people, rows, folds, 1.0))
    runs = calibrated(_drafts(models, people, rows, folds, glm_plan.multiplier(rough[0].fit)))
    for run in runs:
        _ = run.fit.bound, run.ask.bound  # raises its error now, not after some runs
    return runs, glm_plan.multiplier(runs[0].fit.calibrated(budgets))


def _drafts(models: Mapping[str, GLM], people: Federation, rows: int, folds: int, noisy: float) -> list[_Run]:
    found = []
    for name, model in models.items():
        for fold in range(folds):
            held = len(range(fold, rows, folds))
            fit = glm_plan.draft(model.choices(), model.setting(people.roster, rows - held), noisy)
            found.append(_Run(name, fold, fit, asking(fit, held)))
    return found


def _value(model: GLM, run: _Run, folds: int, people: Federation, metric: str) -> float:
    """Fit without the fold, ask for scores of its people, and compute the metric at the party with the label."""

    def learn(me: Owner, table: Table) -> Outcome:
        return model.owner(me, _part(table, run.fold, folds, held=False), run.fit)

    learned = people.run(run.fit, learn, lambda me: model.coordinator(me, run.fit), "cross-validation")
    model.conclude(people.roster, run.fit, Everyone.of(learned, run.fit))
    question = KeptScores(model)
    ask = replace(run.ask, model=model.digest)

    def compare(me: Owner, table: Table) -> float | None:
        part = _part(table, run.fold, folds, held=True)
        answers = question.owner(me, part, ask)
        return None if answers is None else _compared(model, question, answers, part, metric)

    compared = people.run(ask, compare, lambda me: question.coordinator(me, ask), "cross-validation")
    value: float = compared[ask.active]
    return value


def _compared(model: GLM, question: KeptScores, answers: Answers, held: Table, metric: str) -> float:
    """The metric: how well the joint scores predict the labels; computed at the party with the label."""
    scores, family = question.linear(answers), model.family_
    centred = model.design_.centred(answers.task.active)
    labels = labels_for(family, held.schema.columns[str(centred.label)], centred.labels(held))
    own = model.own_scores(scores)
    if metric == "loss":
        return float(np.mean(family.loss(own, labels)))
    if metric == "log-loss":
        return assess(labels > 0, family.mean(own)).log_loss
    return glm_metrics.area(labels > 0, own) if metric == "auc" else glm_metrics.accuracy(labels > 0, own > 0)


def _part(table: Table, fold: int, folds: int, *, held: bool) -> Table:
    ordered = table.sorted_by_id()
    return ordered.take_rows(np.flatnonzero((np.arange(ordered.rows) % folds == fold) == held))


def _statement(runs: list[_Run], people: Federation, delta: float) -> Statement:
    fit = runs[0].fit
    choice = (
        f"how good candidates are stays with {fit.active}; which one it goes on with tells the others something about "
        "its own columns, which is not counted"
    )
    also = (*(people.roster.assumptions or (UNMATCHED,)), choice)
    return Statement.of([event for run in runs for event in run.events], fit.trust, delta, also=also)
