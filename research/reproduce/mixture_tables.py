"""Synthetic tables from mixtures, on the codes of the comparison of synthetic tables: EM and DPVI.

Every column is a category of its codes, a missing cell one of them, so that likelihoods of all methods are comparable.
What a study would open is computed in one place and in floats, with the noise of a study's plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.components import ColumnStatistics, OwnComponents, RowStatistics
from colonnade.kinds.synthesis.mixture.learners import (
    ExpectationLearner,
    FittedMixture,
    Matrix,
    MixtureModel,
    ParameterPosterior,
    VariationalLearner,
)
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.models.planner import Roster
from colonnade.privacy import Budget
from colonnade.privacy.calibrate import least_noise
from colonnade.tables.coding import decode_codes
from colonnade.tables.columns import category
from colonnade.tables.schema import Schema
from research.reproduce.centralised import centralised, expected_sums
from research.reproduce.chance import stream
from research.synthesis.layouts import Bench

DELTA = 1e-5
Method = Literal["EM", "DPVI"]
COMPONENTS = 20
EM_ROUNDS, DPVI_ROUNDS = 20, 5000
DPVI_BATCH, DPVI_CLIP, DPVI_RATE = 100, 2.0, 0.02


@dataclass(frozen=True)
class Coded:
    """A data set of the comparison as one-hot codes, and mixtures of its people."""

    bench: Bench
    em_rounds: int = EM_ROUNDS
    dpvi_rounds: int = DPVI_ROUNDS

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """Every party's columns as categories of their codes."""
        return {
            party: Schema({column.name: category(range(column.size)) for column in coding.columns})
            for party, coding in self.bench.codings.items()
        }

    @cached_property
    def rows(self) -> dict[str, Matrix]:
        """The training people."""
        return self.encoded(self.bench.codes)

    @cached_property
    def test_codes(self) -> NDArray[np.int64]:
        """The codes of the test people."""
        tables = self.bench.test.tables()
        return np.hstack([self.bench.codings[party].code_rows(table).matrix() for party, table in tables.items()])

    def encoded(self, codes: NDArray[np.int64]) -> dict[str, Matrix]:
        """Codes of all columns as each party's one-hot rows."""
        found, start = {}, 0
        for party, schema in self.schemas.items():
            rows = np.zeros((len(codes), schema.encoded_width))
            for place in schema.encoded_slices.values():
                rows[np.arange(len(codes)), place.start + codes[:, start]] = 1.0
                start += 1
            found[party] = rows
        return found

    def decoded(self, rows: dict[str, Matrix]) -> NDArray[np.int64]:
        """The codes of one-hot rows."""
        return np.column_stack(
            [
                rows[party][:, place].argmax(axis=1)
                for party, schema in self.schemas.items()
                for place in schema.encoded_slices.values()
            ]
        )

    def model(self, components: int) -> MixtureModel:
        """Components over all parties' codes."""
        return MixtureModel([OwnComponents(schema) for schema in self.schemas.values()], components)

    def plan(self, method: Method, epsilon: float) -> MixtureTask:
        """The rounds of a method with the least noise that keeps epsilon for the analyst."""
        em = method == "EM"
        model = self.model(COMPONENTS)
        owns = [ColumnStatistics(own) for own in model.owns]
        parts = tuple(
            MixturePart(party, schema.encoded_names, own.width, own.bound if em else DPVI_CLIP)
            for (party, schema), own in zip(self.schemas.items(), owns, strict=True)
        )
        trust, rows = Roster.of(self.bench.train.schemas).trust, len(self.bench.codes)
        batch, rounds = (rows, self.em_rounds) if em else (DPVI_BATCH, self.dpvi_rounds)
        draft = MixtureTask(
            parts, model.components, trust, "all" if em else "poisson", rows, batch, rounds, len(parts),
            "statistics" if em else "derivatives", vector_bits=12,
        )  # fmt: skip
        noise = least_noise(
            lambda noise: draft.with_noise(noise).events,
            trust,
            [Budget("analyst", epsilon, DELTA)],
            owners=draft.additive.parts,
        )
        return draft.with_noise(noise)

    def fitted(self, method: Method, plan: MixtureTask, seed: int) -> FittedMixture:
        """What the rounds would publish."""
        model = self.model(plan.components)
        begin = model.start(stream(seed, "mixture start"))
        cells = [own.read(self.rows[party]) for own, party in zip(model.owns, self.schemas, strict=True)]
        rng = np.random.default_rng([seed, 17])
        run = self._em if method == "EM" else self._dpvi
        return FittedMixture(tuple(self.schemas), model, run(model, cells, plan, seed, begin, rng))

    def _em(
        self,
        model: MixtureModel,
        cells: list[RowStatistics],
        plan: MixtureTask,
        seed: int,
        start: Matrix,
        rng: np.random.Generator,
    ) -> ParameterPosterior:
        learned = ExpectationLearner(tuple(self.schemas), model, start, plan.noise_std)
        held = [own.read(rows) for own, rows in zip(learned.statistics, self.rows.values(), strict=True)]
        for _ in range(plan.rounds):
            sums = expected_sums(held, model.log_joint(cells, learned.parameters))
            learned.step(sums + plan.noise_std * rng.standard_normal(sums.shape))
        return learned.posterior

    def _dpvi(
        self,
        model: MixtureModel,
        cells: list[RowStatistics],
        plan: MixtureTask,
        seed: int,
        start: Matrix,
        rng: np.random.Generator,
    ) -> ParameterPosterior:
        state = VariationalLearner(
            tuple(self.schemas), model, start, stream(seed, "mixture draws"),
            rate=plan.batch / plan.rows, rounds=plan.rounds, learning_rate=DPVI_RATE,
        )  # fmt: skip
        clips = [part.clip for part in plan.parts]
        return centralised(cells, state, clips=clips, deviation=plan.noise_std, rng=rng).posterior

    def cost(self, found: FittedMixture) -> float:
        """The negative log-likelihood of a test person's codes."""
        return float(-found.log_likelihood(self.encoded(self.test_codes)).mean())

    def table(self, found: FittedMixture, seed: int) -> pa.Table:
        """As many made-up people as there are training people, as a table of the schemas' columns."""
        codes = self.decoded(found.sample(len(self.bench.codes), stream(seed, "mixture people")))
        shares = [
            np.bincount(own, minlength=size) / len(codes) for own, size in zip(codes.T, self.bench.sizes, strict=True)
        ]
        return decode_codes(self.bench.codings, codes, stream(seed, "mixture cells"), shares)
