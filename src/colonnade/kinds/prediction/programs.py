"""Scores as integers: what an owner rounds alone, and the noise that it draws.

Scores of people whose columns are held by several parties; only one party learns them.

Every owner computes its part of each person's scores from its own columns and the public weights. All but the
entitled party round their parts to a grid, add their share of the noise (if any) and deal them to the
committee, which adds up what it holds and opens the sum to the entitled party alone. That party adds its own part
in the clear, so nothing about its columns is sent.

In active mode the seats check that what was dealt lies on polynomials, and a seat that sends a wrong share is found.
That a part is within the bounds that its owner agreed to is not proven: a part beyond them changes the sum by as much,
and tells nobody anything about the parts of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.prediction.score_posterior import ScorePosterior, update_by_noisy_sums
from colonnade.kinds.prediction.task import QuantisedAnswers, Scores
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.protocols.joint_sum.declaration import JointSum, OwnerSum, SumCircuit, SumOpening
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import KnownPeople
from colonnade.randomness import Stream


class RoundedScores(OwnerSum):
    """What a dealer computes alone: its parts, rounded before anything leaves it."""

    deals = False

    def __init__(self, task: Scores, name: str) -> None:
        self.task, self.name = task, name
        self.whole = np.zeros((0, task.classes), dtype=np.int64)

    def check(self, table: Any) -> None:
        """Round all parts, and refuse what is no number."""
        self.whole = quantise(table.values, self.task, self.name)

    def blocks(self, table: Any, stream: Stream) -> Iterator[NDArray[np.int64]]:
        """The rounded parts, some people at a time."""
        step = self.task.rows_per_block
        return (self.whole[start : start + step] for start in range(0, len(self.whole), step))

    def add(self, whole: NDArray[np.int64]) -> None:
        """Nothing: parts of different people are not added."""

    def entries(self) -> NDArray[np.int64]:
        """All parts, one person after the other."""
        return self.whole.reshape(-1)


def quantise(values: NDArray[np.float64], task: Scores, name: str) -> NDArray[np.int64]:
    """Round to the grid, and enforce the bounds on the integers themselves."""
    part = task.part(name)
    if not np.isfinite(values).all():
        raise DataError(
            f"the scores of {name} are not all finite numbers: look at its table and the model's weights [DA131]"
        )
    low, high = (np.array(ends, dtype=np.float64) for ends in (part.low, part.high))
    clipped = np.clip(np.rint(values * float(task.gamma)), low, high).astype(np.int64)
    # Bounds above 2^53 may be no floats, so they are enforced on integers too.
    return np.clip(clipped, np.array(part.low, dtype=np.int64), np.array(part.high, dtype=np.int64))


@dataclass(frozen=True)
class OwnScoreParts(KnownPeople):
    """One owner's parts of the scores: for each of the common ids, one number per class."""

    ids: Sequence[str]
    values: NDArray[np.float64]
    own_ids: Sequence[str] | None = None


@dataclass(frozen=True)
class OpenedScores:
    """What the entitled party has in the end: the opened sum of the others, and its own part, with its own ids."""

    task: Scores
    ids: tuple[str, ...]
    others: NDArray[np.int64]
    own: NDArray[np.float64]

    def posterior(self, before: Mapping[str, ScorePosterior]) -> ScorePosterior:
        """What is believed of the others' parts together, after it was believed of each before."""
        sums = self.others / float(self.task.gamma)
        if self.task.exact:
            return ScorePosterior(sums, np.zeros_like(sums))
        return update_by_noisy_sums(reduce(ScorePosterior.plus, before.values()), self.own, sums, self.task.noise_std)


class ScoresSum(JointSum[Scores]):
    """The joint sum: every person's number in each class, one after the other; nothing is multiplied."""

    circuit = SumCircuit({}, ())

    own = RoundedScores

    def collect(self, system: ResidueSystem, sums: Sequence[Residues]) -> Residues:
        """Nothing: what is opened is dealt when it is released."""
        return np.zeros((len(system.primes), 0))

    def openings(self, rows: int) -> Sequence[SumOpening]:
        """All people at once."""
        return [SumOpening(0, rows * self.task.classes, ((self.task.event, slice(None)),))]

    def published(self, task: Scores, opened: NDArray[np.int64]) -> NDArray[np.int64]:
        """A row for each person."""
        return opened.reshape(-1, task.classes)

    def in_clear(self, tables: Mapping[str, OwnScoreParts], stream: Stream) -> NDArray[np.int64]:
        """The same integers, computed in one place."""
        return reference({name: tables[name].values for name in self.task.dealers}, self.task).reshape(-1)


_PROGRAMS = JointSumPrograms(ScoresSum)


def owner(me: Owner, parts: OwnScoreParts, task: Scores) -> OpenedScores | None:
    """An owner's program; it returns the scores at the entitled party and ``None`` at the others."""
    check_parts(me, parts, task)
    opened = _PROGRAMS.owner(me, parts, task)
    return None if opened is None else OpenedScores(task, parts.called, opened, parts.values)


def coordinator(me: Coordinator, task: Scores) -> None:
    """The coordinator's program: it compares digests of ids and, with two owners, keeps the third seat."""
    _PROGRAMS.coordinator(me, task)


def reference(parts: Mapping[str, NDArray[np.float64]], task: Scores) -> NDArray[np.int64]:
    """The same integers in the clear, before noise."""
    whole = [quantise(parts[name], task, name).astype(object) for name in task.dealers]
    return np.array(sum(whole[1:], start=whole[0]), dtype=np.int64)


def simulate(parts: Mapping[str, OwnScoreParts], task: Scores, stream: Stream) -> OpenedScores:
    """What the entitled party would hold, computed in one place: the same rounding, integers and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    own = parts[task.to]
    return OpenedScores(task, own.called, _PROGRAMS.simulate(parts, task, stream), own.values)


def check_parts(me: Owner, parts: OwnScoreParts, task: Scores | QuantisedAnswers) -> None:
    """Refuse parts that do not have a number of each class for each row."""
    if parts.values.shape != (len(parts.ids), task.classes):
        raise DataError(f"the scores of {me.name} must have {task.classes} numbers for each of its rows [DA132]")
