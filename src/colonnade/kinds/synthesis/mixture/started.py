"""A mixture that starts from marginals: counts are released first, and the rounds begin at a mixture fitted to them.

1. Marginals of coded columns, in one release, as always (:mod:`colonnade.kinds.tables`).
2. The owner that will open the sums fits a mixture to them, and tells everybody the parameters that it starts from. The
   fit takes thousands of steps, so that floats of two machines may lead to different ones.
3. The rounds of a mixture, from these parameters.

Both are planned and paid for ahead. What a round tells is bounded for all parameters, so the second price does not
depend on what the first release says (docs/theory/mixture-rounds.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture import programs as rounds, vocabulary
from colonnade.kinds.synthesis.mixture.model import Matrix
from colonnade.kinds.synthesis.mixture.programs import Fitted
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.release import NoisyMarginals
from colonnade.kinds.tables.task import Marginals
from colonnade.message_schema import receive_message
from colonnade.mpc import Committee
from colonnade.protocols.committee_task import StagedTask
from colonnade.protocols.iteration import COIN
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import Stream

PROTOCOL = "mixture from marginals 1"
Begin = Callable[[NoisyMarginals], Matrix]
"""From published marginals to parameters of the mixture, (components, ``parameters``)."""
Make = Callable[[Matrix], Fitted]
"""From parameters to the learner that starts there."""


@dataclass(frozen=True)
class StartedMixture(StagedTask):
    """The public task. ``share`` is the part of the price that the marginals take, as far as noise is Gaussian.

    ``noise`` is that of the rounds, from which the noise of the marginals follows; the noise in ``first`` and in
    ``second`` does not count. ``parameters`` is how many parameters a component has.
    """

    first: Marginals
    second: Mixture
    parameters: int
    share: Fraction
    noise: int

    programs = TaskPrograms("colonnade.kinds.synthesis.mixture.started")
    games = "mixture"
    noise_on = Mixture.noise_on
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
    def last(self) -> Mixture:
        """The task whose result it is."""
        return self.second

    @cached_property
    def stages(self) -> tuple[Marginals, Mixture]:
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


def owner(me: Owner, codes: Rows, table: Rows, task: StartedMixture, begin: Begin, make: Make[Fitted]) -> Fitted:
    """An owner's program; ``codes`` and ``table`` are the same rows, by their codes and encoded."""
    first, second = task.stages
    start = _started(me, marginals.owner(me, codes, first), task, begin)
    return rounds.owner(me, table, second, make(start))


def coordinator(me: Coordinator, task: StartedMixture, begin: Begin, make: Make[Fitted]) -> Fitted:
    """The coordinator's program: marginals, and then the rounds."""
    first, second = task.stages
    start = _started(me, marginals.coordinator(me, first), task, begin)
    return rounds.coordinator(me, second, make(start))


def simulate(
    codes: Mapping[str, NDArray[np.int64]],
    tables: Mapping[str, Matrix],
    task: StartedMixture,
    begin: Begin,
    make: Make[Fitted],
    stream: Stream,
) -> Fitted:
    """What the protocol would publish, computed in one place; it is for evaluation, and a study never calls it."""
    first, second = task.stages
    start = begin(marginals.simulate(codes, first, stream))
    return rounds.simulate(tables, second, make(start), stream)


def _started(me: Role, counted: NoisyMarginals, task: StartedMixture, begin: Begin) -> Matrix:
    """The parameters to start from, found by the owner that opens the sums and taken over by everybody."""
    speaker = task.second.speaker
    if me.name != speaker:
        told = receive_message(me.link(speaker), speaker, vocabulary.start(task.second.components, task.parameters))
        return np.array(told["parameters"], dtype=np.float64)
    with me.meter.phase("start"):
        start = begin(counted)
    for name in task.everyone:
        if name != speaker:
            me.link(name).send("start", parameters=start)
    return start
