"""Scores of new people: what the one party that receives them holds, and the same as plain values.

Fitted models with public linear weights, as questions about new people see them: parts, columns, digest.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, Self, Unpack, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypeVar

from colonnade.drawing.canvas import Picture
from colonnade.errors import StudyError
from colonnade.models.base import Estimator, ReadingOptions, Result, RunTask
from colonnade.models.pictures import scores_picture
from colonnade.models.planner import InFile, Roster, not_shorter_than
from colonnade.models.serialization import plain_value, read_array, read_texts
from colonnade.privacy import Budget, Statement, Trust, parse_budgets
from colonnade.privacy.observers import find_unbudgeted
from colonnade.tables import Schema
from colonnade.tables.bins import real_array
from colonnade.tables.cell_parsing import pa

FILE_OF_MODEL = InFile(Annotated[str, not_shorter_than(1)])
"""In a study file the public model is given by its path."""
ScoredModel = TypeVar("ScoredModel", default=Any)
"""The fitted models that a question can be about."""
_LEAST = 1e-9  # a chance of 0 or 1 has no odds


@dataclass(frozen=True, kw_only=True)
class ScoreContext:
    """What stands beside the answers; each is ``None`` where it is not known, and in files of earlier releases."""

    probabilities: NDArray[np.float64] | None = None
    own_scores: NDArray[np.float64] | None = None
    own_predictions: NDArray[Any] | None = None
    own_probabilities: NDArray[np.float64] | None = None
    deviations: NDArray[np.float64] | None = None
    classes: list[Any] | None = None

    def plain_values(self) -> dict[str, Any]:
        """What is known, as plain values."""
        return {name: plain_value(value) for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_plain(cls, learned: Mapping[str, Any], shape: tuple[int, ...]) -> ScoreContext:
        """The same from plain values; an error unless they belong to scores of this shape."""
        found: dict[str, Any] = {
            each.name: (_predicted if each.name in ("own_predictions", "classes") else read_array)(learned[each.name])
            for each in fields(ScoreContext)
            if each.name in learned
        }
        if "classes" in found:
            found["classes"] = found["classes"].tolist()
        chances = (shape[0], len(found.get("classes", ())))
        wanted = {"own_scores": shape, "deviations": shape, "own_predictions": shape[:1]}
        wanted |= dict.fromkeys(("probabilities", "own_probabilities"), chances)
        if any(found[name].shape != size for name, size in wanted.items() if name in found):
            raise ValueError("the scores and what stands beside them do not belong together [VA033]")
        return cls(**found)


@dataclass(frozen=True)
class JointScores(ScoreContext):
    """What the entitled party received: for each id a row of scores and a prediction; and what they cost.

    Beside them stand, where they are known, the deviations of the scores, the chance of each of ``classes``, and what
    the party's own columns alone would have told.
    """

    ids: list[str]
    scores: NDArray[np.float64]
    predictions: NDArray[Any]
    privacy_: Statement

    def with_own(self, own: Mapping[str, float] | ArrayLike) -> JointScores:
        """These answers beside a model of the receiver's own, which may be any model of its own columns.

        What the others told multiplies the odds of that model by what it multiplied those by own columns with; a
        number is moved by what it moved. Nobody is asked again, so it costs nothing.

        Args:
            own: the chance of the second of two classes, a row of chances for each person, or numbers where numbers
                are predicted; in the order of ``ids``, or by id.
        """
        given = _of_everybody(own, self.ids)
        if self.probabilities is None and self.classes is None and self.own_predictions is not None:
            return self._moved(given)
        if self.probabilities is None or self.own_probabilities is None or self.classes is None:
            raise StudyError(
                "these scores do not say what own columns alone tell, so no other model can stand there [ST161]"
            )
        if given.ndim == 1 and len(self.classes) == 2:
            given = np.stack([1 - given, given], axis=1)
        if given.shape != self.probabilities.shape or not ((given >= 0) & (given <= 1)).all():
            raise StudyError(
                "a model of own columns gives each person the chance of each class, between 0 and 1 [ST162]"
            )
        mine, told, before = (
            np.log(np.clip(each, _LEAST, 1.0)) for each in (given, self.probabilities, self.own_probabilities)
        )
        raised = mine + told - before
        chances = np.exp(raised - raised.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        odds = [each[:, 1:] - each[:, :1] if len(self.classes) == 2 else each for each in (raised, mine)]
        named = np.asarray(self.classes)
        return replace(
            self,
            scores=odds[0],
            own_scores=odds[1],
            predictions=named[chances.argmax(axis=1)],
            own_predictions=named[given.argmax(axis=1)],
            probabilities=chances,
            own_probabilities=given,
            deviations=None,
        )

    def plot(self) -> Picture:
        """A histogram of chances, or of predicted numbers, beside those by own columns alone."""
        if self.probabilities is None:
            return scores_picture(self.predictions, self.own_predictions, "predicted number")
        classes = self.classes or []
        chances = [each for each in (self.probabilities, self.own_probabilities) if each is not None]
        if len(classes) == 2:
            told, *own, what = *(each[:, 1] for each in chances), f"chance of {classes[1]}"
        else:
            told, *own, what = *(each.max(axis=1) for each in chances), "chance of the most likely class"
        return scores_picture(told, own[0] if own else None, what)

    def _moved(self, given: NDArray[np.float64]) -> JointScores:
        """Numbers of another model, moved by what the others told."""
        if given.shape != (len(self.ids),):
            raise StudyError("a model of own columns gives each person one number here [ST163]")
        told = self.predictions - self.own_predictions
        both = {"predictions": given + told, "own_predictions": given}
        return replace(self, **both, scores=(given + told)[:, None], own_scores=given[:, None])

    def table(self, threshold: float | str | None = None) -> Any:
        """Ids, predictions, and what stands beside them, as an Arrow table.

        With a threshold, the second of two classes is predicted where its chance is above it.
        """
        columns: dict[str, Any] = {"id": self.ids, "prediction": self.predictions}
        if threshold is not None:
            columns["prediction"] = _decided(self, threshold)
        columns |= by_class("probability", self.probabilities, self.classes)
        columns |= by_class("score", self.scores, self.classes) | by_class("deviation", self.deviations, self.classes)
        own = {} if self.own_predictions is None else {"own_prediction": self.own_predictions}
        columns |= own | by_class("own_probability", self.own_probabilities, self.classes)
        return pa.table(columns | by_class("own_score", self.own_scores, self.classes))


class ScoreQuestion(Estimator[RunTask, Result], Generic[RunTask, Result, ScoredModel]):
    """A question about new people; a party that is not entitled to the answers ends without any."""

    model: Any
    exact: bool = False
    _read: tuple[object, ScoredModel] | None = None
    ids_: list[str] | None
    scores_: NDArray[np.float64] | None
    predictions_: NDArray[Any] | None
    beside_: ScoreContext

    @property
    @abstractmethod
    def recipient(self) -> str:
        """The party that alone receives the answers."""

    @abstractmethod
    def check_model(self, model: Any) -> ScoredModel:
        """This model, if the question can be about it; otherwise an error that says why not."""

    @property
    def scorer(self) -> ScoredModel:
        """The model whose scores are asked for, read from its file at the first use."""
        if self._read is None or self._read[0] is not self.model:
            found = Estimator.load(self.model) if isinstance(self.model, str | Path) else self.model
            self._read = self.model, self.check_model(found)
        return self._read[1]

    def store_answers(
        self,
        ids: Sequence[str],
        scores: NDArray[np.float64],
        predictions: NDArray[Any],
        beside: ScoreContext | None = None,
    ) -> None:
        """Store the answers and what stands beside them; only the entitled party has any."""
        self.ids_, self.scores_, self.predictions_ = list(ids), scores, np.asarray(predictions)
        self.beside_ = beside or ScoreContext()

    @property
    def joint(self) -> JointScores:
        """The answers that this party received; an error if it received none."""
        if self.ids_ is None or self.scores_ is None or self.predictions_ is None:
            raise StudyError("the scores are with the party that received them, and this is not its copy [ST164]")
        return JointScores(self.ids_, self.scores_, self.predictions_, self.privacy_, **vars(self.beside_))

    def predictions(self, X: Any = None, threshold: float | str | None = None, **given: Unpack[ReadingOptions]) -> Any:
        """The answers as an Arrow table, see :meth:`JointScores.table`; nobody's columns are needed."""
        if X is not None:
            raise StudyError("these are scores that were received: nothing is computed from tables [ST165]")
        return self.joint.table(threshold)

    def picture(self) -> Picture:
        """How the received answers are spread over people."""
        return self.joint.plot()

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        return "scores of new people, " + ("held here" if self.ids_ is not None else "held by their receiver alone")

    def learned_values(self) -> dict[str, Any]:
        """Ids, scores and predictions as plain values; empty if this party received none."""
        if self.ids_ is None or self.scores_ is None or self.predictions_ is None:
            return {}
        answers = {"ids": self.ids_, "scores": self.scores_.tolist(), "predictions": self.predictions_.tolist()}
        return answers | self.beside_.plain_values()

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""
        self.ids_ = self.scores_ = self.predictions_ = None
        self.beside_ = ScoreContext()
        if learned:
            ids, scores = read_texts(learned["ids"]), read_array(learned["scores"])
            found = _predicted(learned["predictions"])
            if scores.ndim != 2 or not (len(ids),) == scores.shape[:1] == found.shape:
                raise ValueError("ids, scores and predictions do not belong together [VA034]")
            self.store_answers(ids, scores, found, ScoreContext.from_plain(learned, scores.shape))

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        if self.recipient not in self.schemas_:
            raise ValueError("who receives the scores takes no part [VA035]")

    def summary(self) -> list[str]:
        """How many answers there are and who has them; no answer is shown."""
        self._check_fitted()
        how = "exact" if self.exact else "noisy"
        if self.ids_ is None:
            return [f"{self.recipient} was told the {how} scores; they are in its model.json and nowhere else"]
        return [f"{how} scores of {len(self.ids_):,} people, told to {self.recipient} alone: see model.json"]

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """These parameters for a file: the path of the model, or ``None`` where it was a model in memory."""
        path = str(given["model"]) if isinstance(given["model"], str | Path) else None
        return super().plain_parameters(given) | {"model": path}

    def __sklearn_clone__(self) -> Self:
        """A copy that is not fitted; both questions share the same fitted model."""
        return type(self)(**self.get_params())


