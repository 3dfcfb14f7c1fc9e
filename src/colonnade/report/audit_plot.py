"""One HTML file about an audit: each promised curve, and the curve that an attacker could prove."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.audit.verdict import Verdict
from colonnade.drawing.charts import Axis, Line, Lines
from colonnade.drawing.markup import Html, breakable, table, tag
from colonnade.report import words
from colonnade.report.document import document, write_document

NAME = "audit.html"
_SHEET = """
.panels { display: grid; grid-template-columns: repeat(auto-fit,minmax(290px,1fr)); gap: 22px 26px; margin-top: 14px }
.panels figure { margin: 0; min-width: 0 }
.panels figcaption { margin-top: 4px }
"""
_WIDTH = 430
_NEGLIGIBLE = 0.01  # of the highest delta: the axis ends where both curves are below


def write_audit(folder: str | Path, title: str, verdicts: Sequence[Verdict]) -> Path:
    """Write ``audit.html`` into a directory and return its path."""
    target = Path(folder) / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_document(target, render_audit(title, verdicts))


def render_audit(title: str, verdicts: Sequence[Verdict]) -> str:
    """The audit as one HTML document."""
    section = audit_section("real", "What is promised, and what an attacker can show", verdicts)
    return audit_document(title, _lead(verdicts), [section])


def audit_document(title: str, lead: Html, sections: Sequence[Html]) -> str:
    """A document of sections about games, below a sentence that sums them up."""
    header = [tag("div", "Colonnade · audit", class_="brand"), tag("h1", title), lead]
    return document(f"{title}: promised and shown", header, sections, _SHEET)


def _lead(verdicts: Sequence[Verdict]) -> Html:
    refuted = [verdict.label for verdict in verdicts if not verdict.good]
    if refuted:
        count = words.counted(len(refuted), "promise is", "promises are")
        return tag("p", f"{count} refuted: {'; '.join(refuted)}.", class_="note")
    praise = f"{words.counted(len(verdicts), 'game')} played, and no attacker showed more than was promised."
    return tag("p", praise, class_="lead")


def audit_section(key: str, heading: str, verdicts: Sequence[Verdict]) -> Html:
    """The curves of games, and a table of their outcomes."""
    sure = words.percent(verdicts[0].result.confidence)
    legend = tag(
        "ul",
        tag("li", tag("i", class_="b0"), "promised: the largest delta at each epsilon"),
        tag("li", tag("i", class_="b1"), f"shown: no less than this, with {sure} confidence"),
        class_="key",
    )
    panels = [_panel(f"{key}{index}", verdict) for index, verdict in enumerate(verdicts)]
    return tag(
        "section",
        tag("h2", heading),
        legend,
        tag("div", *panels, class_="panels"),
        _table(verdicts),
        aria_label=heading,
    )


def _table(verdicts: Sequence[Verdict]) -> Html:
    result = verdicts[0].result
    rows = [
        (
            breakable(v.label),
            v.game.story,
            words.epsilon(v.claimed),
            f"{v.result.epsilon_lower_bound:.3f}",
            v.reach,
            tag("span", v.word, class_="good" if v.good else "warn"),
        )
        for v in verdicts
    ]
    heads = ("Game", "The two tables, and what is looked at", "Promised", "Shown", "Reach", "Verdict")
    caption = (
        f"Epsilon promised and shown at delta {words.power(result.delta)}; reach is how much of the promised curve "
        f"was shown, and noise clearly below that share would have been seen. {result.samples[0]:,} samples of each "
        f"table, confidence {words.percent(result.confidence)} a game."
    )
    return table(heads, rows, caption=caption, numeric=(2, 3, 4))


def _panel(key: str, verdict: Verdict) -> Html:
    """The two curves of one game over epsilon, as far as they can be told from zero."""
    result = verdict.result
    shown = [max(value, 0.0) for value in result.lower]
    most = max(max(result.claimed), max(shown), 1e-12)
    high = [max(pair) > _NEGLIGIBLE * most for pair in zip(result.claimed, shown, strict=True)]
    count = min(len(high), max(max((k for k, far in enumerate(high) if far), default=0) + 2, 11))
    curves = [
        Line(label, list(zip(result.epsilons, values, strict=True))[:count], filled=not k)
        for k, (label, values) in enumerate((("promised", result.claimed), ("shown", shown)))
    ]
    chart = Lines(
        curves,
        Axis("epsilon"),
        Axis("delta"),
        title=verdict.label,
        spoken=f"Promised delta {result.claimed[0]:.3g} at epsilon 0, shown at least {shown[0]:.3g}; reach "
        f"{verdict.reach}: {verdict.word}.",
    )
    caption = tag("figcaption", tag("strong", verdict.label), f": reach {verdict.reach}, {verdict.word}")
    return tag("figure", chart.draw(key, _WIDTH), caption)
