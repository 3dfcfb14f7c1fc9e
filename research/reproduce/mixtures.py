"""Adult for the mixture paper: who holds what, the plan of the rounds, and a fit that is looked at on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture import programs
from colonnade.kinds.synthesis.mixture.components import OwnComponents, RowStatistics
from colonnade.kinds.synthesis.mixture.learners import Matrix, MixtureModel, VariationalLearner
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.models.federation import Federation, Party
from colonnade.models.planner import Roster
from colonnade.privacy import Budget
from colonnade.tables.datasets import PERSON_ID, Dataset
from research.datasets.catalog import ADULT, Layout
from research.datasets.named import load_dataset
from research.reproduce.centralised import Clipping, centralised
from research.reproduce.chance import stream

COMPONENTS, BATCH, ROUNDS, DELTA = 20, 100, 20_000, 1e-5
CLIP, LEARNING_RATE = 2.0, 0.02
_DEMOGRAPHIC = ("age", "female", "marital-status", "relationship", "race", "native-country")
_BINNED = ("education-num", "capital-gain", "capital-loss")  # numbers that stand on few values, most on one
Marks = list[tuple[int, float]]
"""The negative log-likelihood of a test person after so many rounds."""


def _layout() -> Layout:
    columns = {name: column for held in ADULT.parties.values() for name, column in held.items()}
    financial = [name for name in columns if name not in _DEMOGRAPHIC]
    parties = {"demographic": {name: columns[name] for name in _DEMOGRAPHIC}}
    return Layout(
        ADULT.description, parties | {"financial": {n: columns[n] for n in financial}}, "financial.high-income"
    )


@dataclass(frozen=True)
class Census:
    """The people without a missing cell, whose demographic columns one party holds and whose financial the other."""

    train: Dataset
    test: Dataset

    @cached_property
    def held(self) -> dict[str, Matrix]:
        """Every party's encoded rows to learn from."""
        return {name: table.matrix() for name, table in self.train.tables().items()}

    @cached_property
    def model(self) -> MixtureModel:
        """Twenty components: Beta for age and hours, categorical and Bernoulli for the rest."""
        owns = []
        for schema in self.train.schemas.values():
            owns.append(OwnComponents(schema, {name: "bins:16" for name in _BINNED if name in schema.columns}))
        return MixtureModel(owns, COMPONENTS)

    @cached_property
    def cells(self) -> list[RowStatistics]:
        """What the components look at in the rows to learn from."""
        return [own.read(self.held[name]) for own, name in zip(self.model.owns, self.train.parties, strict=True)]

    @cached_property
    def tests(self) -> list[RowStatistics]:
        """The same of the test people."""
        tables = self.test.tables()
        return [own.read(tables[name].matrix()) for own, name in zip(self.model.owns, self.test.parties, strict=True)]

    def cost(self, parameters: Matrix) -> float:
        """The negative log-likelihood of a test person."""
        return float(-self.model.log_likelihood(self.tests, parameters).mean())

    def plan(self, rounds: int, epsilon: float = 1.0, multiple: float | None = None) -> MixtureTask:
        """Drawn batches, with the noise that keeps epsilon for the analyst, or so many times the sensitivity."""
        parts = tuple(
            MixturePart(name, schema.encoded_names, own.width, CLIP)
            for (name, schema), own in zip(self.train.schemas.items(), self.model.owns, strict=True)
        )
        trust, rows = Roster.of(self.train.schemas).trust, self.train.rows
        draft = MixtureTask(parts, COMPONENTS, trust, "poisson", rows, BATCH, rounds, 2, "derivatives")
        if multiple is None:
            return draft.calibrate([Budget("analyst", epsilon, DELTA)])
        return replace(draft, noise=draft.additive.least_scale(multiple, draft.sensitivity))


def census(folder: Path | None, rows: int | None = None) -> Census:
    """The people of the paper: 30,162 to learn from and 15,060 to test on, or a few of them."""
    train, test = (
        _complete(load_dataset("adult", folder=folder, split=split, rows=rows, layout=_layout()))
        for split in ("train", "test")
    )
    return Census(train, test)


def _complete(data: Dataset) -> Dataset:
    """The people who have all cells."""
    kept = np.ones(data.rows, dtype=np.bool_)
    for table in data.arrow.values():
        for column in table.columns:
            kept &= pc.is_valid(column).to_numpy()
    return replace(data, arrow={name: table.filter(kept) for name, table in data.arrow.items()})


class Watched(VariationalLearner):
    """A learner that notes what its parameters are worth on test people, at some rounds."""

    def __init__(self, of: Census, plan: MixtureTask, seed: int, run: int) -> None:
        super().__init__(
            of.train.parties,
            of.model,
            of.model.start(stream(seed, "mixture start", run)),
            stream(seed, "mixture draws", run),
            rate=plan.batch / plan.rows,
            rounds=plan.rounds,
            learning_rate=LEARNING_RATE,
        )
        self.seen: Marks = []
        self._of, self._marks, self._rounds = of, frozenset(marks(plan.rounds)), 0

    def step(self, sums: Matrix) -> None:
        """A step, after which the test people may be asked."""
        super().step(sums)
        self._rounds += 1
        if self._rounds in self._marks:
            self.seen.append((self._rounds, self._of.cost(self.mean)))


def marks(rounds: int) -> tuple[int, ...]:
    """Where curves are looked at."""
    return tuple(
        max(1, round(rounds * part)) for part in (0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1)
    )


def in_integers(of: Census, plan: MixtureTask, seed: int, run: int, *, renormalised: bool = True) -> Marks:
    """The protocol's integers, batches and noise, computed in one place."""
    learner = Watched(of, plan, seed, run)
    programs.simulate(of.held, plan, learner, stream(seed, "mixture noise", run), renormalised=renormalised)
    return learner.seen


def in_floats(of: Census, plan: MixtureTask, seed: int, run: int, clipping: Clipping = "local") -> Marks:
    """The same algorithm on unpartitioned floats, with noise in the same multiple of its sensitivity."""
    multiple = plan.additive.multiple_of(plan.sensitivity)
    clips = [part.clip for part in plan.parts] if clipping == "local" else [1.0]
    moved = (1 + sum(clip**2 for clip in clips)) ** 0.5 if clipping == "local" else 1.0
    rng = np.random.default_rng([seed, run])
    learner = Watched(of, plan, seed, run)
    centralised(of.cells, learner, clips=clips, deviation=multiple * moved, rng=rng, clipping=clipping)
    return learner.seen


def on_shares(of: Census, plan: MixtureTask, seed: int, run: int) -> Marks:
    """The protocol itself: every party and the coordinator in a thread, all arithmetic on shares."""
    parties = [Party(n, of.train.arrow[n], schema=of.train.schemas[n], id=PERSON_ID) for n in of.train.parties]
    found = Federation(parties).run(plan, *_programs(plan, lambda: Watched(of, plan, seed, run)))
    learner = found[plan.speaker]
    return list(learner.seen)


def _programs(plan: MixtureTask, make: Callable[[], Watched]) -> tuple[Callable[..., Watched], Callable[..., Watched]]:
    return (
        lambda me, table: programs.owner(me, table, plan, make()),
        lambda me: programs.coordinator(me, plan, make()),
    )


def means(runs: Sequence[Marks]) -> Mapping[int, NDArray[np.float64]]:
    """What all runs found at each mark."""
    return {at: np.array([dict(run)[at] for run in runs]) for at, _ in runs[0]}
