"""A fitted generalised linear model: weights that were released, or weights that the parties keep.

Kept weights are one linear model where all are in one process, and otherwise a private file of each party.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.drawing.canvas import Picture
from colonnade.errors import StudyError
from colonnade.kinds.glm import planning as glm_plan
from colonnade.kinds.glm.losses import Family, FamilyOptions, Vector, family_for
from colonnade.kinds.glm.planning import INTERCEPT
from colonnade.kinds.glm.preflight import Guarantees
from colonnade.kinds.glm.programs import ExchangeOutcome
from colonnade.kinds.glm.sides import KeptWeights, unblur_scores
from colonnade.kinds.glm.task import Exchange
from colonnade.models import assessment as glm_metrics, serialization
from colonnade.models.assessment import Assessment
from colonnade.models.base import Matrix, People, ReadingOptions, table_of
from colonnade.models.classifier_mixin import ClassifierMixin
from colonnade.models.design import LabelDesign
from colonnade.models.estimates import ErrorBars
from colonnade.models.linear_model import ENCODED, SCORE, UNIT, LinearModel
from colonnade.models.onnx_export import OnnxGraph, add_means
from colonnade.models.pictures import noise_picture
from colonnade.models.planner import one_of
from colonnade.models.serialization import (
    read_array,
    read_count,
    read_epsilons,
    read_facts,
    read_size,
    read_text,
    read_texts,
)
from colonnade.tables.table import ColumnCentring

KEPT_FORMAT = "colonnade kept weights 1"


def unit_of(family: Family, design: LabelDesign) -> tuple[float, float]:
    """A factor and an offset: the linear predictor is factor times the family's own score, plus offset.

    For log-odds and margins both are the same number. The score of a logarithm of a mean is 0 in the middle of its
    region. For numbers the predictor is in the label's unit (after its transform).
    """
    if family.name == "linear":
        start, end = design.quantity.ends
        return (end - start) / 2, (start + end) / 2
    return 1.0, family.centre


def combine_weights(kept: Mapping[str, KeptWeights], family: Family, design: LabelDesign) -> tuple[Matrix, Matrix]:
    """All parties' weights as one row of weights of encoded columns, and an intercept."""
    factors = {**kept[design.owner].factors, design.owner: 1.0}
    slopes = [factors[party] * kept[party].weights[:-1] for party in design.schemas]
    constant = sum(factors[party] * INTERCEPT * float(kept[party].weights[-1]) for party in design.schemas)
    weights = np.concatenate(slopes)
    unit, zero = unit_of(family, design)
    offset = zero + unit * (constant - float(weights @ design.middles))
    return unit * weights[None, :], np.array([offset])


def release_bars(
    released: Mapping[str, KeptWeights], task: Exchange, design: LabelDesign
) -> tuple[ErrorBars, ErrorBars]:
    """How far the noise of the release moved weights and intercept; noise within messages is not in it.

    Other parties' weights are taken times their released factors. The weights of the party with the label were
    stretched after their noise was drawn; how far only that party knows, so the most that is possible is taken.
    """
    stretch = unblur_scores(task.family, math.inf)[0] if task.method == "alternating" else 1.0
    factors = {**released[design.owner].factors, design.owner: stretch}
    noise = {party: abs(factors[party]) * task.weights_deviation(party) for party in design.schemas}
    columns = [np.full(len(released[party].weights) - 1, noise[party]) for party in design.schemas]
    slopes, (weights, offset) = np.concatenate(columns), combine_weights(released, task.family, design)
    unit = abs(unit_of(task.family, design)[0])
    moved = math.hypot(INTERCEPT * math.hypot(*noise.values()), float(np.linalg.norm(slopes * design.middles)))
    return ErrorBars.normal(weights, unit * slopes[None, :]), ErrorBars.normal(offset, np.array([unit * moved]))


def write_kept(path: Path, kept: KeptWeights, columns: tuple[str, ...], model: str) -> Path:
    """Write one party's weights to a file that only its user can read; another party's file is not replaced."""
    if path.exists() and _read_plain(path).get("party") != kept.party:
        raise StudyError(
            f"{path} does not hold weights of {kept.party}: choose another path, or delete it yourself [ST112]"
        )
    serialization.replace_private(path, pack_kept(kept, columns, model))
    return path


def pack_kept(kept: KeptWeights, columns: tuple[str, ...], model: str) -> bytes:
    """One party's weights as the content of a file."""
    plain = {
        "format": KEPT_FORMAT,
        "party": kept.party,
        "model": model,
        "columns": list(columns),
        "weights": kept.weights.tolist(),
        "factors": dict(kept.factors),
        "expected": {party: weights.tolist() for party, weights in kept.expected.items()},
    } | ({"spreads": dict(kept.spreads)} if kept.spreads else {})
    return (json.dumps(plain, indent=1) + "\n").encode()


