"""Scores on demand: a joint prediction that stands open for questions, as agents keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.prediction.beliefs import Belief
from colonnade.kinds.prediction.hearing import Heard
from colonnade.kinds.prediction.model import JointPrediction
from colonnade.kinds.prediction.scores.standing import StandingScores, asker, coordinator, dealer
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.standing import Answer, Asker, Opened, Places, Row, StandingQuestion, Weigh
from colonnade.tables import Table


@dataclass(frozen=True)
class ScoresOnDemand(StandingQuestion):
    """The scores of a public model: parts are added up on shares, and opened about whom all owners let through."""

    model: JointPrediction
    task: Scores

    @cached_property
    def session(self) -> StandingScores:
        """The task as sessions play it."""
        return StandingScores(self.task)

    @property
    def classes(self) -> Sequence[Any] | None:
        """The classes of the public model."""
        found: Sequence[Any] | None = getattr(self.model.scorer, "classes_", None)
        return found

    def weigh(self, table: Table) -> Weigh:
        """Weigh what is heard against what the entitled party's own columns foretell."""
        foreseen = self.model.foreseen(table, self.task)

        def weigh(answer: Answer, places: Places) -> list[Row]:
            kept = ~answer.verdict.refused
            opened = answer.opened
            told = replace(opened, ids=(), others=opened.others[kept], own=opened.own[kept])
            at = places[kept]
            beliefs = {name: Belief(one.mean[at], one.variance[at], one.doubt) for name, one in foreseen.items()}
            names = (name for name, one in zip(opened.ids, kept.tolist(), strict=True) if one)
            return _rows(tuple(names), *self.model.weighed(Heard(told, beliefs)))

        return weigh

    def asker(self, me: Owner, table: Table, asked: Asker) -> None:
        """The entitled party's program."""
        asker(me, self.model.parts(me.name, table), self.session, asked)

    def dealer(self, me: Owner, table: Table, opened: Opened) -> None:
        """Another owner's program."""
        dealer(me, self.model.parts(me.name, table), self.session, opened)

    def coordinator(self, me: Coordinator) -> None:
        """The coordinator's program."""
        coordinator(me, self.session)


def scores_on_demand(path: Path, model: JointPrediction, task: Any) -> ScoresOnDemand:
    """The questions of a study at this path, if they can be asked one by one; otherwise an error."""
    if not task.one_by_one:
        raise StudyError(
            f"{path}: scores on demand are added up on shares, and levels are not: set "
            'answers = "noise" in [task], or run it once as a study of its own [ST547]'
        )
    return ScoresOnDemand(model, task)


def _rows(ids: tuple[str, ...], scores: NDArray[np.float64], predictions: NDArray[Any], beside: Any) -> list[Row]:
    """What a caller is told of each person."""
    columns: dict[str, list[Any]] = {"id": list(ids), "prediction": predictions.tolist(), "scores": scores.tolist()}
    if beside.probabilities is not None:
        columns["probabilities"] = beside.probabilities.tolist()
    if beside.deviations is not None and beside.deviations.any():
        columns["deviations"] = beside.deviations.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
