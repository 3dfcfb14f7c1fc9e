"""A mixture that starts from marginals: counts are released first, and the rounds begin at a mixture fitted to them.

1. Marginals of coded columns, in one release, as always (:mod:`colonnade.kinds.tables.marginals`).
2. The owner that will open the sums fits a mixture to them, and tells everybody the parameters that it starts from. The
   fit takes thousands of steps, so that floats of two machines may lead to different ones.
3. The rounds of a mixture, from these parameters.

Both are planned and paid for ahead. What a round tells is bounded for all parameters, so the second price does not
depend on what the first release says (docs/theory/mixture-rounds.md, section 6).

The fit is public, and so is all that follows from it. Its components are merged to as many as the mixture has, so that
little likelihood is lost, and each column's chances become the parameters of its family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture import planning, programs as rounds, round_sums
from colonnade.kinds.synthesis.mixture.components import (
    PARAMETER_LIMIT,
    BernoulliColumn,
    CategoricalColumn,
    ColumnFamily,
)
from colonnade.kinds.synthesis.mixture.learners import MixtureLearner, parameters_from_moments
from colonnade.kinds.synthesis.mixture.mixture_model import Matrix, MixtureModel
from colonnade.kinds.synthesis.mixture.programs import FittedLearner
from colonnade.kinds.synthesis.mixture.task import MixtureTask
from colonnade.kinds.synthesis.release_fit import COMPONENTS, fit_products
from colonnade.kinds.tables import programs as marginals, queries
from colonnade.kinds.tables.layout import Binning, TableLayout
from colonnade.kinds.tables.release import MarginalsRelease, NoisyMarginals
from colonnade.kinds.tables.task import Marginals
from colonnade.message_schema import receive_message
from colonnade.models.planner import PlanDetails, Roster
from colonnade.mpc import Committee
from colonnade.protocols.committee_task import StagedTask
from colonnade.protocols.iteration import COIN
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import Stream
from colonnade.tables.columns import Column

PROTOCOL = "mixture from marginals 1"
StartRule = Callable[[NoisyMarginals], Matrix]
"""From published marginals to parameters of the mixture, (components, ``parameters``)."""
LearnerFactory = Callable[[Matrix], FittedLearner]
"""From parameters to the learner that starts there."""


@dataclass(frozen=True)
class WarmStartedMixture(StagedTask):
    """The public task. ``share`` is the part of the price that the marginals take, as far as noise is Gaussian.

    ``noise`` is that of the rounds, from which the noise of the marginals follows; the noise in ``first`` and in
    ``second`` does not count. ``parameters`` is how many parameters a component has.
    """

    first: Marginals
    second: MixtureTask
    parameters: int
    share: Fraction
    noise: int

    programs = TaskPrograms("colonnade.kinds.synthesis.mixture.warm_start")
    games = "mixture"
    noise_on = MixtureTask.noise_on
    released: ClassVar[str] = "releases marginals, and then sums in rounds that depend on them"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise StudyError(f"the marginals take a share of the price between 0 and 1, not {self.share} [ST499]")
        if self.first.hidden:
            raise StudyError("a mixture is of people whom all parties know, so its marginals cannot hide them [ST500]")
        if (self.first.trust, self.first.law) != (self.second.trust, self.second.law):
            raise StudyError(
                "the marginals and the rounds are of the same participants, with noise of the same law [ST501]"
            )
        if self.first.rows_limit != self.second.rows_limit:
            raise StudyError("the marginals and the rounds allow the same number of people [ST502]")

    @property
    def last(self) -> MixtureTask:
        """The task whose result it is."""
        return self.second

    @cached_property
    def stages(self) -> tuple[Marginals, MixtureTask]:
        """Both with their noise: the marginals have the least, in parts for all owners, that leaves them their share.

        With Gaussian noise of variance v a release whose sums one person moves by d costs d^2 / v, and e times as much
        in e releases; those of drawn batches, a chance p of being in each, cost about p^2 times as much.
        """
        second, parts = self.second.with_noise(self.noise), self.additive.parts
        often = Fraction(second.epochs)
        if second.sampling == "poisson":
            often = second.rounds * Fraction(second.threshold, COIN) ** 2
        rest = often * second.sensitivity.l2_squared
        wanted = self.noise * (1 - self.share) / self.share * self.first.sensitivity.l2_squared / rest
        return self.first.with_noise(max(1, math.ceil(wanted / parts)) * parts), second

    @property
    def gamma(self) -> int:  # type: ignore[override]  # that of the rounds
        """An opened integer of a round divided by this number is a sum over people."""
        return self.second.gamma

    @property
    def rows_limit(self) -> int:
        """The most rows that either allows."""
        return self.second.rows_limit

    @property
    def rows_stated(self) -> int:
        """About how many people there are, as everybody may know."""
        return self.second.rows_stated

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the one that needs more."""
        return max((stage.committee for stage in self.stages), key=lambda found: len(found.system.primes))

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other: the rows are compared twice, and the start is told."""
        return sum(stage.message_rounds for stage in self.stages) - 1

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "stages": [stage.agreement for stage in self.stages],
            "parameters": self.parameters,
            "share": str(self.share),
            "primes": list(self.committee.system.primes),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task: what it says about the rounds, and what they start from."""
        first, second = self.stages
        return second.facts | {
            "start": {"blocks": len(first.asked), "cells": first.entries, "noise": str(first.noise)},
            "primes": len(self.committee.system.primes),
            "system_bits": self.committee.system.bits,
        }