def read_kept(path: Path, columns: Mapping[str, tuple[str, ...]], active: str, model: str) -> KeptWeights:
    """The weights in a file; an error if they do not belong to the model with this digest."""
    found = _read_plain(path)
    if found.get("format") != KEPT_FORMAT:
        raise StudyError(f"{path} does not hold kept weights; save_kept writes such a file [ST113]")
    if found.get("model") != model:
        raise StudyError(
            f"{path} holds weights of another model or another fit of it; use the file of this one [ST114]"
        )
    try:
        party = str(found["party"])
        weights = np.array(found["weights"], dtype=np.float64)
        factors = {str(name): float(value) for name, value in found["factors"].items()}
        expected = {str(name): np.array(each, dtype=np.float64) for name, each in found["expected"].items()}
        spreads = {str(name): float(value) for name, value in found.get("spreads", {}).items()}
        fits = tuple(found["columns"]) == columns[party] and weights.shape == (len(columns[party]) + 1,)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StudyError(f"{path} is damaged: {type(error).__name__} while reading it [ST115]") from None
    if not fits or any(each.shape != weights.shape for each in expected.values()):
        raise StudyError(f"{path} is damaged: its weights do not belong to the columns of {party} [ST116]")
    if not np.isfinite(
        [*weights, *factors.values(), *spreads.values(), *(weight for each in expected.values() for weight in each)]
    ).all():
        raise StudyError(f"{path} is damaged: a weight in it is not a finite number [ST117]")
    others = set(columns) - {active} if party == active else set()
    if set(factors) != others or set(expected) != others:
        due = "one factor for each other party" if party == active else f"no factors, which only {active} has"
        raise StudyError(f"{path} is damaged: it must have {due} [ST118]")
    if not set(spreads) <= others or any(spread < 0 for spread in spreads.values()):
        raise StudyError(f"{path} is damaged: its spreads are not those of the other parties [ST119]")
    return KeptWeights(party, weights, factors, expected, spreads)


def _read_plain(path: Path) -> dict[str, Any]:
    try:
        content = reading.read_json(path)
    except reading.MalformedFile:
        return {}
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST120]") from None
    return content if isinstance(content, dict) else {}


_WITHIN = "where a score counts as {low!r} at least and {high!r} at most"
HOW_TO_SCORE = {
    "logistic": "the second class has chance 1 / (1 + exp(-score))",
    "svm": "the second class is predicted where the score is positive",
    "linear": f"{UNIT}, cut off at its bounds",
    "poisson": f"the expected count is exp(score), {_WITHIN}",
    "gamma": f"the expected amount is exp(score), {_WITHIN}",
}


CLASSES = ("logistic", "svm")


