"""Colonnade's synthetic tables of a data set: the code of a study, with the noise of its release, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from colonnade.kinds.synthesis.model import Synthesizer
from colonnade.models.planner import Roster
from research.reproduce.chance import stream
from research.synthesis.layouts import Bench

DELTA = 1e-5


@dataclass(frozen=True)
class Way:
    """One of our methods: to whom epsilon is promised, and how the model is learned."""

    name: str
    promised: Literal["analyst", "everyone"] = "analyst"
    mixture: Literal["expectation", "variational"] | None = None
    """How a mixture is learned in rounds, instead of from one release of marginals."""

    def synthesizer(self, bench: Bench, epsilon: float) -> Synthesizer:
        """The model of a study at this epsilon."""
        promise = {"analyst": epsilon} if self.promised == "analyst" else epsilon
        if self.mixture is not None:
            people = bench.train.rows
            return Synthesizer(
                epsilon=promise, delta=DELTA, method="mixture", inference=self.mixture, rows=people, rows_at_most=people
            )
        return Synthesizer(bench.train.label, epsilon=promise, delta=DELTA, bins=dict(bench.bins))


WAYS = (
    Way("Colonnade, promised to the analyst"),
    Way("Colonnade, promised to everyone", "everyone"),
    Way("Colonnade's mixture in rounds, promised to the analyst", mixture="expectation"),
)


def tables(bench: Bench, way: Way, epsilon: float, seeds: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """A synthetic table for each seed; the noise is planned once."""
    if not seeds:
        return
    roster = Roster.of(bench.train.schemas)
    planned = way.synthesizer(bench, epsilon).plan(roster)
    for seed in seeds:
        model = way.synthesizer(bench, epsilon)
        model.simulate(bench.tables, roster, stream(seed, bench.name, way.name, epsilon), task=planned)
        yield seed, model.sample(bench.train.rows)