def owner(
    me: Owner, codes: Rows, table: Rows, task: WarmStartedMixture, begin: StartRule, make: LearnerFactory[FittedLearner]
) -> FittedLearner:
    """An owner's program; ``codes`` and ``table`` are the same rows, by their codes and encoded."""
    first, second = task.stages
    start = _share_start(me, marginals.owner(me, codes, first), task, begin)
    return rounds.owner(me, table, second, make(start))


def coordinator(
    me: Coordinator, task: WarmStartedMixture, begin: StartRule, make: LearnerFactory[FittedLearner]
) -> FittedLearner:
    """The coordinator's program: marginals, and then the rounds."""
    first, second = task.stages
    start = _share_start(me, marginals.coordinator(me, first), task, begin)
    return rounds.coordinator(me, second, make(start))


def simulate(
    codes: Mapping[str, NDArray[np.int64]],
    tables: Mapping[str, Matrix],
    task: WarmStartedMixture,
    begin: StartRule,
    make: LearnerFactory[FittedLearner],
    stream: Stream,
) -> FittedLearner:
    """What the protocol would publish, computed in one place; it is for evaluation, and a study never calls it."""
    first, second = task.stages
    start = begin(marginals.simulate(codes, first, stream))
    return rounds.simulate(tables, second, make(start), stream)


def _share_start(me: Role, counted: NoisyMarginals, task: WarmStartedMixture, begin: StartRule) -> Matrix:
    """The parameters to start from, found by the owner that opens the sums and taken over by everybody."""
    speaker = task.second.speaker
    if me.name != speaker:
        told = receive_message(
            me.link(speaker), speaker, round_sums.start_message(task.second.components, task.parameters)
        )
        return np.array(told["parameters"], dtype=np.float64)
    with me.meter.phase("start"):
        start = begin(counted)
    for name in task.everyone:
        if name != speaker:
            me.link(name).send("start", parameters=start)
    return start


_LEAST = 1e-4  # the least chance of a code: a fit may say never, from where no step leads back
_MERGES = 50


class CodedRange(Protocol):
    """What is asked of the coding of a column."""

    @property
    def edges(self) -> tuple[float, ...] | None:
        """The edges of a number's bins in its own units."""

    @property
    def missing(self) -> int | None:
        """The code of a missing cell, where there is one."""


def start_from(
    model: MixtureModel, weights: NDArray[np.float64], tables: Sequence[Matrix], codings: Sequence[CodedRange]
) -> Matrix:
    """The parameters of a mixture that is close to a mixture of products.

    ``tables`` has an array (components, codes) for each column of every owner in turn, ``codings`` says what the codes
    mean. The fit must have at least as many components as the mixture.
    """
    weights, tables = merge_components(weights, tables, model.components)
    found = np.empty((model.components, model.width))
    found[:, 0] = np.log(np.maximum(weights * model.components, _LEAST))
    columns = iter(zip(tables, codings, strict=True))
    for own, part in zip(model.owns, model.parts, strict=True):
        for name, family in own.families.items():
            table, coded = next(columns)
            place = slice(part.start + own.places[name].start, part.start + own.places[name].stop)
            found[:, place] = _family_parameters(_value_chances(table, coded), own.schema.columns[name], family, coded)
    return np.clip(found, -PARAMETER_LIMIT, PARAMETER_LIMIT)


def merge_components(
    weights: NDArray[np.float64], tables: Sequence[Matrix], components: int
) -> tuple[NDArray[np.float64], list[Matrix]]:
    """Components merged to fewer: each joins the one under whose chances people drawn from it are most likely."""
    if len(weights) < components:
        raise StudyError(
            f"a fit of {len(weights)} components cannot start a mixture of {components}; ask for "
            "at most as many [ST503]"
        )
    joined = np.hstack(tables)
    ends = np.cumsum([0, *(table.shape[1] for table in tables)])
    chosen = _far_apart(weights, joined, components)
    centres = joined[chosen]
    for _ in range(_MERGES):
        nearest = _mean_log_likelihood(joined, centres).argmax(axis=1)
        nearest[chosen] = np.arange(components)  # so that none is left without a member
        members = (nearest == np.arange(components)[:, None]) * np.maximum(weights, 1e-12)
        moved = members @ joined / members.sum(axis=1, keepdims=True)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return members.sum(axis=1), [centres[:, start:stop] for start, stop in pairwise(ends)]


