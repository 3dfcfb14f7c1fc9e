"""One HTML file about an audit: each promised curve, and the curve that an attacker could prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from colonnade.audit.verdict import Verdict
from colonnade.report import words
from colonnade.report.canvas import extent, frame, rule, ticks, write
from colonnade.report.document import document, write_document
from colonnade.report.markup import Html, breakable, table, tag

NAME = "audit.html"
_SHEET = """
.panels { display: grid; grid-template-columns: repeat(auto-fit,minmax(290px,1fr)); gap: 22px 26px; margin-top: 14px }
.panels figure { margin: 0; min-width: 0 }
.panels figcaption { margin-top: 4px }
.chart .over { fill: var(--c1); fill-opacity: .45 }
.chart .under { fill: var(--c0); fill-opacity: .1 }
"""
_WIDTH, _HEIGHT = 430, 250
_TOP, _BOTTOM = 22.0, 40.0
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
    result = verdict.result
    plot = _Panel(verdict)
    spoken = (
        f"Promised delta {result.claimed[0]:.3g} at epsilon 0, shown at least {max(result.lower[0], 0):.3g}; "
        f"reach {verdict.reach}: {verdict.word}."
    )
    drawn = frame(
        key, verdict.label, spoken, _WIDTH, _HEIGHT, *plot.axes(), *plot.areas(), *plot.curves(), *plot.worst()
    )
    return tag("figure", drawn, tag("figcaption", tag("strong", verdict.label)))


class _Panel:
    """The geometry of one game's two curves over a straight axis of epsilons."""

    def __init__(self, verdict: Verdict) -> None:
        self.result = result = verdict.result
        self.reach = verdict.reach
        shown = [max(value, 0.0) for value in result.lower]
        most = max(max(result.claimed), max(shown), 1e-12)
        high = [max(pair) > _NEGLIGIBLE * most for pair in zip(result.claimed, shown, strict=True)]
        last = max((k for k, far in enumerate(high) if far), default=0)
        self.count = min(len(high), max(last + 2, 11))
        self.far = result.epsilons[self.count - 1]
        self.marks = ticks(0.0, most, 4)
        self.most = max(most * 1.06, self.marks[-2] if len(self.marks) > 1 else 0.0)
        self.marks = [mark for mark in self.marks if mark <= self.most]
        self.left = max(extent(f"{mark:g}") for mark in self.marks) + 4
        self.claimed = [self._spot(k, result.claimed[k]) for k in range(self.count)]
        self.shown = [self._spot(k, shown[k]) for k in range(self.count)]

    def _spot(self, index: int, value: float) -> tuple[float, float]:
        return self._across(self.result.epsilons[index]), self._up(value)

    def _across(self, epsilon: float) -> float:
        return self.left + (_WIDTH - self.left - 12) * epsilon / (self.far or 1.0)

    def _up(self, value: float) -> float:
        base = _HEIGHT - _BOTTOM
        return base - (base - _TOP) * value / self.most

    def axes(self) -> list[Html]:
        """Grid, ticks and the names of both axes."""
        right, base = self._across(self.far), self._up(0.0)
        drawn = [rule(self.left, self._up(mark), right, self._up(mark), "grid") for mark in self.marks]
        drawn += [write(self.left - 6, self._up(mark) + 4, f"{mark:g}", "end dim tiny") for mark in self.marks]
        for mark in (mark for mark in ticks(0.0, self.far, 5) if mark <= self.far):
            drawn.append(rule(self._across(mark), base, self._across(mark), base + 4, "axis"))
            drawn.append(write(self._across(mark), base + 18, f"{mark:g}", "mid dim tiny"))
        drawn.append(rule(self.left, base, right, base, "axis"))
        drawn.append(write(right, _HEIGHT - 4, "epsilon", "end dim tiny"))
        drawn.append(write(self.left, _TOP - 10, "delta", "dim tiny"))
        return drawn

    def areas(self) -> list[Html]:
        """What is promised, shaded, and what is shown beyond it."""
        base = self._up(0.0)
        under = [(self.claimed[0][0], base), *self.claimed, (self.claimed[-1][0], base)]
        beyond = [(x, min(y, top)) for (x, y), (_, top) in zip(self.claimed, self.shown, strict=True)]
        over = [*beyond, *reversed(self.claimed)]
        drawn = [tag("polygon", points=_path(under), class_="under")]
        return [*drawn, tag("polygon", points=_path(over), class_="over")] if self.result.caught else drawn

    def curves(self) -> list[Html]:
        """Both curves."""
        looks = ((self.claimed, "s0", 2.5, None), (self.shown, "s1", 2, "5 3"))
        return [
            tag("polyline", points=_path(spots), class_=look, fill="none", stroke_width=wide, stroke_dasharray=dash)
            for spots, look, wide, dash in looks
        ]

    def worst(self) -> list[Html]:
        """The reach and, of a refuted promise, where it is exceeded most."""
        result = self.result
        drawn = [write(self._across(self.far), _TOP - 10, f"reach {self.reach}", "end tiny strong")]
        if result.caught and result.epsilon <= self.far:
            x, k = self._across(result.epsilon), result.epsilons.index(result.epsilon)
            drawn.append(rule(x, self._up(max(result.lower[k], 0.0)), x, self._up(result.claimed[k]), "edge"))
        return drawn


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points if math.isfinite(y))
