"""What a run took (seconds, rounds and bytes, by phase and by participant), and how to check it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.drawing.canvas import COLOURS, Html, figure, join, named_values, table, tag
from colonnade.drawing.charts import Bar, BarChart
from colonnade.privacy.observers import COORDINATOR
from colonnade.report import wording
from colonnade.report.wording import mapping, number
from colonnade.versions import own_version

_MOST_PARTICIPANTS = 8
_MOST_LINKS = 42
_OTHER = "other and waiting"
_FILES = (
    ("run.json", "who took part, when, how long, how many rounds and bytes"),
    ("privacy.json", "the privacy statement with the events it follows from"),
    ("events.jsonl", "one line for each thing that happened"),
    ("model.json", "the result, as far as this participant may know it"),
)


def participants(run: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What is known of each participant: the parties in their order, the coordinator last."""
    found = {str(name): mapping(facts) for name, facts in mapping(run.get("parties")).items()}
    last = mapping(run.get(COORDINATOR)) or found.pop(COORDINATOR, {})
    return {**found, COORDINATOR: last} if last else found


def bytes_sent(run: Mapping[str, Any]) -> float | None:
    """All bytes that participants sent: sealed, or unsealed where only that is known; None: not known."""
    everyone = participants(run).values()
    sent = [_bytes(facts, "sealed_sent", "sent") for facts in everyone]
    sent += [number(mapping(facts.get("lanes")).get("sent")) for facts in everyone]
    known = [value for value in sent if value is not None]
    return sum(known) if known else None


def time_and_bytes(run: Mapping[str, Any]) -> Html | None:
    """Bars of seconds, and tables of rounds and bytes; None where nothing of it was recorded."""
    parts = [_time(run), _rounds(run), _traffic(run), _lanes(run), _links(run)]
    return join(tag("h2", "Time and bytes"), *parts) if any(parts) else None


def how_to_check(run: Mapping[str, Any], noise: str) -> Html:
    """The digest, the files, the command and the versions; ``noise`` is the label of the recorded noise."""
    task = mapping(run.get("task"))
    found: list[tuple[str, object]] = [
        ("Digest of the study", _mono(run.get("digest"))),
        ("Started", run.get("started")),
        ("Ended", run.get("ended")),
        ("Machine", _machine(run)),
        ("Software", f"colonnade {own_version()}"),
        (noise, _mono(task.get("noise"))),
        ("Law of the noise", task.get("law")),
        ("Grid (gamma)", task.get("gamma")),
        ("Arithmetic", _arithmetic(task)),
        ("Rows at most", whole(task.get("rows_at_most"))),
        ("Rows", whole(task.get("rows"))),
    ]
    files = [tag("li", tag("code", name), ": ", what) for name, what in _FILES]
    return join(
        tag("h2", "How to check it"),
        tag(
            "p",
            "Every participant holds the same study file; its digest is below. Whoever has it can "
            "account for the privacy figures again, without data and without asking anyone:",
        ),
        tag("pre", tag("code", "colonnade privacy STUDY.toml")),
        named_values(found),
        tag("h3", "Files beside this report"),
        tag("ul", *files),
    )


