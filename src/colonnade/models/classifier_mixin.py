"""What fitted models that predict a label share: people as they are passed, predictions, thresholds, assessments."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.assessment import Assessment, assess_chances
from colonnade.models.base import (
    Estimator,
    MatchedPeople,
    Matrix,
    People,
    ReadingOptions,
    Result,
    RunTask,
    gather_people,
    labels_of,
)
from colonnade.models.design import LabelDesign, without_label
from colonnade.models.planner import CheckedBy
from colonnade.models.score_result import by_class
from colonnade.tables.cell_parsing import itemise, pa


def _in_a_file(threshold: object) -> None:
    try:
        check_threshold(threshold)
    except StudyError as error:
        raise ValueError(str(error).removeprefix("threshold ")) from None


Threshold = Annotated[float | Literal["balanced"], CheckedBy(_in_a_file)]
NO_SHARE = (
    'threshold="balanced" needs the share of each class, which this model does not release: give the '
    "share as a number [ST171]"
)
_RAREST = 1e-3  # no class counts as rarer than this, whatever noise made of its share


class PredictionMixin(Estimator[RunTask, Result]):
    """A model that predicts one party's column from all others."""

    @property
    @abstractmethod
    def label_(self) -> str | None:
        """The label that the model was fitted with."""

    @property
    @abstractmethod
    def design_(self) -> LabelDesign:
        """The columns that the model was fitted with, and who holds the label."""

    @abstractmethod
    def scores(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The scores, of shape (rows, classes)."""

    @abstractmethod
    def answers(self, scores: Matrix) -> NDArray[Any]:
        """What scores of shape (rows, classes) predict."""

    def true_of(self, X: People) -> NDArray[Any]:
        """The labels of people, where X has a table with the label column: classes, or numbers in their unit."""
        encoded, declared = self.label_of(X), self.design_.declared
        if declared.quantity:
            return declared.quantity.decode_values(encoded[:, 0])
        chosen = encoded[:, 0].astype(np.intp) if encoded.shape[1] == 1 else encoded.argmax(axis=1)
        return np.asarray(np.array(declared.classes)[chosen])

    def predict(self, X: People, **given: Unpack[ReadingOptions]) -> NDArray[Any]:
        """Predictions for people of whom the caller has all columns; the label's column is not needed.

        X is raw: a federation, a mapping from party to table, or one table with all parties' columns, named
        ``party.column`` or as only one party names them. The rows of a mapping are matched by the column ``id`` (a
        name, or one for each party) in the order of the first table; ``same_order=True`` says instead that the same row
        is the same person in every table. A federation's answers come in the order of its ids. With ``encoded=True`` X
        is a matrix that is encoded already, with the columns of ``feature_names_in_``.
        """
        return self.answers(self.scores(X, **given))

    def predictions(
        self, X: People = None, threshold: float | str | None = None, **given: Unpack[ReadingOptions]
    ) -> Any:
        """Who is predicted what, as an Arrow table: a column of ids, predictions and, of classes, their chances.

        The column of ids is named as ``id`` says, and left out where nothing says who the rows are.
        """
        self._check_fitted()
        people = self.people(X, **given)
        called = given.get("id")
        columns = {} if people.ids is None else {called if isinstance(called, str) else "id": people.ids}
        return pa.table(columns | self.columns_of(self.scores(people), threshold))

    def people(self, X: People, *, labelled: bool = False, **given: Unpack[ReadingOptions]) -> MatchedPeople:
        """The tables that a prediction needs, with the same people in each row; ``labelled`` ones have the label."""
        self._check_fitted()
        found = {party: self._needed(party, labelled) for party in self.schemas_}
        wanted = {party: schema for party, schema in found.items() if schema is not None}
        return gather_people(X, wanted, self.schemas_, "a prediction", **given)

    def compare_labels(
        self, X: People, y: NDArray[Any] | None, **given: Unpack[ReadingOptions]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The true labels and the predictions of people; ``y`` only where the label is not in X."""
        if y is not None:
            true, predicted = np.asarray(y), self.predict(X, **given)
        elif given.get("encoded"):
            raise DataError("an encoded matrix has no label: pass y [DA079]")
        else:
            people = self.people(X, labelled=True, **given)
            true, predicted = self.true_of(people), self.predict(people)
        if true.shape != predicted.shape:
            raise DataError(f"there are {len(true) if true.ndim else 0} labels for {len(predicted)} people [DA080]")
        return true, predicted

    def label_of(self, X: People) -> Matrix:
        """The encoded label of people, where X has a table with the label column."""
        self._check_fitted()
        return labels_of(X, self.schemas_, self.label_)

    def _needed(self, party: str, labelled: bool) -> Any:
        return self.schemas_[party] if labelled else without_label(self.schemas_, self.label_, party)

    def columns_of(self, scores: Matrix, threshold: float | str | None = None) -> dict[str, Any]:
        """Columns of what scores predict, and of the chances of classes."""
        if threshold is not None:
            raise StudyError("a threshold is for classes, and this model predicts numbers [ST172]")
        return {"prediction": self.answers(scores)}


class ClassifierMixin(PredictionMixin[RunTask, Result]):
    """A classifier: a threshold turns chances into classes, and chances can be assessed where labels are known.

    Of two classes the second is predicted where its chance is above the threshold; ``"balanced"`` takes the released
    share of that class, as if both classes counted the same. Of more classes the likeliest is predicted, or with
    ``"balanced"`` the one whose chance is largest compared with its share.
    """

    later: ClassVar = frozenset({"threshold"})
    threshold: float | str
    shares_: Matrix | None = None
    """The released share of each class, where the fit released one."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of their chances."""
        if not hasattr(self, "schemas_"):
            raise AttributeError("classes_")
        return np.array(self.design_.declared.classes)

    @property
    def threshold_(self) -> float:
        """The chance of the second of two classes above which it is predicted."""
        self._check_fitted()
        return self.limit()

    def decision_function(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores: one for each person, such as the log-odds of the second class, or a column for each class."""
        scores = self.scores(X, **given)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @abstractmethod
    def chances(self, scores: Matrix) -> Matrix:
        """The chance of each class, (rows, classes), by scores as :meth:`scores` gives them."""

    def predict(self, X: People, threshold: float | str | None = None, **given: Unpack[ReadingOptions]) -> NDArray[Any]:
        """The predicted classes, by the threshold of the fit or by another one; for X see :class:`PredictionMixin`."""
        return self.answers(self.scores(X, **given), threshold)

    def predict_proba(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The chance of each class."""
        return self.chances(self.scores(X, **given))

    def answers(self, scores: Matrix, threshold: float | str | None = None) -> NDArray[Any]:
        """The class that each row of scores predicts."""
        scores = np.asarray(scores, dtype=np.float64)
        wanted = self.parameters_.get("threshold", 0.5) if threshold is None else threshold
        if len(self.classes_) == 2:
            chosen = (self.chances(scores)[:, 1] > self.limit(wanted)).astype(np.intp)
        else:
            check_threshold(wanted, len(self.classes_))
            compared = self.chances(scores) / self._shares() if wanted == "balanced" else scores
            chosen = compared.argmax(axis=1)
        answers: NDArray[Any] = self.classes_[chosen]
        return answers

    def assess(self, X: People, y: Any = None, *, of: Any = None, **given: Unpack[ReadingOptions]) -> Assessment:
        """How good the chances are for people whose labels the caller has: ROC, AUC, log-loss, calibration.

        ``y`` only where the label is not in X. ``of`` is the class that is meant, by default the second of two. The
        figures are exact figures about these people: they are for whoever holds the labels.
        """
        self._check_fitted()
        if not hasattr(self, "classes_"):
            raise StudyError("only chances of classes are assessed, and this model predicts numbers: use score [ST173]")
        if y is None and given.get("encoded"):
            raise DataError("an encoded matrix has no label: pass y [DA081]")
        if y is None:
            people = self.people(X, labelled=True, **given)
            return self.assess_chances(self.true_of(people), self.predict_proba(people), of)
        return self.assess_chances(np.asarray(y), self.predict_proba(X, **given), of)

    def assess_chances(self, true: NDArray[Any], chances: Matrix, of: Any = None) -> Assessment:
        """How good these chances are for people with these labels."""
        classes = self.classes_.tolist()
        named = [str(each) for each in classes]
        if of is None and len(classes) > 2:
            raise DataError(f"there are {len(classes)} classes, so say which one is meant: {itemise(named)} [DA082]")
        if of is not None and str(of) not in named:
            raise DataError(f"the class that is meant must be one of {itemise(named)} [DA083]")
        place = 1 if of is None else named.index(str(of))
        return assess_chances(true == classes[place], chances[:, place])

    def columns_of(self, scores: Matrix, threshold: float | str | None = None) -> dict[str, Any]:
        """Columns of what scores predict, and of the chances of classes."""
        if not hasattr(self, "classes_"):
            return super().columns_of(scores, threshold)
        named = by_class("probability", self.chances(scores), self.classes_.tolist())
        return {"prediction": self.answers(scores, threshold)} | named

    def limit(self, threshold: float | str | None = None) -> float:
        """The chance of the second of two classes that a threshold asks for; without one, that of the fit."""
        wanted = self.parameters_.get("threshold", 0.5) if threshold is None else threshold
        check_threshold(wanted)
        return float(self._shares()[1] if wanted == "balanced" else wanted)

    def _shares(self) -> Matrix:
        if self.shares_ is None:
            raise StudyError(NO_SHARE)
        return self.shares_


def check_threshold(threshold: object, classes: int = 2, *, released: bool = True) -> None:
    """Raise an error unless this is a threshold for so many classes; ``released`` says whether their shares are."""
    if threshold == "balanced":
        if not released:
            raise StudyError(NO_SHARE)
    elif isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
        raise StudyError(f'threshold must lie between 0 and 1, or be "balanced", not {threshold!r} [ST174]')
    elif classes > 2 and threshold != 0.5:
        raise StudyError(f'a threshold is for two classes; with {classes} it can be "balanced" [ST175]')


def shares_of(means: Matrix) -> Matrix:
    """The share of each class from noisy means of the label: of two classes one mean, else one for each class."""
    both = np.array([1 - means[0], means[0]]) if len(means) == 1 else np.asarray(means)
    found = np.clip(both, _RAREST, 1 - _RAREST)
    return np.asarray(found / found.sum())
