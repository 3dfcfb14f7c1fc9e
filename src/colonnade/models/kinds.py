"""The kinds of study, one row for each: where its model, its section of the report and its audit games are.

Rows hold names, so that nothing is imported before it is used. Everything else about a kind (its keys in study files,
its pre-flight, what a party keeps, its line on the terminal) is a member of its model, which :func:`load` checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from colonnade.errors import StudyError
from colonnade.protocols.task import check_complete

if TYPE_CHECKING:
    from colonnade.models.planner import Planner

ENTRY_POINTS = "colonnade.kinds"
"""The group of entry points by which installed packages add kinds; each entry names a :class:`Kind`."""


@dataclass(frozen=True)
class Kind:
    """One kind of study; every part is written ``module:name``, and games are modules that register them."""

    kind: str
    model: str
    section: str = ""
    games: tuple[str, ...] = ()


def _ours(kind: str, model: str, section: str = "", *games: str) -> Kind:
    """A row of this package, in which names begin below it."""
    return Kind(kind, f"colonnade.{model}", section and f"colonnade.{section}", tuple(f"colonnade.{g}" for g in games))


_SPLIT = ("audit.embeddings", "audit.features")
_ROWS = (
    _ours("pca", "models.pca:PCA", "report.components:SECTION", "audit.second_moments", "audit.directions"),
    _ours("linear", "models.regression.linear:LinearRegression", "report.regression:SECTION", "audit.functional"),
    _ours("logistic", "models.regression.logistic:LogisticRegression", "report.regression:SECTION", "audit.gradients"),
    _ours("glm", "models.glm.model:GLM", "report.exchange:SECTION", "audit.exchange_messages", "audit.times"),
    _ours("glm-scores", "models.glm.kept_scores:KeptScores", "report.exchange:SCORES", "audit.exchange_messages"),
    _ours("polynomial", "models.polynomial:PolynomialSum", "report.answers:SUMS", "audit.sums"),
    _ours(
        "prediction", "models.prediction:JointPrediction", "report.answers:PREDICTIONS", "audit.sums", "audit.levels"
    ),
    _ours(
        "synthetic",
        "models.synthesis.model:Synthesizer",
        "report.synthetic:SECTION",
        "audit.marginals",
        "audit.mixture",
    ),
    _ours("split-classifier", "models.split.model:SplitClassifier", "report.split:SECTION", *_SPLIT),
    _ours("split-regressor", "models.split.model:SplitRegressor", "report.split:SECTION", *_SPLIT),
    _ours("split-scores", "models.split.scores:SplitScores", "report.split:SCORES", "audit.sums", "audit.embeddings"),
    _ours("sketch", "models.sketch:SketchPlanner"),
)
_KNOWN: dict[str, Kind] = {row.kind: row for row in _ROWS}
_BROKEN: dict[str, str] = {}


def register(row: Kind) -> Kind:
    """Add a kind and return it; an error if another kind has this name, or if a part of it is missing."""
    if (there := _KNOWN.get(row.kind)) == row:
        return row
    if there is not None:
        raise StudyError(
            f"there is a kind {row.kind!r} already, {there.model}: choose another name for {row.model} [ST138]"
        )
    _KNOWN[row.kind] = row
    try:
        load(row.kind)
        for part in filter(None, (row.section, *row.games)):
            resolve(part)
    except BaseException:
        del _KNOWN[row.kind]
        raise
    return row


def rows() -> tuple[Kind, ...]:
    """Every kind that is known, those of installed packages last."""
    _installed()
    return tuple(_KNOWN.values())


def row_of(kind: str) -> Kind:
    """The row of a kind."""
    if kind not in _KNOWN:
        _installed()
    if kind not in _KNOWN:
        unknown = f"there is no kind of study called {kind!r}; choose from {', '.join(_KNOWN)} [ST139]"
        raise StudyError(_BROKEN.get(kind, unknown))
    return _KNOWN[kind]


def load(kind: str) -> type[Planner]:
    """The model of a kind, complete with its tasks."""
    from colonnade.models.planner import Planner

    row = row_of(kind)
    model, where = resolve(row.model), f"kind {kind!r}, {row.model}"
    if not (isinstance(model, type) and issubclass(model, Planner)):
        raise StudyError(f"{where}: it is no model, which derives from Planner or Estimator [ST140]")
    if model.kind != kind:
        raise StudyError(f"{where}: it calls itself {model.kind!r} [ST141]")
    if missing := model.lacking():
        raise StudyError(f"{where}: it lacks {', '.join(missing)} [ST142]")
    if model.why_not_run is None and not row.section:
        raise StudyError(f"{where}: it can be run, so its row must name a section of the report [ST143]")
    if not model.tasks:
        raise StudyError(f"{where}: it does not say which tasks it plans (tasks) [ST144]")
    for task in model.tasks:
        check_complete(task, where)
    return model


def section_of(kind: str) -> Any:
    """The section of the report about models of a kind."""
    row = row_of(kind)
    if not row.section:
        raise StudyError(f"there is no report about kind {kind!r}, which is not run [ST145]")
    return resolve(row.section)


def resolve(name: str) -> Any:
    """What ``module:name`` means; a module alone is imported."""
    module, _, attribute = name.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


@cache
def _installed() -> None:
    """Register the kinds of installed packages, once."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            register(entry.load())
        except (ImportError, AttributeError, StudyError) as error:  # told to whoever asks for this kind
            _BROKEN[entry.name] = f"the installed kind {entry.name!r} ({entry.value}) cannot be loaded: {error} [ST146]"