class FittedGLM(ClassifierMixin[Exchange, ExchangeOutcome], LinearModel[Exchange, ExchangeOutcome]):
    """A fitted generalised linear model: its weights, predictions and promises."""

    keeps = "weights"
    saved: ClassVar = {
        "feature_names_in": read_texts,
        "method": read_text,
        "noise_std": read_size,
        "plan": read_facts,
        "protection": read_epsilons,
    }
    family: str
    family_options: Mapping[str, Any] | None
    noise_std_: float
    plan_: dict[str, Any]
    kept_: dict[str, KeptWeights]
    _released: tuple[Matrix, Matrix] | None
    _view: Assessment | None = None

    # --- the weights

    @property
    def coef_(self) -> Matrix:
        """The released weights of the encoded columns, one row."""
        return self._public()[0]

    @coef_.setter
    def coef_(self, value: Matrix) -> None:
        self._released = (value, self._public()[1])

    @property
    def intercept_(self) -> Matrix:
        """The released intercept."""
        return self._public()[1]

    @intercept_.setter
    def intercept_(self, value: Matrix) -> None:
        self._released = (self._public()[0], value)

    @property
    def has_public_weights(self) -> bool:
        """Whether the weights were released."""
        return self._released is not None

    def _public(self) -> tuple[Matrix, Matrix]:
        self._check_fitted()
        if self._released is None:
            raise StudyError(
                "the parties kept their weights, so there are none to read: fit with release=True to publish them, or "
                "ask for scores by joint_scores [ST106]"
            )
        return self._released

    def linear(self) -> tuple[Matrix, Matrix]:
        """The released weights, or else those that the parties kept; an error if some are not in this process."""
        if self._released is not None:
            return self._released
        if missing := [party for party in self.schemas_ if party not in self.kept_]:
            raise StudyError(
                f"the weights of {', '.join(missing)} are kept there and not in this process: ask for scores by "
                "joint_scores, or fit with release=True [ST107]"
            )
        return combine_weights(self.kept_, self.family_, self.design_)

    def kept_rows(self, party: str, source: Any) -> tuple[Matrix, Vector]:
        """One party's centred rows with the constant, and the weights that it kept for them."""
        self._check_fitted()
        if party not in self.kept_:
            raise StudyError(
                f"the weights that {party} kept are not in this process: load_kept reads them from its own file [ST108]"
            )
        schema = self._feature_schema(party)
        rows = np.zeros((len(source), 0))
        if schema is not None:
            rows = ColumnCentring(schema).centre_features(table_of(source, schema)).matrix()
        return np.hstack([rows, np.full((len(rows), 1), glm_plan.INTERCEPT)]), self.kept_[party].weights

    def save_kept(self, path: str | Path, party: str | None = None) -> Path:
        """Write one party's own weights to a file that only this user can read; ``party`` says whose."""
        self._check_fitted()
        if party is None and len(self.kept_) == 1:
            party = next(iter(self.kept_))
        if party not in self.kept_:
            held = ", ".join(self.kept_) or "nobody"
            raise StudyError(f"name the party whose weights to write, one of those in this process: {held} [ST109]")
        return write_kept(Path(path), self.kept_[party], self._columns(party), self.digest)

    def load_kept(self, path: str | Path) -> str:
        """Read weights that :meth:`save_kept` wrote, and return whose they are."""
        self._check_fitted()
        columns = {party: self._columns(party) for party in self.schemas_}
        kept = read_kept(Path(path), columns, self.design_.owner, self.digest)
        self.kept_[kept.party] = kept
        return kept.party

    def kept_content(self) -> bytes:
        """This party's own weights as the content of a file; a party of a study has those of nobody else."""
        (own,) = self.kept_.values()
        return pack_kept(own, self._columns(own.party), self.digest)

    def own_view(self) -> Assessment | None:
        """What the party with the label sees of its chances for the fit's people; only in the process that fitted."""
        self._check_fitted()
        return self._view

    def _columns(self, party: str) -> tuple[str, ...]:
        return self.design_.centred_columns(party).feature_names

    @property
    def digest(self) -> str:
        """SHA-256 of everything public about the fit; files of kept weights hold it too."""
        schemas = {name: schema.digest for name, schema in self.schemas_.items()}
        weights = None if self._released is None else [part.tolist() for part in self._released]
        public = [schemas, self.label_, self.family_.plain(), self.plan_, weights]
        return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()

    # --- what the fit promises

    @property
    def guarantees_(self) -> Guarantees:
        """Every promise, for each thing that can be seen: messages, kept weights, channels, releases, coalitions."""
        self._check_fitted()
        return Guarantees.of(self.privacy_)

    # --- predictions

    def family_of(self, design: LabelDesign) -> Family:
        """The loss of the next fit, with its bounds."""
        return _family(self.family, self.family_options, design)

    @property
    def family_(self) -> Family:
        """The loss of the fitted model."""
        self._check_fitted()
        return _family(self.parameters_["family"], self.parameters_["family_options"], self.design_)

    @property
    def classes_(self) -> NDArray[Any]:
        """The two classes; numbers have none."""
        if not hasattr(self, "schemas_") or self.family_.name not in CLASSES:
            raise AttributeError("classes_")
        return super().classes_

    def own_scores(self, scores: Matrix) -> Vector:
        """The family's own scores of linear predictors of shape (rows, 1)."""
        unit, zero = unit_of(self.family_, self.design_)
        found: Vector = (np.asarray(scores, dtype=np.float64)[:, 0] - zero) / unit
        return found

    def answers(self, scores: Matrix, threshold: float | str | None = None) -> NDArray[Any]:
        """The class that the threshold chooses, or the expected label in its unit, within its bounds."""
        if self.family_.name in CLASSES:
            return super().answers(scores, threshold)
        if threshold is not None:
            raise StudyError("a threshold is for classes, and this model predicts numbers [ST110]")
        return self.family_.mean(self.own_scores(scores))

    def chances(self, scores: Matrix) -> Matrix:
        """The chance of each of the two classes."""
        self._check_fitted()
        if (family := self.family_).name not in CLASSES:
            raise StudyError(f"the {family.name} family predicts numbers, not chances of classes: use predict [ST111]")
        chance = family.mean(self.own_scores(scores))
        return np.column_stack([1 - chance, chance])

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """Classes: the share predicted. Numbers: the part of the deviance explained, for ``linear`` R^2."""
        return self.rate(*self.compare_labels(X, y, **given))

    def rate(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """How good predictions are for these labels."""
        if (family := self.family_.name) in CLASSES:
            return glm_metrics.accuracy(true, predicted)
        return glm_metrics.explained(family, true.astype(np.float64), predicted.astype(np.float64))

    @property
    def _estimator_type(self) -> str:
        return "classifier" if self.family in CLASSES else "regressor"

    # --- as plain values

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        epochs, family = self.plan_["epochs"], self.family_.name
        how = f"by {self.method_}, {epochs} epoch{'s' if epochs > 1 else ''}"
        return f"{family} model of {self.label_} on {self.n_features_in_} columns over messages, {how}"

    def picture(self) -> Picture:
        """The released weights; of weights that parties keep, the noise of the messages they follow from."""
        if self.has_public_weights:
            return super().picture()
        return noise_picture(self.plan_["deviations"], "each number of a message")

    @property
    def how_to_score(self) -> str:
        """In words, how scores follow from the weights, for somebody who has nothing but the weights."""
        (low, high), way = self._region, HOW_TO_SCORE[self.family_.name]
        return f"{SCORE}; {way.format(low=low, high=high)}. {ENCODED}"

    @property
    def _region(self) -> tuple[float, float]:
        """Where logarithms of means stay."""
        return self.family_.centre - self.family_.reach, self.family_.centre + self.family_.reach

    def to_json(self) -> dict[str, Any]:
        """Everything somebody needs to use a released model without this library, as plain values."""
        family = self.family_  # its slopes are divided by ``scale``, and ``region`` is where a predictor counts
        names = ("slope_bound", "reach", "low", "high", "centre", "scale")
        region = list(self._region) if family.name in ("poisson", "gamma") else None
        described = {"name": family.name, "region": region} | {name: getattr(family, name) for name in names}
        return super().to_json() | {"family": described}

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator of the released weights; predictions are not cut off at the label's bounds.

        It is a ``LogisticRegression``, a ``LinearSVC``, a ``LinearRegression`` (wrapped where the label has a
        logarithmic scale), a ``PoissonRegressor`` or a ``GammaRegressor``.
        """
        self._public()
        family = self.family_.name
        if family in ("logistic", "linear"):
            return super().to_sklearn()
        from colonnade.models.sklearn_export import sklearn_margins, sklearn_means

        return sklearn_margins(self, self.classes_) if family == "svm" else sklearn_means(self, family)

    def scored_in_graph(self, graph: OnnxGraph, scores: str) -> None:
        """Give out, in an ONNX graph, what linear predictors predict."""
        unit, zero = unit_of(self.family_, self.design_)
        own = graph.of("Div", graph.of("Sub", scores, zero), unit)
        if self.family_.name == "logistic":
            super().scored_in_graph(graph, own)
        else:
            add_means(graph, own, self.family_)

    def learned_values(self) -> dict[str, Any]:
        """What everybody may know, as plain values; kept weights are never included."""
        slopes, offsets = (None, None) if self._released is None else (part.tolist() for part in self._released)
        others = super().learned_values()
        names = {"feature_names_in": others.pop("feature_names_in")}
        return names | {"coef": slopes, "intercept": offsets} | others

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""
        super().restore(learned)
        self.kept_, self._released = {}, None
        if learned["coef"] is not None:
            slopes, offsets = (read_array(learned[name]) for name in ("coef", "intercept"))
            self._released = slopes, offsets
            if slopes.shape != (1, len(self.feature_names_in_)) or offsets.shape != (1,):
                raise ValueError("weights and names do not belong together [VA022]")

    def check_restored(self) -> None:
        """Raise an error unless the plan can be that of this model: later questions are priced by its bounds."""
        super().check_restored()
        if self.has_public_weights is not self.plan_["release"]:
            raise ValueError("weights are there exactly if they were released [VA023]")
        plan, others = self.plan_, set(self.schemas_) - {self.design_.owner}
        bounds = {"row_norm", "score_clip", "drift"}
        fits = plan["family"] == self.family_.name and plan["active"] == self.design_.owner
        fits = (
            fits
            and plan["release"] is self.parameters_["release"]
            and read_count(plan["epochs"])
            and read_count(plan["rows"])
        )
        if not fits or set(plan["senders"]) != others:
            raise ValueError("the plan and the model do not belong together [VA024]")
        for party, sender in plan["senders"].items():
            plan["senders"][party] = {name: read_size(value) for name, value in sender.items()}
            if set(sender) != bounds or not sender["row_norm"] or not sender["score_clip"]:
                raise ValueError("the bounds of a sender are no numbers above 0 [VA025]")


def _family(name: str, options: Mapping[str, Any] | None, design: LabelDesign) -> Family:
    if not isinstance(options, Mapping | None):
        raise StudyError(
            f'family_options must be a mapping such as {{"reach": 3.0}}, not {type(options).__name__} [ST135]'
        )
    for option in options or ():
        one_of("a name in family_options", option, FamilyOptions.__dataclass_fields__)
    return family_for(name, design.declared, **(options or {}))