def _time(run: Mapping[str, Any]) -> Html | None:
    everyone = participants(run)
    timed = {name: facts for name, facts in everyone.items() if _phases(facts)}
    if not timed:
        return None
    slowest = sorted(timed, key=lambda name: -_total(timed[name], "wall"))[:_MOST_PARTICIPANTS]
    shown = [name for name in timed if name in slowest]
    order = _order([timed[name] for name in shown])
    items, spoken = [], []
    for name in shown:
        for clock, word in (("wall", "clock"), ("cpu", "processor")):
            pieces = _pieces(timed[name], clock, order)
            if pieces:
                total = wording.seconds(sum(length for _, _, length in pieces))
                items.append(Bar(f"{name}, {word}", sum(length for _, _, length in pieces), total, pieces=pieces))
                each = ", ".join(f"{phase} {wording.seconds(length)}" for _, phase, length in pieces)
                spoken.append(f"{name}, {word} time {total}: {each}")
    if not items:
        return None
    used = {(colour, phase) for item in items for colour, phase, _ in item.pieces}
    key = [tag("li", tag("i", class_=f"b{colour}"), phase) for colour, phase in sorted(used)]
    counted = all(number(timed[name].get("processor_seconds")) is not None for name in shown)
    whose = "processor time of all threads" if counted else "the processor time of the same thread"
    caption = f"Clock time and {whose}, by phase; grey is everything else."
    if len(shown) < len(timed):
        caption += f" The {len(shown)} slowest of {len(timed)} participants."
    drawn = figure(
        "time", BarChart(items, title="Seconds of each participant by phase", description="; ".join(spoken)), caption
    )
    return join(tag("h3", "Seconds by phase"), tag("ul", *key, class_="key"), drawn)


def _titled_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str, numeric: Sequence[int], most: int
) -> Html | None:
    """A table below its title, and how many more rows ``run.json`` has; None where there are none."""
    if not rows:
        return None
    shown, rest = rows[:most], len(rows) - most
    more = f" The first {len(shown)}; run.json has {rest} more." if rest > 0 else ""
    return join(tag("h3", title), table(heads, shown, caption=caption + more, numeric=numeric))