def _mean_log_likelihood(joined: Matrix, centres: Matrix) -> Matrix:
    """The mean log likelihood of people of each component under each centre."""
    return np.asarray(joined @ np.log(np.maximum(centres, _LEAST)).T)


def _far_apart(weights: NDArray[np.float64], joined: Matrix, count: int) -> NDArray[np.int64]:
    """Components to begin with: the heaviest, then always the one that is worst described by those chosen."""
    own = np.einsum("kd,kd->k", joined, np.log(np.maximum(joined, _LEAST)))
    chosen = [int(np.argmax(weights))]
    lost = own - _mean_log_likelihood(joined, joined[chosen])[:, 0]
    while len(chosen) < count:
        worth = weights * np.maximum(lost, 0.0) + 1e-12 * weights
        worth[chosen] = -1.0
        chosen.append(int(np.argmax(worth)))
        lost = np.minimum(lost, own - _mean_log_likelihood(joined, joined[chosen[-1:]])[:, 0])
    return np.array(chosen, dtype=np.int64)


def _value_chances(table: Matrix, coded: CodedRange) -> Matrix:
    """Chances of the codes that stand for values."""
    kept = table if coded.missing is None else np.delete(table, coded.missing, axis=1)
    kept = np.maximum(kept, _LEAST)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def _family_parameters(chances: Matrix, column: Column, family: ColumnFamily, coded: CodedRange) -> Matrix:
    if isinstance(family, BernoulliColumn):
        return np.asarray(np.log(chances[:, 1:] / chances[:, :1]))
    if column.quantity is None:
        return np.asarray(np.log(chances * chances.shape[1]))
    edges = column.quantity.share_of(np.array(coded.edges))
    if isinstance(family, CategoricalColumn):
        ours = np.linspace(0, 1, family.size + 1)
        overlap = np.minimum(ours[1:, None], edges[1:]) - np.maximum(ours[:-1, None], edges[:-1])
        part = np.maximum(overlap, 0.0) / np.maximum(np.diff(edges), 1e-12)
        binned = np.maximum(chances @ part.T, _LEAST / family.size)
        return np.asarray(np.log(binned * family.size))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    mean = np.clip(chances @ middles, 0.02, 0.98)
    return parameters_from_moments(mean, chances @ (middles**2 + widths**2 / 12) - mean**2, family)


StartMethod = Literal["none", "marginals"]
MARGINALS_SHARE = Fraction(1, 4)
"""What the marginals take of the price: alone they would have about half of epsilon."""


def draft_warm_start(
    settings: planning.MixtureSettings,
    layout: TableLayout,
    roster: Roster,
    *,
    label: str | None,
    focus: Sequence[Sequence[str]],
) -> WarmStartedMixture:
    """The task, before its noise is set."""
    second = planning.draft_mixture(settings, roster)
    first = queries.draft(layout, roster, label=label, focus=focus, law=settings.law, rows_at_most=second.rows_limit)
    if not isinstance(first, Marginals):
        raise StudyError("a mixture starts from marginals in one release; leave even_bins out [ST343]")
    return WarmStartedMixture(first, second, planning.task_mixture(second).width, MARGINALS_SHARE, second.noise)


def start_rules(task: WarmStartedMixture, bins: Binning | None) -> tuple[StartRule, LearnerFactory[MixtureLearner]]:
    """How the start follows from the marginals, and the learner of the rounds from the start."""
    second = task.stages[1]
    layout = TableLayout.of(planning.task_schemas(second), bins)
    return partial(fit_start, second, layout), partial(planning.make_learner, second)


def fit_start(task: MixtureTask, layout: TableLayout, published: NoisyMarginals) -> NDArray[np.float64]:
    """The parameters of a mixture that is close to what the marginals say; of nothing else."""
    release = MarginalsRelease.of(published)
    found = fit_products(layout.sizes, release.count, release.parts, components=max(COMPONENTS, task.components))
    tables = [np.ones((len(found.weights), 1)) for _ in layout.columns]  # columns with one code were not asked about
    for place, table in zip(layout.free, found.tables, strict=True):
        tables[place] = table
    return start_from(planning.task_mixture(task), found.weights, tables, layout.columns)


def warm_start_details(task: WarmStartedMixture) -> PlanDetails:
    """What is released before the rounds, and how many there are."""
    rounds, counts = planning.mixture_details(task.second), queries.details(task.first)
    before = f"first, {counts.brief[0]}; the rounds start from a fit to them"
    return PlanDetails("mixture", {**rounds.facts, "start": dict(counts.facts)}, brief=(before, *rounds.brief))
