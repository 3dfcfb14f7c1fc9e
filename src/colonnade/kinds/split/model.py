"""Split classifiers and regressors: every party keeps an encoder, and a head joins what the encoders say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.kinds.split.adaptive_task import AdaptiveTask
from colonnade.kinds.split.base import SplitModel
from colonnade.kinds.split.embedding_task import EmbeddingTask
from colonnade.kinds.split.head_strategy import LearnedHead
from colonnade.kinds.split.validate_params import refuse_code
from colonnade.models.classifier_mixin import ClassifierMixin, Threshold, check_threshold
from colonnade.models.new_rows import Matrix, People, ReadingOptions
from colonnade.models.parameters import (
    NAMES_PARTIES,
    SETS_PRICE,
    STRICT,
    CheckedBy,
    Count,
    InFile,
    Label,
    Positive,
    RowsAtMost,
)
from colonnade.protocols.moments.task import ChargedMoments, Moments
from colonnade.protocols.task import Task
from colonnade.tables import Column

_InFile = InFile(Annotated[dict[str, dict[str, Any]] | None, CheckedBy(refuse_code)], None)
Encoders = Annotated[Mapping[str, Any] | None, _InFile, NAMES_PARTIES]
Head = Literal["auto", "committee", "embeddings", "published"]


@dataclass(kw_only=True, eq=False, repr=False)
class SplitClassifier(ClassifierMixin[Task, LearnedHead], SplitModel):
    """A classifier over embeddings of columns that nobody holds together.

    Each party maps its columns to an embedding by an encoder of its own, which never leaves it. The head is learned

    * by a committee, from one noisy release of second moments of all embeddings and the label (``head="committee"``):
      nobody's embedding leaves anybody;
    * by the party with the label, from embeddings with noise that the others tell it (``"embeddings"``);
    * or as it was published (``"published"``): embeddings at a noise for each release alone, encoders that learn
      without a charge. For this nothing is proven, and each party's policy must allow it.

    Args:
        label: the column to predict, a flag or a category, written ``"party.column"``.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        head: as above; ``"auto"`` takes a committee where one can be had.
        encoders: for each party a specification such as ``{"kind": "cosine", "width": 100}``, a torch module, or an
            encoder. Parties that are not named get random cosine features, and edges of images where ``shape`` is
            given; as published small networks, and where encoders are trained a linear map over features.
            A module or encoder counts as made without the table, which its party declares by passing it.
        width: of the embeddings for which no encoder names one; follows from public figures.
        solver: of a committee's head: ``"ridge"``, ``"discriminant"``, ``"logistic"``, or ``"auto"``.
        rows: how many people all parties hold; ways without a committee need it, and ``fit`` counts them.
        rows_at_most: a public limit on the number of rows, for a committee.
        training: of encoders, charged. For a committee ``"own"``: the party with the label trains its encoder alone.
            For ``"embeddings"`` ``"labels"``: labels are told once and every party trains alone; or ``"rounds"``:
            slopes of a head come back in every epoch.
        epochs: of training, or of the published algorithm.
        batches: into which all rows are split: 1 in training that is charged, else of about 256 rows.
        learning_rate: of encoders that learn over messages, and of a head beside them; 0.02, published 0.001.
        label_epsilon: tell labels through randomised response at this epsilon; without it they are told as they are.
        per_release: of the published algorithm: the epsilon of each release by itself, which bounds nothing in all.
        unprotected: the published algorithm without noise.
        rescale: of the published algorithm, its rescaling.
        adjust: of the published algorithm, its loss that pulls classes apart.
        constants: of the chosen head's algorithm, by name. Of ``"embeddings"``: ``stage``, ``first_share``, ``share``,
            ``gradient_clip``, ``margin``, ``contrast``, ``stretch``; with ``"stage": True`` centre and scale of
            embeddings are learned from a first release. Of ``"published"``: ``delta`` of one release, ``alpha``,
            ``beta``, ``confidence``, ``apart``, ``rule``.
        head_module: a torch module that becomes the head, from all embeddings to one score a class; not for a
            committee, and not in a study file.
        threshold: the second of two classes is predicted where its chance is above this.
    """

    kind = "split-classifier"
    tasks = (Moments, ChargedMoments, SubspaceIteration, EmbeddingTask, AdaptiveTask)
    many_classes = True

    label: Label = None
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    head: Head = "auto"
    encoders: Encoders = None
    width: Count | None = None
    solver: Literal["auto", "ridge", "discriminant", "logistic"] = "auto"
    rows: Count | None = None
    rows_at_most: RowsAtMost = 2**24
    training: Literal["none", "own", "labels", "rounds"] = "none"
    epochs: Count | None = None
    batches: Count | None = None
    learning_rate: Positive | None = None
    label_epsilon: Positive | None = None
    per_release: Annotated[Positive | None, SETS_PRICE] = None
    unprotected: Annotated[bool, STRICT, SETS_PRICE] = False
    rescale: Annotated[bool, STRICT] = True
    adjust: Annotated[bool, STRICT] = True
    constants: Annotated[Mapping[str, Any] | None, InFile(dict[str, Any] | None, None)] = None
    head_module: Annotated[Any, InFile(None, None)] = None
    threshold: Threshold = 0.5

    @property
    def _estimator_type(self) -> str:
        return "classifier"

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a flag or a category."""
        if declared.quantity:
            raise StudyError(
                f'label {self.label!r} is a number; use SplitRegressor (kind = "split-regressor" in a study file), or '
                "make it a flag or category [ST293]"
            )
        check_threshold(self.threshold, len(declared.classes), released=False)

    def decision_function(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores: of two classes how much the second leads, else a column for each class."""
        scores = self.scores(X, **given)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def chances(self, scores: Matrix) -> Matrix:
        """Chances of the classes, by the scores as log-odds; of a head that was fitted by squares they are rough."""
        found = np.exp(np.asarray(scores, dtype=np.float64) - np.max(scores, axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def true_of(self, X: People) -> NDArray[Any]:
        """The classes of people, where X has a table with the label column."""
        encoded = self.label_of(X)
        chosen = encoded[:, 0].astype(np.intp) if encoded.shape[1] == 1 else encoded.argmax(axis=1)
        found: NDArray[Any] = self.classes_[chosen]
        return found

    def score_of(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """The share of people whose class is predicted."""
        return float(np.mean(true == predicted))


@dataclass(kw_only=True, eq=False, repr=False)
class SplitRegressor(SplitModel):
    """A regression of a number over embeddings of columns that nobody holds together; see :class:`SplitClassifier`.

    Args:
        label: the column to predict, a number, written ``"party.column"``.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        head: ``"committee"``, ``"embeddings"``, or ``"auto"``: a committee where one can be had.
        encoders: for each party a specification, a torch module, or an encoder.
        width: of the embeddings for which no encoder names one.
        rows: how many people all parties hold; ``"embeddings"`` needs it, and ``fit`` counts them.
        rows_at_most: a public limit on the number of rows, for a committee.
    """

    kind = "split-regressor"
    tasks = (Moments, SubspaceIteration, EmbeddingTask)

    label: Label = None
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    head: Literal["auto", "committee", "embeddings"] = "auto"
    encoders: Encoders = None
    width: Count | None = None
    rows: Count | None = None
    rows_at_most: RowsAtMost = 2**24

    @property
    def _estimator_type(self) -> str:
        return "regressor"

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a number."""
        if declared.quantity is None:
            raise StudyError(
                f'label {self.label!r} is no number; use SplitClassifier (kind = "split-classifier" '
                "in a study file) [ST294]"
            )

    def answers(self, scores: Matrix) -> NDArray[Any]:
        """The label in its unit, within its bounds."""
        quantity = self.design_.quantity
        low = -1.0 if quantity.signed else 0.0
        return quantity.decode_values(np.clip(np.asarray(scores, dtype=np.float64)[:, 0], low, 1.0))

    def true_of(self, X: People) -> NDArray[Any]:
        """The labels of people in their unit, where X has a table with the label column."""
        return self.design_.quantity.decode_values(self.label_of(X)[:, 0])

    def score_of(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """The part of the variance that is explained, R^2."""
        known = np.asarray(true, dtype=np.float64)
        left, whole = np.sum((known - predicted) ** 2), np.sum((known - known.mean()) ** 2)
        return float(1 - left / whole) if whole else 0.0
