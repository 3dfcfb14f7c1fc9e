"""Probabilities beside what happened, as inline SVG: a reliability diagram, and the curve of all thresholds."""

from __future__ import annotations

from colonnade.models.assessment import Assessment
from colonnade.report.canvas import figure
from colonnade.report.markup import Html, tag
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
