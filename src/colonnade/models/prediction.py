"""Predictions for new people when nobody holds all their columns; one party alone receives them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models.base import Estimator
from colonnade.models.federation import Federation, Roster
from colonnade.models.linear_model import LinearModel
from colonnade.models.parameters import NAMES_MODEL, NAMES_PARTIES, SETS_PRICE, Count, RowsAtMost, check_whole
from colonnade.models.predicted import FILE_OF_MODEL, JointScores, Predicted, budgets_against, check_fitted
from colonnade.privacy.calibrate import with_least_noise
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.scores import programs as scores
from colonnade.protocols.scores.programs import OpenedScores, Parts
from colonnade.protocols.scores.task import Part, Scores
from colonnade.randomness import Stream
from colonnade.tables import Schema, Table
from colonnade.tables.columns import NOWHERE, Category, Column, Number

_Ends = tuple[Fraction, Fraction]


@runtime_checkable
class Scorer(Protocol):
    """What a fitted model must have: public linear weights, each party's part of the scores, and what scores predict.

    ``coef_`` has a row for each class and a column for each of ``feature_names_in_`` ("party.column" or
    "party.column=value"), for encoded values. The parts of all parties and ``intercept_`` add up to the scores.
    """

    schemas_: dict[str, Schema]
    feature_names_in_: list[str]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def partial(self, party: str, source: Any) -> NDArray[np.float64]:
        """One party's part of the scores, (rows, classes), of a table that need not have the label; no intercept."""

    def answers(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """What scores of shape (rows, classes) predict."""


@dataclass(eq=False, repr=False)
class JointPrediction(Predicted[Scores, OpenedScores | None, Scorer]):
    """Scores of new people under a published model, summed on shares and opened to one party.

    Exactly one of ``epsilon`` and ``exact=True`` is given. Every study is charged, also one about the same people: the
    costs add up.

    Args:
        model: a linear or logistic regression, fitted, or the path of its ``model.json``.
        to: the party that receives the scores; nobody else learns anything.
        exact: give ``to`` the exact scores; no epsilon against it is then finite.
        epsilon: instead, add the least noise under which ``to`` (or a mapping of observers) learns at most this much
            about any one person's columns held by others.
        delta: the delta of that promise.
        gamma: scores are whole multiples of ``1 / gamma``.
        rows_at_most: a public limit on the number of people.
    """

    kind = "prediction"
    tasks = (Scores,)

    model: Annotated[Scorer | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    to: Annotated[str, NAMES_PARTIES]
    exact: Annotated[bool, SETS_PRICE] = False
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    gamma: Count = 2**16
    rows_at_most: RowsAtMost = 2**20

    @property
    def recipient(self) -> str:
        """The party that alone receives the answers."""
        return self.to

    def plan(self, roster: Roster) -> Scores:
        """Bounds from the public weights and schemas; the least noise that meets the budgets, or none."""
        roster.require_known_members("joint prediction")
        if (self.epsilon is None) != (self.exact is True):
            raise StudyError(
                f"say what the scores may cost, by epsilon or by exact = true, and not by both: epsilon adds noise to "
                f"each score until {self.to} learns at most that much about any one person, and exact = true lets "
                f"{self.to} learn the exact scores, which no epsilon bounds"
            )
        check_whole("gamma", self.gamma, 1, 2**40)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        check_columns(self.scorer, roster)
        draft = Scores(
            parts=tuple(part_of(self.scorer, party, self.gamma) for party in roster.schemas),
            trust=roster.trust,
            to=self.to,
            gamma=self.gamma,
            rows_at_most=self.rows_at_most,
            names=tuple(self.scorer.feature_names_in_),
            model=digest(self.scorer),
        )
        return draft if self.epsilon is None else self._noised(draft, self.epsilon)

    def _noised(self, draft: Scores, epsilon: float | Mapping[str, float]) -> Scores:
        budgets = budgets_against(self.to, epsilon, self.delta, draft.trust)
        parts = draft.additive.parts
        return with_least_noise(lambda noise: replace(draft, noise=noise), draft.trust, budgets, owners=parts)

    def owner(self, me: Owner, table: Table, task: Scores) -> OpenedScores | None:
        """An owner's program: its own part of the scores, and then the sum."""
        if digest(self.scorer) != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file that all agreed on"
            )
        return scores.owner(me, self._parts(me.name, table, task), task)

    def coordinator(self, me: Coordinator, task: Scores) -> None:
        """The coordinator's program."""
        scores.coordinator(me, task)

    def outcome(self, outcomes: Mapping[str, Any], task: Scores) -> OpenedScores | None:
        """What the party ``to`` received, where all participants run in one process."""
        received: OpenedScores | None = outcomes[task.to]
        return received

    def checked(self, model: Any) -> Scorer:
        """This model, if it is a fitted one with finite public weights."""
        if isinstance(model, Estimator):
            check_fitted(model)
        if not isinstance(model, Scorer):
            given = getattr(model, "kind", type(model).__name__)
            raise StudyError(
                f"joint prediction takes a fitted linear or logistic regression or the path of its model.json, not "
                f"{given}"
            )
        if not np.isfinite(model.coef_).all() or not np.isfinite(model.intercept_).all():
            raise StudyError("the model has weights that are not finite numbers; fit it again")
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why joint prediction cannot use this model: it must have public weights."""
        if isinstance(model, LinearModel) and not model.has_public_weights:
            return 'has no weights, its parties keep them: ask for scores with kind = "glm-scores"'
        return None if isinstance(model, Scorer) else "is no linear or logistic regression"

    def simulated(self, tables: Mapping[str, Table], task: Scores, stream: Stream) -> OpenedScores:
        """What the entitled party would receive about these tables."""
        parts = {party: self._parts(party, table, task) for party, table in tables.items()}
        return scores.simulate(parts, task, stream)

    def finish(self, result: OpenedScores | None) -> None:
        """Add the intercept and compute the predictions, if this participant received scores."""
        if result is None:
            self.restore({})
            return
        scores = result.scores + np.atleast_1d(self.scorer.intercept_)
        self.received(result.ids, scores, self.scorer.answers(scores))

    def _parts(self, party: str, table: Table, task: Scores) -> Parts:
        ordered, used = table.sorted_by_id(), features(self.scorer, party)
        if not used:
            return Parts(ordered.ids, np.zeros((ordered.rows, task.classes)), ordered.own_ids)
        values = np.asarray(self.scorer.partial(party, ordered.select(used)), dtype=np.float64)
        return Parts(ordered.ids, values, ordered.own_ids)


def joint_scores(
    model: Scorer | str | Path,
    people: Federation,
    *,
    to: str,
    epsilon: float | Mapping[str, float] | None = None,
    delta: float = 1e-5,
    exact: bool = False,
    gamma: int = 2**16,
    rows_at_most: int = 2**20,
) -> JointScores:
    """Scores of new people under a fitted model, as the party ``to`` receives them; see :class:`JointPrediction`."""
    question = JointPrediction(
        model, to=to, exact=exact, epsilon=epsilon, delta=delta, gamma=gamma, rows_at_most=rows_at_most
    )
    return question.fit(people).joint


def features(scorer: Scorer, party: str) -> tuple[str, ...]:
    """The columns of a party that have weights; the label has none."""
    schema = scorer.schemas_.get(party)
    known = set(scorer.feature_names_in_)
    columns = schema.columns.items() if schema else ()
    return tuple(name for name, column in columns if f"{party}.{name}{column.parts[0]}" in known)


def part_of(scorer: Scorer, party: str, gamma: int) -> Part:
    """The least and the largest whole number that a party's part of each score can be, for any row."""
    used = features(scorer, party)
    schema = scorer.schemas_[party].select(used) if used else None
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    shrinks = schema is not None and schema.clip < schema.max_norm  # rows that are too long are scaled down
    ends: list[_Ends] = []
    for weights in np.atleast_2d(scorer.coef_).tolist():
        low = high = Fraction(0)
        for name, column in schema.columns.items() if schema else ():
            exact = [Fraction(weights[place[f"{party}.{name}{part}"]]) for part in column.parts]
            least, most = _ends(column, exact, shrinks)
            low, high = low + least, high + most
        ends.append((low, high))
    return Part(
        party, tuple(math.floor(gamma * low) for low, _ in ends), tuple(math.ceil(gamma * high) for _, high in ends)
    )


def _ends(column: Column, weights: Sequence[Fraction], shrinks: bool) -> _Ends:
    """The least and the largest that one encoded column adds to a score."""
    if isinstance(column, Category):
        reached = [*weights, *([Fraction(0)] if shrinks or column.missing == NOWHERE else [])]
        return min(reached), max(reached)
    weight, *marked = weights  # a number that may be missing has a second weight, for that case alone
    signed = isinstance(column, Number) and column.scale == "signed"
    reached = [weight, -weight if signed else Fraction(0), *marked]
    return min(reached), max(reached)


def digest(scorer: Scorer) -> str:
    """SHA-256 of the weights and of what they apply to, down to the last bit."""
    content = [
        {name: schema.digest for name, schema in scorer.schemas_.items()},
        list(scorer.feature_names_in_),
        [[float(weight).hex() for weight in row] for row in np.atleast_2d(scorer.coef_).tolist()],
        [float(value).hex() for value in np.atleast_1d(scorer.intercept_).tolist()],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_columns(scorer: Scorer, roster: Roster) -> None:
    """Raise an error unless every party with weights takes part, with the columns that the model was fitted with."""
    for party, schema in scorer.schemas_.items():
        used = features(scorer, party)
        if not used:
            continue
        if party not in roster.schemas:
            raise StudyError(f"the model has weights for columns of {party}, which takes no part in the prediction")
        given = roster.schemas[party]
        if missing := [name for name in used if name not in given.columns]:
            raise StudyError(f"the model needs the column {missing[0]} of {party}, which its schema does not have")
        if given.select(used) != schema.select(used):
            raise StudyError(f"the schema of {party} describes its columns otherwise than the model was fitted with")
