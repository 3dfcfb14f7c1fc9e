"""An HTML file that is complete in itself; and the page about probabilities beside what happened."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from colonnade.drawing.canvas import chart_style, figure
from colonnade.drawing.markup import Html, table, tag
from colonnade.models import serialization
from colonnade.models.assessment import Assessment, ThresholdDecision
from colonnade.models.pictures import calibration_chart, ranking_chart

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_COMPLETE = "Written by Colonnade. This file is complete in itself and asks nothing of a network."


def style() -> str:
    """The style sheet of pages and of the charts on them."""
    return chart_style() + resources("colonnade.report").joinpath("style.css").read_text(encoding="utf-8")


def document(title: str, header: Sequence[object], main: Sequence[object], sheet: str = "") -> str:
    """The whole file; ``sheet`` is added to the style sheet that all pages share."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style() + sheet)),
    )
    body = tag("body", tag("header", *header), tag("main", *main), tag("footer", tag("p", _COMPLETE)))
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def write_document(target: Path, text: str, *, private: bool = False) -> Path:
    """Write the file as a whole or not at all, and return its path; other users can never read a private one."""
    serialization.write_whole(target, text.encode(), private=private)
    return target


def write_assessment(target: Path, name: str, found: Assessment, decision: ThresholdDecision | None = None) -> Path:
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
