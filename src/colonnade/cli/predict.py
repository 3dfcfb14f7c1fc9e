"""``colonnade predict``: what a model says of new people, or the scores that we received, as a CSV file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from colonnade.cli.output import emit, say
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import files
from colonnade.models.assessment import Assessment
from colonnade.models.base import Estimator
from colonnade.models.predicted import Predicted
from colonnade.models.predicting import Deciding, Predicting, check_threshold
from colonnade.report.reliability import write_assessment
from colonnade.tables.arrow import pa
from colonnade.tables.files import read_columns
from colonnade.tables.wording import listed, suggestion


def predict(
    path: Path,
    tables: Sequence[str],
    kept: Sequence[Path],
    *,
    out: Path,
    id: Sequence[str],
    same_order: bool,
    threshold: str | None,
    assess: bool,
    of: str | None,
    page: Path | None,
    force: bool,
    json: bool,
) -> None:
    """Predict, write the file and say what it holds; with the true labels in the tables, how good it is."""
    for target in filter(None, (out, page)):
        if target.exists() and not force:
            raise StorageError(f"{target} is there already: choose another name, or replace it with --force")
    model: Any = Estimator.load(path)
    limit = _threshold(threshold)
    if isinstance(model, Predicted):
        if tables or kept or assess or page is not None:
            raise StudyError(f"{path} holds scores that were received, so there is nothing to compute from tables")
        found, told = received(model, limit), None
    elif isinstance(model, Predicting):
        for file in kept:
            _keeping(model, path).load_kept(file)
        found, told = _computed(model, tables, limit, assess or page is not None, of, _ids(model, id, same_order))
    else:
        raise StudyError(f"{path} is a {model.kind}, which predicts nothing about a person")
    files.replace_private(out, _csv(found))
    said: dict[str, Any] = {"model": str(path), "people": found.num_rows, "out": str(out)}
    lines = [f"{found.num_rows:,} predictions are in {out}, which only you can read"]
    if told is not None:
        decision = told.at(model.limit(limit)) if len(model.classes_) == 2 and of is None else None
        said |= {"assessment": told.to_dict(), "at_threshold": decision and asdict(decision)}
        lines += ["", str(told)]
        if decision is not None:
            lines.append(f"accuracy           {decision.accuracy:.3f} at the threshold {decision.threshold:.3g}")
        if page is not None:
            said["page"] = str(write_assessment(page, path.name, told, decision))
            lines += ["", f"{page}: for those who hold the labels, not for publication"]
    emit(said) if json else say("\n".join(lines))


def received(model: Predicted, threshold: float | str | None = None) -> Any:
    """The scores that their recipient holds as a table, with what stands beside them."""
    joint = model.joint
    classes = joint.classes
    columns: dict[str, Any] = {"id": joint.ids, "prediction": joint.predictions}
    if threshold is not None:
        if joint.probabilities is None or classes is None or len(classes) != 2 or threshold == "balanced":
            raise StudyError("a threshold is a number, for probabilities of two classes; these scores have none")
        columns["prediction"] = [classes[chance > float(threshold)] for chance in joint.probabilities[:, 1]]
    columns |= _by_class("probability", joint.probabilities, classes)
    columns |= _by_class("score", joint.scores, classes) | _by_class("deviation", joint.deviations, classes)
    if joint.own_predictions is not None:
        columns["own_prediction"] = joint.own_predictions
    columns |= _by_class("own_probability", joint.own_probabilities, classes)
    return pa.table(columns | _by_class("own_score", joint.own_scores, classes))


def _by_class(name: str, values: Any, classes: Sequence[Any] | None) -> dict[str, Any]:
    """One column, or one for each class, or none."""
    if values is None:
        return {}
    if values.shape[1] == 1:
        return {name: values[:, 0]}
    called = classes if classes is not None and len(classes) == values.shape[1] else range(1, values.shape[1] + 1)
    each = [str(one).lower() if isinstance(one, bool) else str(one) for one in called]
    return {f"{name}_{one}": values[:, k] for k, one in enumerate(each)}


def _computed(
    model: Predicting[Any, Any],
    tables: Sequence[str],
    threshold: float | str | None,
    assess: bool,
    of: str | None,
    given: dict[str, Any],
) -> tuple[Any, Assessment | None]:
    if assess and not (isinstance(model, Deciding) and hasattr(model, "classes_")):
        raise StudyError("only probabilities of classes are assessed, and this model predicts numbers")
    people = model.people(_people(model, tables), labelled=assess, **given)
    found = model.predictions(people, threshold, **given)
    if not (assess and isinstance(model, Deciding)):
        return found, None
    meant = {str(name): name for name in model.classes_.tolist()}
    if of is not None and of not in meant:
        raise DataError(f"--class names one of the classes {listed(list(meant))}")
    return found, model.assess(people, of=None if of is None else meant[of])


def _people(model: Predicting[Any, Any], tables: Sequence[str]) -> Any:
    """The files by party, or the cells of the one file that has all columns."""
    if not tables:
        raise DataError(
            f"no tables: give --table PARTY=FILE for each of {', '.join(model.schemas_)}, or one --table FILE"
        )
    named = {party: Path(file) for party, mark, file in (text.partition("=") for text in tables) if mark}
    if not named and len(tables) == 1:
        return read_columns(Path(tables[0]), tables[0], lambda there: there)
    for party in named:
        if party not in model.schemas_:
            hint = suggestion(party, list(model.schemas_))
            raise DataError(f"--table {party}=...: the model knows {', '.join(model.schemas_)} and no {party}{hint}")
    if len(named) < len(tables):
        raise DataError("give each party's file once, as --table PARTY=FILE; or one file with all columns")
    return named


def _ids(model: Predicting[Any, Any], given: Sequence[str], same_order: bool) -> dict[str, Any]:
    """The column of ids, or one for each party, or that rows stand in the same order."""
    if same_order:
        return {"same_order": True}
    named = {party: column for party, mark, column in (text.partition("=") for text in given) if mark}
    whole = [text for text in given if "=" not in text]
    if len(whole) > 1:
        raise DataError("give one --id COLUMN, and --id PARTY=COLUMN for parties that name it otherwise")
    usual = whole[0] if whole else "person_id"
    return {"id": {party: named.get(party, usual) for party in model.schemas_} if named else usual}


def _threshold(text: str | None) -> float | str | None:
    if text is None or text == "balanced":
        return text
    try:
        found: float | str = float(text)
    except ValueError:
        found = text
    check_threshold(found)
    return found


def _keeping(model: Any, path: Path) -> Any:
    if not hasattr(model, "load_kept"):
        raise StudyError(f"{path} has its weights in it, so leave --kept out")
    return model


def _csv(table: Any) -> bytes:
    written = io.BytesIO()
    pa.csv.write_csv(table, written, pa.csv.WriteOptions(quoting_style="needed"))
    return written.getvalue()