def _rounds(run: Mapping[str, Any]) -> Html | None:
    """Rounds, messages and bytes of each phase; None for records of early releases, which do not have them."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for facts in participants(run).values():
        for name, spent in _phases(facts).items():
            if number(spent.get("rounds")) is not None:
                found.setdefault(name, []).append(spent)
    rows = []
    for name, each in found.items():
        rounds = max(_amount(spent, "rounds") for spent in each)
        messages, sent = (math.fsum(_amount(spent, key) for spent in each) for key in ("messages", "bytes"))
        if rounds or messages:
            rows.append((name, f"{rounds:,.0f}", f"{messages:,.0f}", wording.size(sent)))
    caption = (
        "A round is a wait for a message after having sent one: the most that any participant had. "
        "Messages and bytes, before sealing, are those that all of them sent."
    )
    heads = ("Phase", "Rounds", "Messages", "Bytes")
    return _titled_table("Rounds by phase", heads, rows, caption, range(1, 4), len(rows))


def _traffic(run: Mapping[str, Any]) -> Html | None:
    rows: list[tuple[object, ...]] = []
    for name, facts in participants(run).items():
        amounts = [_bytes(facts, key) for key in ("sent", "received", "sealed_sent", "sealed_received")]
        if any(amount is not None for amount in amounts):
            counts = mapping(facts.get("traffic"))
            rows.append(
                (name, *map(_size, amounts), *(whole(counts.get(key)) or "–" for key in ("messages", "rounds")))
            )
    heads = ("Participant", "Sent", "Received", "Sealed, sent", "Sealed, received", "Messages", "Rounds")
    caption = "Bytes at each participant, before sealing and as they travelled."
    return _titled_table("Bytes", heads, rows, caption, range(1, 7), 3 * _MOST_PARTICIPANTS)


def _lanes(run: Mapping[str, Any]) -> Html | None:
    """What workers did, in a study in lanes; the other tables are about heads."""
    rows: list[tuple[object, ...]] = []
    for name, facts in participants(run).items():
        if found := mapping(facts.get("lanes")):
            seconds = number(found.get("processor_seconds"))
            counts = [whole(found.get(key)) or "–" for key in ("workers", "lost_workers", "partitions", "attempts")]
            spent = "–" if seconds is None or seconds < 0 else wording.seconds(seconds)
            rows.append((name, *counts, spent, _size(number(found.get("sent")))))
    caption = "What workers did besides: the rest of this section is about the heads of participants alone."
    heads = ("Participant", "Workers", "Lost", "Partitions", "Runs of them", "Processor time", "Sealed, sent")
    return _titled_table("Lanes", heads, rows, caption, range(1, 7), 3 * _MOST_PARTICIPANTS)


_WAYS = {"direct": "directly", "hub": "through the hub", "both": "in part directly, in part through the hub"}


def _links(run: Mapping[str, Any]) -> Html | None:
    """By which way packets went, where the study lets participants connect to each other."""
    rows: list[tuple[object, ...]] = []
    for name, facts in participants(run).items():
        own = [(name, peer, link) for peer, link in mapping(facts.get("links")).items()]
        lanes = mapping(mapping(facts.get("lanes")).get("links")).items()
        for who, peer, link in (*own, *((f"workers of {name}", peer, link) for peer, link in lanes)):
            found = mapping(link)
            way = _WAYS.get(str(found.get("way")), "–")
            why = tag("span", found.get("why"), class_="why") if found.get("why") else None
            rows.append(
                (who, peer, join(way, why), *(_size(number(found.get(k))) for k in ("direct_sent", "hub_sent")))
            )
    caption = "How each participant reached the others, and the sealed bytes that it sent to them by either way."
    heads = ("Participant", "Peer", "Way", "Sent directly", "Sent through the hub")
    return _titled_table("Links", heads, rows, caption, (3, 4), _MOST_LINKS)


def _size(count: float | None) -> str:
    return "–" if count is None else wording.size(count)


def _phases(facts: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(name): mapping(times) for name, times in mapping(facts.get("phases")).items()}


def _total(facts: Mapping[str, Any], clock: str) -> float:
    inside = sum(_amount(times, clock) for times in _phases(facts).values())
    return max(inside, number(facts.get("seconds" if clock == "wall" else "processor_seconds")) or 0.0)


def _amount(times: Mapping[str, Any], clock: str) -> float:
    return max(number(times.get(clock)) or 0.0, 0.0)


def _order(shown: Sequence[Mapping[str, Any]]) -> list[str]:
    """The phases that get a colour: those that took longest, in the order in which they happened."""
    spent: dict[str, float] = {}
    for facts in shown:
        for name, times in _phases(facts).items():
            spent[name] = spent.get(name, 0.0) + _amount(times, "wall") + _amount(times, "cpu")
    longest = sorted(spent, key=lambda name: -spent[name])[: COLOURS - 1]
    return [name for name in spent if name in longest]


def _pieces(facts: Mapping[str, Any], clock: str, order: Sequence[str]) -> list[tuple[int, str, float]]:
    phases = _phases(facts)
    pieces = [(k, name, _amount(phases.get(name, {}), clock)) for k, name in enumerate(order)]
    rest = _total(facts, clock) - math.fsum(piece[2] for piece in pieces)
    pieces.append((COLOURS - 1, _OTHER, rest))
    return [piece for piece in pieces if piece[2] > 1e-9]


def _bytes(facts: Mapping[str, Any], *names: str) -> float | None:
    traffic = mapping(facts.get("traffic"))
    return next((found for name in names if (found := number(traffic.get(name))) is not None), None)


def _mono(value: object) -> Html | None:
    return None if value in (None, "") else tag("span", value, class_="mono")


def whole(value: object) -> str | None:
    """A count as text; None where it is no number."""
    found = number(value)
    return None if found is None else f"{found:,.0f}"


def _machine(run: Mapping[str, Any]) -> str:
    count = number(run.get("processors"))
    parts = [str(run.get("platform") or ""), wording.count_noun(int(count), "processor") if count else ""]
    return ", ".join(part for part in parts if part)


def _arithmetic(task: Mapping[str, Any]) -> str:
    primes = task.get("primes")
    count = number(primes) if not wording.sequence(primes) else float(len(wording.sequence(primes)))
    value, system = number(task.get("value_bits")), number(task.get("system_bits"))
    parts = [
        wording.count_noun(int(count), "prime") if count else "",
        f"values of at most {value:.0f} bits" if value else "",
        f"room for {system:.0f}" if system else "",
    ]
    return ", ".join(part for part in parts if part)