def _predicted(values: Any) -> NDArray[Any]:
    """Predictions from plain values: classes, all texts or all flags, or else finite numbers."""
    if not any(all(isinstance(each, kind) for each in values) for kind in (str, bool)):
        read_array(values)  # an error unless they are finite
    return np.array(values)


def by_class(name: str, values: NDArray[np.float64] | None, classes: Sequence[Any] | None) -> dict[str, Any]:
    """Values of shape (people, columns) as one column of this name, as one for each class, or as none."""
    if values is None:
        return {}
    if values.shape[1] == 1:
        return {name: values[:, 0]}
    called = classes if classes is not None and len(classes) == values.shape[1] else range(1, values.shape[1] + 1)
    said = [str(one).lower() if isinstance(one, bool) else str(one) for one in called]
    return {f"{name}_{one}": values[:, place] for place, one in enumerate(said)}


def _of_everybody(own: Mapping[str, float] | ArrayLike, ids: Sequence[str]) -> NDArray[np.float64]:
    """What a model of own columns says, in the order of these ids; an error unless it speaks of everybody."""
    if isinstance(own, Mapping):
        lacking = sum(each not in own for each in ids)
        if lacking:
            raise StudyError(
                f"the model of own columns says nothing of {lacking:,} of {len(ids):,} people with scores [ST166]"
            )
        own = [own[each] for each in ids]
    given = real_array(own)
    if given.shape[:1] != (len(ids),) or not np.isfinite(given).all():
        raise StudyError(
            f"a model of own columns gives finite numbers for each of the {len(ids):,} people with scores [ST167]"
        )
    return given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given


