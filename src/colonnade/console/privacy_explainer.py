"""What a price means: the rows of a statement in words that need no mathematics, each proven in docs/theory/beliefs.md.

Two sentences are said of an observer. One is about conclusions: any of them is at most e^epsilon times as likely as if
the person had been left out, or were another, plus delta. The other is about odds, whose bound is larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from markupsafe import Markup

from colonnade.drawing.canvas import figure
from colonnade.drawing.charts import Axis, Curve, LineChart
from colonnade.privacy.observers import COORDINATOR, OTHERS, Adjacency, Observer
from colonnade.privacy.statement import PRIORS, LargestEpsilon, StatementRow, parse_row, posterior, row_name
from colonnade.report import wording
from colonnade.sanitize import sanitize

_ADJACENCY_PHRASES: Mapping[Adjacency, tuple[str, str]] = {
    Adjacency.ADD_REMOVE: ("that one person is in the tables", "that person had been left out"),
    Adjacency.REPLACE: ("anything about one person", "another person stood in that one's place"),
    Adjacency.REPLACE_OTHERS: (
        "anything that others hold about one person",
        "others held something else about that person",
    ),
}
GENERAL_NOTE = (
    "This is about what the study tells because of one person. What it shows about people in general can be applied to "
    "anybody, also to those who took no part. The figures for odds hold for whoever knows nothing of this person from "
    "the rows of others, such as relatives; those for conclusions hold for everybody."
)


@dataclass(frozen=True)
class ObserverPrice:
    """One observer's row, with what it means."""

    row: StatementRow
    who: str
    rise: float | None
    """By how much its log-odds rise at most, but for a chance of delta; infinite where nothing is promised, ``None``
    where that was not computed."""
    ours: bool
    """Whether this party is among those who observe: then it is about the people of the others."""

    @property
    def epsilon(self) -> str:
        """Epsilon, rounded up."""
        return wording.epsilon(self.row.epsilon)

    @property
    def promised(self) -> bool:
        """Whether anything is promised against this observer."""
        return math.isfinite(self.row.epsilon)

    @property
    def factor(self) -> str:
        """How many times the odds may become, rounded up."""
        if self.rise is None:
            return "not computed"
        return "no limit" if math.isinf(self.rise) else f"{wording.times(self.rise)} times"

    @property
    def chance(self) -> str:
        """Delta as one in so many, rounded towards the larger chance."""
        return one_in(self.row.delta)

    @property
    def conclusion(self) -> str:
        """The sentence about conclusions."""
        if not self.promised:
            return f"Nothing is promised against {self.who}: {self.row.reason}."
        _, other = _ADJACENCY_PHRASES[self.row.adjacency]
        return (
            f"Whatever {self.who} may conclude about one person: the chance of that conclusion is at most "
            f"{wording.times(self.row.epsilon)} times what it would be if {other}, plus {self.chance}."
        )

    @property
    def odds(self) -> str | None:
        """The sentence about odds."""
        if not self.promised or self.rise is None:
            return None
        about, _ = _ADJACENCY_PHRASES[self.row.adjacency]
        return (
            f"{self.who[:1].upper()}{self.who[1:]} can become surer of {about}: the odds may rise to at most "
            f"{wording.times(self.rise)} times what they were, but for a chance of {self.chance}."
        )


@dataclass(frozen=True)
class StudyPrices:
    """Every observer of a study, and the one that matters most to this party."""

    rows: tuple[ObserverPrice, ...]
    missing: tuple[ObserverPrice, ...]
    """If owners leave out their part of the noise."""
    assumptions: tuple[str, ...]
    largest: LargestEpsilon
    """Who learns most, this party among them: the figure that reports and lists have, too."""

    @classmethod
    def of(cls, statement: Mapping[str, Any], odds: Mapping[str, float | None] | None, own: str) -> StudyPrices:
        """The prices of a statement that was written down; ``odds`` are of each observer by its label."""
        known = {} if odds is None else {who: math.inf if rise is None else rise for who, rise in odds.items()}
        rows = tuple(_observer_price(parse_row(row), known, own) for row in statement["rows"])
        missing = tuple(_observer_price(parse_row(row), known, own) for row in statement.get("missing_noise", ()))
        return cls(rows, missing, tuple(statement["assumptions"]), LargestEpsilon.parse(statement))

    @property
    def exposed(self) -> ObserverPrice | None:
        """Of those against whom something is promised and to whom this party tells something, who learns most."""
        found = [price for price in self.rows if price.promised and not price.ours]
        return max(found, key=lambda price: price.row.epsilon, default=None)

    @property
    def unprotected(self) -> tuple[ObserverPrice, ...]:
        """Observers without this party against whom nothing is promised."""
        return tuple(price for price in self.rows if not price.promised and not price.ours)

    @property
    def figures(self) -> tuple[tuple[str, str, str], ...]:
        """The largest epsilon, for whom, and under which condition; once more if owners leave out their noise."""
        return tuple(
            (wording.epsilon(row.epsilon), sanitize(row.who), condition) for row, condition in self.largest.figures
        )

    @property
    def pools(self) -> tuple[str, ...]:
        """Against whom nothing is promised, this party not among them, for a list."""
        return tuple(
            wording.join_names(list(map(sanitize, (names := price.row.observer.names))))
            + " together" * (len(names) > 1)
            for price in self.unprotected
        )

    @property
    def picture(self) -> Markup | None:
        """Beliefs before and after, of the most exposed observer."""
        exposed = self.exposed
        if exposed is None or exposed.rise is None or math.isinf(exposed.rise):
            return None
        return draw_beliefs(exposed.rise, exposed.who)


