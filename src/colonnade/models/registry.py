"""The registry of kinds of study, one row for each: where its model, its section of the report and its games are.

Rows hold names, so that nothing is imported before it is used. Everything else about a kind (its keys in study files,
its pre-flight, what a party keeps, its line on the terminal) is a member of its model, which :func:`load` checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from colonnade.errors import StudyError

if TYPE_CHECKING:
    from colonnade.models.planner import Planner

ENTRY_POINTS = "colonnade.kinds"
"""The group of entry points by which installed packages add kinds; each entry names a :class:`ModelKind`."""


@dataclass(frozen=True)
class ModelKind:
    """One kind of study; every part is written ``module:name``, and games are modules that register them.

    ``more`` are parts that only some kinds have, in pairs of a name and what it means: ``views`` is what an attacker
    sees of people through the model, ``standing`` answers questions on demand, ``quality`` compares tables,
    ``evaluation`` compares methods.
    """

    kind: str
    model: str
    section: str = ""
    games: tuple[str, ...] = ()
    more: tuple[tuple[str, str], ...] = ()
    often: bool = False
    """Whether a process that waits for studies imports it before it is asked for."""


def _ours(kind: str, model: str, section: str = "", *games: str, often: bool = False, **more: str) -> ModelKind:
    """A row of this package, in which names begin below ``colonnade.kinds``."""
    full = {name: f"colonnade.kinds.{part}" for name, part in (more | {"": model}).items()}
    return ModelKind(
        kind,
        full.pop(""),
        section and f"colonnade.kinds.{section}",
        tuple(f"colonnade.kinds.{module}" for module in games),
        tuple(full.items()),
        often,
    )


_ROWS = (
    _ours(
        "pca",
        "pca.model:PCA",
        "pca.report:SECTION",
        "pca.audit",
        evaluation="pca.evaluation:compare",
        often=True,
    ),
    _ours(
        "linear",
        "regression.model:LinearRegression",
        "regression.report:SECTION",
        "regression.audit",
        often=True,
    ),
    _ours(
        "logistic",
        "regression.model:LogisticRegression",
        "regression.report:SECTION",
        "regression.audit",
        often=True,
    ),
    _ours(
        "glm",
        "glm.model:GLM",
        "glm.report:SECTION",
        "glm.audit",
        often=True,
    ),
    _ours("glm-scores", "glm.kept_scores:KeptScores", "glm.report:SCORES", "glm.audit"),
    _ours(
        "polynomial",
        "polynomial.model:PolynomialSum",
        "polynomial.report:SECTION",
        "polynomial.audit",
    ),
    _ours(
        "prediction",
        "prediction.model:JointPrediction",
        "prediction.report:SECTION",
        "prediction.audit",
        standing="prediction.model:ScoresOnDemand",
    ),
    _ours(
        "synthetic",
        "synthesis.model:Synthesizer",
        "synthesis.report:SECTION",
        "tables.audit",
        "synthesis.audit",
        quality="synthesis.quality",
    ),
    _ours(
        "split-classifier",
        "split.model:SplitClassifier",
        "split.report:SECTION",
        "split.audit",
        views="split.audit:SPLIT_VIEWS",
    ),
    _ours(
        "split-regressor",
        "split.model:SplitRegressor",
        "split.report:SECTION",
        "split.audit",
        views="split.audit:SPLIT_VIEWS",
    ),
    _ours("split-scores", "split.scores:SplitScores", "split.report:SCORES", "split.audit"),
    _ours("sketch", "sketch.model:SketchPlanner"),
)
_KNOWN: dict[str, ModelKind] = {row.kind: row for row in _ROWS}
_BROKEN: dict[str, str] = {}


def register(row: ModelKind) -> ModelKind:
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
        for written in filter(None, (row.section, *row.games, *(written for _, written in row.more))):
            resolve(written)
    except BaseException:
        del _KNOWN[row.kind]
        raise
    return row


def expected() -> tuple[str, ...]:
    """The kinds of this package that a process which waits for studies imports before it is asked for them."""
    return tuple(row.kind for row in _ROWS if row.often)


def rows() -> tuple[ModelKind, ...]:
    """Every kind that is known, those of installed packages last."""
    _installed()
    return tuple(_KNOWN.values())


def row_of(kind: str) -> ModelKind:
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
    from colonnade.protocols.task import check_complete

    row = row_of(kind)
    model, where = resolve(row.model), f"kind {kind!r}, {row.model}"
    if not (isinstance(model, type) and issubclass(model, Planner)):
        raise StudyError(f"{where}: it is no model, which derives from Planner or Estimator [ST140]")
    refused = {
        f"{where}: it calls itself {model.kind!r} [ST141]": model.kind != kind,
        f"{where}: it lacks {', '.join(model.lacking())} [ST142]": bool(model.lacking()),
        f"{where}: it can be run, so its row must name a section of the report [ST143]": not (
            row.section or model.why_not_run
        ),
        f"{where}: it does not say which tasks it plans (tasks) [ST144]": not model.tasks,
    }
    for why, wrong in refused.items():
        if wrong:
            raise StudyError(why)
    for task in model.tasks:
        check_complete(task, where)
    return model


def section_of(kind: str) -> Any:
    """The section of the report about models of a kind."""
    row = row_of(kind)
    if not row.section:
        raise StudyError(f"there is no report about kind {kind!r}, which is not run [ST145]")
    return resolve(row.section)


def game_modules() -> tuple[str, ...]:
    """The modules that register audit games, of all kinds and then of the mechanisms that belong to none."""
    return tuple(dict.fromkeys((*(games for row in rows() for games in row.games), "colonnade.audit.mechanisms")))


def part(kind: str, name: str) -> Any:
    """What a kind has under a name of :attr:`ModelKind.more`; ``None`` if it has nothing there."""
    found = dict(row_of(kind).more).get(name)
    return found and resolve(found)


def parts(name: str) -> dict[str, Any]:
    """What all kinds have under a name of :attr:`ModelKind.more`, by how their rows write it."""
    written = dict.fromkeys(found for row in rows() if (found := dict(row.more).get(name)))
    return {text: resolve(text) for text in written}


def only(name: str) -> Any:
    """What the first kind that has something under a name of :attr:`ModelKind.more` has there; an error if none has."""
    found = next((found for row in rows() if (found := dict(row.more).get(name))), None)
    if found is None:
        raise StudyError(
            f"no kind of study that is installed here has {name!r}: install Colonnade as it was published [ST619]"
        )
    return resolve(found)


def resolve(name: str) -> Any:
    """What ``module:name`` means; a module alone is imported."""
    module, _, attribute = name.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


@cache
def _installed() -> None:
    """Register the kinds of installed packages, once."""
    from importlib import metadata

    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            register(entry.load())
        except (ImportError, AttributeError, StudyError) as error:  # told to whoever asks for this kind
            _BROKEN[entry.name] = f"the installed kind {entry.name!r} ({entry.value}) cannot be loaded: {error} [ST146]"