def _decided(joint: JointScores, threshold: float | str) -> list[Any]:
    chances, classes = joint.probabilities, joint.classes
    if chances is None or classes is None or len(classes) != 2 or not isinstance(threshold, int | float):
        raise StudyError("a threshold is a number, for chances of two classes, and these scores have none [ST168]")
    return [classes[chance > threshold] for chance in chances[:, 1]]


def check_fitted(model: Estimator) -> None:
    """Refuse a question about a model that is not fitted."""
    if not model.fitted:
        raise StudyError(
            f"this {type(model).__name__} is not fitted yet: fit it first, or give the path of a model.json [ST169]"
        )


def budgets_against(to: str, epsilon: float | Mapping[str, float], delta: float, trust: Trust) -> tuple[Budget, ...]:
    """The budgets of a question; one of them must be for the party that receives the answers."""
    budgets = parse_budgets(epsilon, delta, trust)
    if find_unbudgeted((to,), budgets, trust):
        raise StudyError(f"no budget speaks of {to}, which alone receives the scores: give it an epsilon [ST170]")
    return budgets


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


def scored_features(scorer: Scorer, party: str) -> tuple[str, ...]:
    """The columns of a party that have weights; the label has none."""
    schema = scorer.schemas_.get(party)
    known = set(scorer.feature_names_in_)
    columns = schema.columns.items() if schema else ()
    return tuple(name for name, column in columns if f"{party}.{name}{column.parts[0]}" in known)


def scorer_digest(scorer: Scorer) -> str:
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
        used = scored_features(scorer, party)
        if not used:
            continue
        if (given := roster.schemas.get(party)) is None:
            raise StudyError(
                f"the model has weights for columns of {party}, which takes no part in the prediction [ST206]"
            )
        if missing := [name for name in used if name not in given.columns]:
            raise StudyError(
                f"the model needs the column {missing[0]} of {party}, which its schema does not have [ST207]"
            )
        if given.select(used) != schema.select(used):
            raise StudyError(
                f"the schema of {party} describes its columns otherwise than the model was fitted with [ST208]"
            )
