"""Probabilities beside what happened, as inline SVG: a reliability diagram, and the curve of all thresholds."""

from __future__ import annotations

from pathlib import Path

from colonnade.models.assessment import Assessment, Decision
from colonnade.report.canvas import figure
from colonnade.report.document import document, write_document
from colonnade.report.markup import Html, table, tag
from colonnade.report.squares import Curve, curves


def reliability_plot(found: Assessment, name: str = "model", key: str = "reliability") -> Html:
    """The share of people with the label, by the probability that they were given; right ones lie on the diagonal."""
    points = [(each.probability, each.share) for each in found.reliability]
    spoken = "; ".join(f"{chance:.0%} said, {share:.0%} have it" for chance, share in points)
    slope = "" if found.slope is None else f", slope {found.slope:.2f}"
    return figure(
        key,
        lambda part, width: curves(
            part,
            width,
            [Curve(f"{name}{slope}", points, marked=True)],
            x="the probability that was said",
            y="the share of people who have the label",
            title="Reliability of the probabilities",
            description=spoken,
            diagonal="probabilities that are right",
        ),
        f"Each point is a group of about {found.count // max(1, len(points)):,} people. A curve flatter than the "
        "diagonal, with a slope below 1, means probabilities that are too sure.",
    )


def roc_plot(found: Assessment, name: str = "model", key: str = "roc") -> Html:
    """The curve of all thresholds: whom each finds, and whom it alarms about in vain."""
    if found.auc is None:
        return tag("p", f"There is no curve of thresholds: {found.lacking}.", class_="note")
    drawn = [Curve(f"{name}, AUC {found.auc:.3f}", found.roc)]
    return figure(
        key,
        lambda part, width: curves(
            part,
            width,
            drawn,
            x="people without the label who are predicted to have it",
            y="people with the label who are found",
            title="ROC: what each threshold finds",
            description=drawn[0].name,
        ),
    )


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
    main = [
        tag("section", tag("h2", "Are the probabilities right?"), reliability_plot(found)),
        tag("section", tag("h2", "Does the order tell who has the label?"), roc_plot(found)),
        tag("section", tag("h2", "Figures"), table(("", "value"), figures, caption="Of these people.", numeric=(1,))),
    ]
    return write_document(target, document(f"{name}: assessment", header, main), private=True)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


_NOT_PUBLIC = (
    "These figures were computed from the labels of people without noise: they are for those who hold the labels, not "
    "for publication."
)
