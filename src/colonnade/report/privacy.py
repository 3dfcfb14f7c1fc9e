"""What is promised against whom, who saw what, and what the alignment of people told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from colonnade.drawing.canvas import Html, breakable, figure, join, table, tag
from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy.observers import COORDINATOR, Trust
from colonnade.privacy.statement import PROVEN, LargestEpsilon, Statement, StatementRow, parse_row, promises_chart
from colonnade.protocols.align import MODES, AlignmentLeak, AlignmentTask
from colonnade.report import wording
from colonnade.report.wording import mapping, number, sequence
from colonnade.tables.keys import Key


def within(trust: Trust) -> str:
    """The observers against whom the study promises something, in words."""
    return "within the threshold" if trust.committee else "short of all parties together"


def privacy(statement: Statement, attempts: Mapping[str, Any] | None = None) -> Html:
    """The privacy table, what it means, and the assumptions under which it holds.

    ``attempts`` is what ``privacy.json`` says of all attempts together, where there was more than one.
    """
    shown = (*statement.rows, *statement.missing_noise)
    rows = [
        (
            _who(row),
            tag("strong", wording.epsilon(row.epsilon)),
            wording.power(row.delta),
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
        _together(attempts or {}),
        figure("epsilon", promises_chart(statement.rows)) if statement.rows else None,
        tag("h3", "This holds as long as"),
        tag("ul", *(tag("li", text) for text in statement.assumptions)),
    )


def _together(attempts: Mapping[str, Any]) -> Html | None:
    """What all attempts cost together; None where there was one."""
    try:
        rows = [parse_row(row) for key in ("rows", "missing_noise") for row in sequence(attempts.get(key))]
    except (PrivacyError, KeyError, TypeError, ValueError):  # it is left out, as whatever the record does not say
        rows = []
    if not rows:
        return None
    count = number(attempts.get("number")) or 0
    caption = (
        f"This was attempt {count:.0f}, and the table above is about one. An attempt that was lost may have opened "
        f"everything too: so much all {count:.0f} tell together at most."
    )
    cells = [(_who(row), tag("strong", wording.epsilon(row.epsilon)), wording.power(row.delta)) for row in rows]
    return table(("Observer", "Epsilon of all attempts", "Delta"), cells, caption=caption, numeric=(1, 2))


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
    limit = f"while no more than {wording.count_noun(trust.threshold, 'committee member')} pool their shares"
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
        for some, told in _group_receivers(names, to):
            who = join(
                wording.join_names(some), tag("span", _part(some, sits) if trust.committee else "", class_="why")
            )
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


def _group_receivers(names: list[str], to: str | None) -> list[tuple[list[str], str]]:
    """The parties that receive the result and those that do not; with no ``to`` all of them receive it."""
    parts = (
        ([name for name in names if to in (None, name)], "yes"),
        ([name for name in names if to not in (None, name)], "no"),
    )
    return [(some, told) for some, told in parts if some]


def _meaning(statement: Statement) -> Html:
    largest = LargestEpsilon.of(statement)
    bound = math.inf if largest.row is None else largest.row.epsilon
    if math.isinf(bound):
        text = f"Some observer {within(statement.trust)} is promised nothing; the table says why."
        return tag("p", tag("strong", text), class_="note")
    return tag(
        "p",
        "Take two tables that differ in one person. The chance of whatever an observer may see is at most e",
        tag("sup", "epsilon"),
        " times as great with one as with the other, plus delta. The largest epsilon for "
        f"anyone {within(statement.trust)} is {wording.epsilon(bound)}, a factor of {wording.times(bound)}; "
        f"delta is {wording.power(statement.delta)}.{_otherwise(largest)} Smaller is safer.",
    )


def _otherwise(largest: LargestEpsilon) -> str:
    """The same figure if owners draw otherwise; nothing where the statement has none."""
    row = largest.missing
    if row is None:
        return ""
    if math.isinf(row.epsilon):
        return f" Nothing is promised against {row.who}, {row.condition}."
    return f" It is {wording.epsilon(row.epsilon)}, for {row.who}, {row.condition}."


def _who(row: StatementRow) -> Html:
    who = breakable(row.who, after="+")
    return join(who, tag("span", row.condition, class_="why")) if row.condition else who


def _status(row: StatementRow) -> Html:
    look = "warn" if row.status != PROVEN else "good"
    return tag(
        "span",
        tag("span", row.status, class_=look),
        tag("span", row.reason, class_="why") if row.reason else None,
        class_="all",
    )


def _basis(row: StatementRow) -> Html:
    if math.isinf(row.epsilon):
        return tag("span", "nothing", class_="why")
    lines = [*row.theorem.split(", "), f"by {row.route}"]
    return tag("span", *(tag("span", text, class_="why") for text in lines if text), class_="all")


def _part(names: list[str], seated: bool) -> str:
    word = "party" if len(names) == 1 else "parties"
    return f"{word} with a committee seat" if seated else f"{word} without a seat"


_MODES = {
    "ot": "Keys were compared under secrets of which every party has its own, by oblivious transfers (mode ot): no "
    "helper is trusted.",
    "dh": "Keys were compared under secrets of which every party has its own (mode dh): no helper is trusted.",
    "helper": "Hashes of keys, under a key that the coordinator does not have, were compared by it (mode helper).",
    "fuzzy": "Similar keys were paired by the coordinator, as Bloom filters (mode fuzzy): a weaker guarantee, and a "
    "pair may be wrong.",
}


def alignment(run: Mapping[str, Any], trust: Trust) -> Html | None:
    """How people were matched, in counts, and who learned what; None where the parties did not match people."""
    found = mapping(run.get("alignment"))
    if not found:
        return None
    leaks = leakage(found, trust)
    return join(
        tag("h2", "Whom it is about"),
        tag("p", _opening(found, run, trust)),
        _lists(run, found),
        tag("h3", "Who learned what from this") if leaks else None,
        _again(found) if leaks else None,
        _leaks(leaks, "ot" if found["mode"] == "ot" else "dh") if leaks else None,
    )


def people(run: Mapping[str, Any]) -> int | None:
    """How many people all parties hold, from the record of the coordinator or else of a party; None: not known."""
    records = [mapping(run.get("alignment")), *(_own(facts) for facts in mapping(run.get("parties")).values())]
    found = [number(record.get("matched")) for record in records]
    return next((int(count) for count in found if count is not None and count >= 0), None)


def leakage(found: Mapping[str, Any], trust: Trust) -> tuple[AlignmentLeak, ...]:
    """What everybody learns from an alignment of this mode; empty where the record names no mode that exists."""
    mode, hidden, pad_to = found.get("mode"), found.get("hidden"), found.get("pad_to")
    if mode not in MODES or not isinstance(hidden, bool):
        return ()
    try:
        parts = _partitions(found)
        return AlignmentTask(trust, (Key("key"),), mode=mode, hidden=hidden, pad_to=pad_to, partitions=parts).leakage
    except StudyError:
        return ()


def _partitions(found: Mapping[str, Any]) -> int:
    """In how many parts people were found; a record without lanes does not say it. 0 stands for what is no number."""
    count = found.get("partitions", 1)
    return count if isinstance(count, int) else 0


def _opening(found: Mapping[str, Any], run: Mapping[str, Any], trust: Trust) -> str:
    count, took = people(run), number(found.get("seconds"))
    on = wording.join_names(wording.sequence(found.get("on")))
    how_many = f": {wording.count_noun(count, 'person', 'people')}" if count is not None else ""
    lanes = _partitions(found)
    when = "Before anything was computed" if lanes <= 1 else f"In {lanes:,} partitions, lane by lane,"
    parts = [
        f"{wording.join_names(trust.owners)} need not hold the same people. {when} they found those "
        f"whom all of them hold{f', by {on}' if on else ''}{how_many}. The result is about these."
    ]
    if found.get("hidden") is True:
        parts.append("No party knows which of its people they are: who matched stayed in shares.")
    if found.get("reused") is True:
        parts.append("An earlier alignment of the same lists was used again.")
    elif took is not None and took >= 0:
        parts.append(f"That{'' if lanes <= 1 else ', and adding them up,'} took {wording.seconds(took)}.")
    return " ".join([*parts, _MODES.get(str(found.get("mode")), "")]).strip()


def _lists(run: Mapping[str, Any], found: Mapping[str, Any]) -> Html | None:
    """How long each party's list was and how many rows it left out, as far as the record says."""
    lengths = mapping(found.get("rows"))
    parties = {str(name): _own(facts) for name, facts in mapping(run.get("parties")).items()}
    rows = []
    for name in [*lengths, *(name for name in parties if name not in lengths)]:
        own = parties.get(str(name), {})
        cells = [number(lengths.get(name)), *(number(own.get(key)) for key in ("rows", "missing", "repeated"))]
        if any(cell is not None for cell in cells):
            rows.append((name, *("–" if cell is None else f"{cell:,.0f}" for cell in cells)))
    if not rows:
        return None
    heads = ("Party", "Keys compared", "Rows", "Without a full key", "With a repeated key")
    return table(heads, rows, caption="What each party brought. Rows left out are its own affair.", numeric=range(1, 5))


def _again(found: Mapping[str, Any]) -> Html | None:
    if found.get("reused") is not True:
        return None
    return tag("p", "The table is about the first time; using it again told only that no list had changed.")


def _leaks(leaks: tuple[AlignmentLeak, ...], alone: str) -> Html:
    rows = [(leak.who, leak.learns, leak.beyond or "–") for leak in leaks]
    caption = "All of this is outside every epsilon."
    if any("leader" in leak.learns + leak.beyond for leak in leaks):
        caption += (
            f" Of the parties with a seat one leads: in {alone} that with the shortest list, in helper the first."
        )
    return table(("Who", "Learned", "What it would take to learn more"), rows, caption=caption)


def _own(facts: object) -> Mapping[str, Any]:
    return mapping(mapping(facts).get("alignment"))
