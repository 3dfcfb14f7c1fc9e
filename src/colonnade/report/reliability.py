"""A page about probabilities beside what happened to the people whom they are about."""

from __future__ import annotations

from pathlib import Path

from colonnade.drawing.canvas import figure
from colonnade.drawing.markup import Html, table, tag
from colonnade.models.assessment import Assessment, Decision
from colonnade.models.pictures import calibration_chart, ranking_chart
from colonnade.report.document import document, write_document


def write_assessment(target: Path, name: str, found: Assessment, decision: Decision | None = None) -> Path:
    """Write a page about probabilities beside the truth, which other users cannot read, and return its path."""
    figures = [
        ("people", f"{found.count:,}"),
        ("of whom have the label", f"{found.prevalence:.1%}"),
        ("AUC", _figure(found.auc)),
        ("log-loss", f"{found.log_loss:.4f}"),
        ("Brier score", f"{found.brier:.4f}"),
        ("slope of the recalibration", _figure(found.slope)),
        ("intercept of the recalibration", _figure(found.intercept)),
    ]
    if decision is not None:
        figures += [
            ("threshold", f"{decision.threshold:.3g}"),
            ("accuracy", _figure(decision.accuracy)),
            ("balanced accuracy", _figure(decision.balanced_accuracy)),
            ("precision: of those predicted, who have the label", _figure(decision.precision)),
            ("recall: of those with the label, who are predicted", _figure(decision.recall)),
        ]
    said = "" if found.lacking is None else f" Not everything can be computed: {found.lacking}."
    header = [
        tag("div", "Colonnade · assessment", class_="brand"),
        tag("h1", f"{name}, beside the truth"),
        tag("p", f"{_NOT_PUBLIC}{said}", class_="note"),
    ]
    right = figure("reliability", calibration_chart(found.points, found.count, found.slope, name))
    main = [
        tag("section", tag("h2", "Are the probabilities right?"), right),
        tag("section", tag("h2", "Does the order tell who has the label?"), _ranking(found, name)),
        tag("section", tag("h2", "Figures"), table(("", "value"), figures, caption="Of these people.", numeric=(1,))),
    ]
    return write_document(target, document(f"{name}: assessment", header, main), private=True)


def _ranking(found: Assessment, name: str) -> Html:
    if found.auc is None:
        return tag("p", f"There is no curve of thresholds: {found.lacking}.", class_="note")
    return figure("roc", ranking_chart(found.roc, found.auc, name))


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


_NOT_PUBLIC = (
    "These figures were computed from the labels of people without noise: they are for those who hold the labels, not "
    "for publication."
)