def applicable_row(analyst: str, is_party: bool) -> str:
    """Which row holds for whoever asks: a member sees at the hub when attempts begin and end, beside the result."""
    if is_party:
        return f"For {analyst}, who asks and takes part, the row of that name holds."
    return (
        f"{analyst} is a member and sees when attempts begin and end, which tells about how many rows there are: for "
        f"{analyst} the row of the coordinator holds, not that of the analyst, who sees the result and nothing else."
    )


def one_in(chance: float) -> str:
    """A small chance as one in so many, never smaller than it is."""
    if chance <= 0:
        return "nothing"
    whole = int((Decimal(1) / Decimal(repr(float(chance)))).to_integral_value(rounding=ROUND_FLOOR))
    return f"1 in {whole:,}" if whole > 1 else "1 in 1"


@dataclass(frozen=True)
class CapForecast:
    """What a study would leave of one cap."""

    who: str
    span: str
    cap: float
    spent: float
    after: float
    at_most: float
    """If every attempt that may be made were charged."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> CapForecast:
        """A cap as the check of a proposal writes it down; ``None`` stands for infinite figures."""
        days, who = value.get("period"), value.get("observer")
        figures = [_figure(value.get(key)) for key in ("cap", "spent", "after", "at_most")]
        name = "all others together" if who == OTHERS else str(who)
        return cls(name, "for ever" if days is None else f"in {days:g} days", *figures)

    @property
    def percent(self) -> int:
        """How much of the cap would be spent."""
        return share(self.after, self.cap)

    @property
    def spent_text(self) -> str:
        """What is spent before, rounded up."""
        return wording.epsilon(self.spent, 4)

    @property
    def after_text(self) -> str:
        """What is spent after the study, rounded up."""
        return wording.epsilon(self.after, 4)

    @property
    def at_most_text(self) -> str:
        """What is spent if every attempt is charged, rounded up."""
        return wording.epsilon(self.at_most, 4)

    @property
    def left_text(self) -> str:
        """What is left after the study, rounded down."""
        return (
            f"{math.floor(max(0.0, self.cap - self.after) * 1e4) / 1e4:.4f}" if math.isfinite(self.after) else "nothing"
        )


def _figure(value: object) -> float:
    found = wording.number(value)
    return math.inf if found is None else found


def _observer_price(row: StatementRow, odds: Mapping[str, float], own: str) -> ObserverPrice:
    return ObserverPrice(row, describe_observer(row), odds.get(row_name(row)), own in row.observer.names)


def describe_observer(row: StatementRow) -> str:
    """Who an observer is, in words."""
    names: Sequence[str] = row.observer.names
    if row.missing is not None and row.observer.rank > Observer.coordinator().rank:
        return row.who
    if not names:
        return "whoever reads the result and nothing else"
    if names == (COORDINATOR,):
        return "the coordinator, which relays sealed messages"
    said = [f"the {name}" if name == COORDINATOR else sanitize(name) for name in names]
    together = f"{wording.join_names(said)}, if they pool what they see" if len(said) > 1 else said[0]
    return f"{together} (and {row.others} alike)" if row.others else together


def draw_beliefs(rise: float, who: str) -> Markup:
    """The belief that somebody may have afterwards, for every belief beforehand."""
    told = "; ".join(f"{wording.percent(p, 0)} before, at most {_up(posterior(p, rise))} after" for p in PRIORS)
    places = [k / 200 for k in range(201)]
    before = Axis("how likely it seemed before", text="{:.0%}".format, ends=(0.0, 1.0))
    after = Axis(f"how likely it may seem afterwards to {who}, at most", text="{:.0%}".format, ends=(0.0, 1.0))
    chart = LineChart(
        [Curve("at most", [(p, posterior(p, rise)) for p in places])],
        before,
        after,
        diagonal="nothing learned",
        square=True,
        title="Beliefs before and after",
        description=f"For {who}: {told}.",
    )
    return Markup(figure("surer", chart, f"In words: {told}."))  # noqa: S704 - made of escaped parts


def share(part: float, whole: float) -> int:
    """Percent of a bar that is full, for a ``progress`` or ``meter`` element."""
    return 100 if not math.isfinite(part) or part >= whole else max(0, round(100 * part / whole))


def _up(belief: float) -> str:
    """A belief in percent, rounded up."""
    return f"{math.ceil(belief * 1000 - 1e-9) / 10:g} %"
