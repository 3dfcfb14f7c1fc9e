"""What is promised against whom: the privacy table, its chart, its assumptions, and who saw what."""

from __future__ import annotations

import math

from colonnade.drawing.canvas import figure
from colonnade.drawing.markup import Html, breakable, join, table, tag
from colonnade.privacy.largest import Largest
from colonnade.privacy.observers import COORDINATOR, Trust
from colonnade.privacy.pictures import promises_chart
from colonnade.privacy.rows import PROVEN, Row
from colonnade.privacy.statement import Statement
from colonnade.report import words


def within(trust: Trust) -> str:
    """The observers against whom the study promises something, in words."""
    return "within the threshold" if trust.committee else "short of all parties together"


def privacy(statement: Statement) -> Html:
    """The privacy table, what it means, and the assumptions under which it holds."""
    shown = (*statement.rows, *statement.missing_noise)
    rows = [
        (
            _who(row),
            tag("strong", words.epsilon(row.epsilon)),
            words.power(row.delta),
            row.adjacency.value,
            _basis(row),
            _status(row),
        )
        for row in shown
    ]
    heads = ("Observer", "Epsilon", "Delta", "Cannot tell apart", "Rests on", "Status")
    caption = "One line for each observer; names joined by + pool everything they see. Epsilon is rounded up."
    if statement.missing_noise:
        caption += " The last lines say what is left if owners leave out their part of the noise."
    marks = ["beyond" if math.isinf(row.epsilon) else "" for row in shown]
    return join(
        tag("h2", "What each observer can learn about one person"),
        _meaning(statement),
        table(heads, rows, caption=caption, numeric=(1, 2), marks=marks, look="promise"),
        figure("epsilon", promises_chart(statement.rows)) if statement.rows else None,
        tag("h3", "This holds as long as"),
        tag("ul", *(tag("li", text) for text in statement.assumptions)),
    )


def who_saw_what(trust: Trust, to: str | None = None, *, aligned: bool = False, hidden: bool = False) -> Html:
    """What each role saw, where a committee computes on shares; ``to`` alone receives the result, if it is given.

    ``aligned``: people were matched first, and another table says what that told; ``hidden``: no party knows the
    number of people in common.
    """
    heads = (
        "Who",
        "Own columns",
        "Columns of others",
        "Secret shares",
        "Noise",
        "Sealed bytes: sizes and times",
        "Number of rows",
        "Published result" if to is None else "Answers",
    )
    rows = [*_parties(trust, to, hidden), _coordinator(trust, to, hidden), _analyst(to)]
    limit = f"while no more than {words.counted(trust.threshold, 'committee member')} pool their shares"
    limit += " or deviate" if trust.active else ""
    caption = (
        f"What each role held or saw during the run, {limit if trust.committee else 'while not all parties pool it'}. "
        + ("Besides what the alignment told, there was nothing else." if aligned else "There was nothing else.")
    )
    note = (
        "They tell the number of rows, so whoever reads this report counts as the coordinator in the table above, "
        "not as the analyst."
    )
    return join(
        tag("h2", "Who saw what"),
        table(heads, rows, caption=caption),
        tag("p", tag("strong", "You are reading sizes and times. "), note, class_="note"),
    )


def _parties(trust: Trust, to: str | None, hidden: bool) -> list[tuple[object, ...]]:
    """One row for parties with a committee seat and one for the others; ``to``, where it is given, has its own row."""
    seated = [name for name in trust.owners if name in trust.committee]
    others = [name for name in trust.owners if name not in trust.committee]
    count = "at most lengths of lists" if hidden else "exact"
    rows: list[tuple[object, ...]] = []
    for names, sits in ((seated, True), (others, False)):
        for some, told in _told(names, to):
            who = join(words.listed(some), tag("span", _part(some, sits) if trust.committee else "", class_="why"))
            noise = "none" if some == [to] else "its own part"
            rows.append((who, "its own", "never", _share(trust, sits), noise, "of its own messages", count, told))
    return rows


def _coordinator(trust: Trust, to: str | None, hidden: bool) -> tuple[object, ...]:
    sits, relay = COORDINATOR in trust.committee, "relays"
    if sits:
        relay += ", and holds the third share" if len(trust.owners) == 2 else ", and sits on the committee"
    who = join(COORDINATOR, tag("span", relay, class_="why"))
    count = "exact, from the alignment" if hidden else "exact, from the sizes"
    told = "yes" if to is None else "no"
    return (who, "has none", "never", _share(trust, sits), "none", "of all messages", count, told)


def _analyst(to: str | None) -> tuple[object, ...]:
    who = join("analyst", tag("span", "reads the result and nothing else", class_="why"))
    count, told = ("noisy", "yes") if to is None else ("none", "no")
    return (who, "has none", "never", "none", "none", "none", count, told)


def _share(trust: Trust, sits: bool) -> str:
    if not sits:
        return "none"
    return f"one of {len(trust.committee)} of everything; {trust.threshold + 1} are needed to see anything"


def _told(names: list[str], to: str | None) -> list[tuple[list[str], str]]:
    """The parties that receive the result and those that do not; with no ``to`` all of them receive it."""
    parts = (
        ([name for name in names if to in (None, name)], "yes"),
        ([name for name in names if to not in (None, name)], "no"),
    )
    return [(some, told) for some, told in parts if some]


def _meaning(statement: Statement) -> Html:
    largest = Largest.of(statement)
    bound = math.inf if largest.row is None else largest.row.epsilon
    if math.isinf(bound):
        text = f"Some observer {within(statement.trust)} is promised nothing; the table says why."
        return tag("p", tag("strong", text), class_="note")
    return tag(
        "p",
        "Take two tables that differ in one person. The chance of whatever an observer may see is at most e",
        tag("sup", "epsilon"),
        " times as great with one as with the other, plus delta. The largest epsilon for "
        f"anyone {within(statement.trust)} is {words.epsilon(bound)}, a factor of {words.times(bound)}; "
        f"delta is {words.power(statement.delta)}.{_otherwise(largest)} Smaller is safer.",
    )


def _otherwise(largest: Largest) -> str:
    """The same figure if owners draw otherwise; nothing where the statement has none."""
    row = largest.missing
    if row is None:
        return ""
    if math.isinf(row.epsilon):
        return f" Nothing is promised against {row.who}, {row.condition}."
    return f" It is {words.epsilon(row.epsilon)}, for {row.who}, {row.condition}."


def _who(row: Row) -> Html:
    who = breakable(row.who, after="+")
    return join(who, tag("span", row.condition, class_="why")) if row.condition else who


def _status(row: Row) -> Html:
    look = "warn" if row.status != PROVEN else "good"
    return tag(
        "span",
        tag("span", row.status, class_=look),
        tag("span", row.reason, class_="why") if row.reason else None,
        class_="all",
    )


def _basis(row: Row) -> Html:
    if math.isinf(row.epsilon):
        return tag("span", "nothing", class_="why")
    lines = [*row.theorem.split(", "), f"by {row.route}"]
    return tag("span", *(tag("span", text, class_="why") for text in lines if text), class_="all")


def _part(names: list[str], seated: bool) -> str:
    word = "party" if len(names) == 1 else "parties"
    return f"{word} with a committee seat" if seated else f"{word} without a seat"
