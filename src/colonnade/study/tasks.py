"""``[task]`` of a study file: the kinds of task, and the public parameters of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from colonnade.errors import PrivacyError
from colonnade.privacy.additive import Law as Noise
from colonnade.privacy.noise.rounding import RoundingMode
from colonnade.privacy.observers import check_epsilon
from colonnade.protocols.sketch import Sampling

NormalNoise = Literal["skellam", "discrete-gaussian"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Part(BaseModel):
    """A piece of a study file in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskPart(Part):
    """``[task]`` of principal components; ``iterations`` are for ``method = "power"``."""

    kind: Literal["pca"]
    n_components: int = Field(default=2, ge=1)
    center: bool = True
    gamma: int = Field(default=4096, ge=2)
    rows_at_most: int = Field(default=2**24, ge=1)
    method: Literal["auto", "moments", "power"] = "auto"
    iterations: int | None = Field(default=None, ge=1)


class _LabelledPart(Part):
    """What predicts a column of one party; the label is written ``party.column``."""

    label: str

    @field_validator("label", mode="before")
    @classmethod
    def _dotted(cls, label: Any) -> Any:
        if isinstance(label, str) and not all(label.rpartition(".")):
            raise ValueError('must be written party.column, such as "bank.default"')
        return label


class _RegressionPart(_LabelledPart):
    """What both regressions have in common."""

    noise: NormalNoise = "skellam"
    ridge: Literal["auto"] | Annotated[float, Field(ge=0, allow_inf_nan=False)] = "auto"
    epsilon_by_party: dict[str, float] | None = Field(default=None, min_length=1)
    intercept: bool = True
    rows_at_most: int = Field(default=2**24, ge=1)

    @field_validator("epsilon_by_party", mode="before")
    @classmethod
    def _each_positive(cls, given: Any) -> Any:
        for value in given.values() if isinstance(given, dict) else ():
            sensible(partial(check_epsilon, value), value)
        return given


class LinearPart(_RegressionPart):
    """``[task]`` of a linear regression."""

    kind: Literal["linear"]
    method: Literal["one-shot", "functional"] = "one-shot"
    gamma: int = Field(default=4096, ge=2)


class LogisticPart(_RegressionPart):
    """``[task]`` of a logistic regression; the keys of batches are for ``method = "sqm"``."""

    kind: Literal["logistic"]
    method: Literal["auto", "sqm", "functional", "one-shot"] = "auto"
    rows: int | None = Field(default=None, ge=1)
    expansion: Literal[1, 3] = 1
    sampling: Literal["poisson", "disjoint"] = "poisson"
    rate: float = Field(default=0.01, gt=0, le=1)
    epochs: int = Field(default=10, ge=1)
    weight_bound: Positive | None = None
    learning_rate: Positive = 2.0
    gamma: int | None = Field(default=None, ge=2)


class FamilyPart(Part):
    """``[task.family_options]``: what a family can be told besides the label's column."""

    reach: Positive | None = None
    clip: Positive | None = None
    region: tuple[float, float] | None = None


class GlmPart(_LabelledPart):
    """``[task]`` of a model over noised messages; what is not given follows from public figures."""

    kind: Literal["glm"]
    family: Literal["logistic", "svm", "linear", "poisson", "gamma"] = "logistic"
    rows: int = Field(ge=1)
    method: Literal["auto", "alternating", "gradient"] = "auto"
    penalty: Literal["l2", "l1", "elastic-net"] = "l2"
    strength: Positive | None = None
    l1_ratio: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    epochs: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    learning_rate: Positive | None = None
    weight_bound: Positive | None = None
    score_clip: Positive | None = None
    message_clip: Positive | None = None
    patience: int | None = Field(default=None, ge=1)
    release: bool = Field(default=False, strict=True)
    family_options: FamilyPart | None = None


class PolynomialPart(Part):
    """``[task]`` of sums of polynomials over all people."""

    kind: Literal["polynomial"]
    expressions: tuple[str, ...] = Field(min_length=1)
    noise: NormalNoise = "skellam"
    rounding: RoundingMode = "stochastic"
    gamma: int | None = Field(default=None, ge=2)
    rows_at_most: int = Field(default=2**24, ge=1)


class PredictionPart(Part):
    """``[task]`` of predictions for new people with a public model, for one party's eyes."""

    kind: Literal["prediction"]
    model: str = Field(min_length=1)
    to: str
    exact: bool = False
    gamma: int = Field(default=2**16, ge=1)
    rows_at_most: int = Field(default=2**20, ge=1)


class KeptScoresPart(Part):
    """``[task]`` of scores of new people by weights that every party keeps, for the party with the label."""

    kind: Literal["glm-scores"]
    model: str = Field(min_length=1)
    rows_at_most: int = Field(default=2**20, ge=1, le=2**31)


class SketchPart(Part):
    """``[task]`` of a sketch: an iterative mechanism that is priced and not run."""

    kind: Literal["sketch"]
    rounds: int = Field(ge=1)
    sampling: Sampling = "poisson"
    batch: int | None = Field(default=None, ge=1)
    rows: int = Field(ge=1)
    dimension: int = Field(ge=1)
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    gamma: int = Field(default=2**30, ge=1)
    noise: Noise = "skellam"
    noise_multiplier: float | None = Field(default=None, gt=0, allow_inf_nan=False)


AnyTask = Annotated[
    TaskPart | LinearPart | LogisticPart | GlmPart | KeptScoresPart | PolynomialPart | PredictionPart | SketchPart,
    Field(discriminator="kind"),
]
KINDS = ("pca", "linear", "logistic", "glm", "glm-scores", "polynomial", "prediction", "sketch")


def check_without_shares(kind: str, *, committee: bool, hidden: bool) -> None:
    """Refuse sections of a study in which somebody would hold shares: of numbers, or of who matched."""
    if committee:
        raise ValueError(f'committee has no meaning with task.kind = "{kind}", where nobody holds shares: delete it')
    if hidden:
        raise ValueError(
            f'align.hidden = true does not work with task.kind = "{kind}", whose parties must know which rows are '
            "common: delete it, or choose another kind of task"
        )


def sensible(check: Callable[[], object], value: Any) -> Any:
    """A value as it was written, before anything is made a number that is none; the error then names its key."""
    try:
        check()
    except PrivacyError as error:
        raise ValueError(f"- {error}") from None
    return value
