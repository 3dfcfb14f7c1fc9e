"""A model over noised messages: who sent what under which noise, what each party kept, and what that promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.errors import StudyError
from colonnade.models.glm.guarantees import Guarantee, Guarantees
from colonnade.privacy.observers import COORDINATOR
from colonnade.privacy.statement import PROVEN, Statement
from colonnade.report import words
from colonnade.report.markup import Html, join, table, tag
from colonnade.report.regression import coefficients
from colonnade.report.words import counted, mapping, number

KIND = "glm"
SCORES = "glm-scores"
_HEADS = (
    "Who",
    "Own columns",
    "Columns of others",
    "Received",
    "Noise",
    "Sealed bytes: sizes and times",
    "Number of rows",
    "Weights",
)
_RELAYS = join([COORDINATOR, tag("span", "relays", class_="why")])
_READS = join(["analyst", tag("span", "reads the result and nothing else", class_="why")])


def exchange(model: Any, run: Mapping[str, Any], owners: Sequence[str]) -> Html | None:
    """Facts, parties, released weights and promises; nothing where the model was never fitted."""
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    task = _task(model, run)
    if not names or not task:
        return None
    return join(
        [
            tag("h2", "The result"),
            _lead(model, task, len(names)),
            _facts(task),
            _parties(task, owners),
            _released(model, names, owners),
            _promises(model),
        ]
    )


def title(model: Any, columns: int) -> str:
    """What was computed, in a few words."""
    on = f" on {counted(columns, 'column')}" if columns else ""
    return f"one {getattr(model, 'family', 'linear')} model over noised messages{on}"


def who_saw_what(model: Any, run: Mapping[str, Any], owners: Sequence[str], *, aligned: bool = False) -> Html:
    """Roles against things, where parties tell each other noised numbers and nobody holds shares."""
    active, release = str(_task(model, run).get("active") or ""), getattr(model, "release", False) is True
    others = [name for name in owners if name != active]
    told = "; everyone's, with noise" if release else ""
    slopes, scores = f"noisy slopes of {active or 'the label'}", f"noisy scores of {words.listed(others)}"
    rows: list[tuple[object, ...]] = [
        (
            join([name, tag("span", "holds the label", class_="why") if name == active else None]),
            "its own",
            "never",
            scores if name == active else slopes,
            "its own",
            "of its own messages",
            "public",
            f"its own{told}",
        )
        for name in owners
    ]
    seen = "everyone's, with noise" if release else "none"
    rows.append((_RELAYS, "has none", "never", "nothing", "none", "of all messages", "public", seen))
    rows.append((_READS, "has none", "never", "nothing", "none", "none", "public", seen))
    return _seen(_HEADS, rows, aligned)


def who_saw_scores(to: str, owners: Sequence[str], *, aligned: bool = False) -> Html:
    """The same of scores by kept weights, which one party is told."""
    others = words.listed([name for name in owners if name != to])
    rows: list[tuple[object, ...]] = []
    for name in owners:
        who = join([name, tag("span", "is told the scores", class_="why") if name == to else None])
        told = (f"noisy scores of {others}", "none") if name == to else ("nothing", "its own")
        kept = ("of its own messages", "exact", "its own", "yes" if name == to else "no")
        rows.append((who, "its own", "never", *told, *kept))
    rows.append((_RELAYS, "has none", "never", "nothing", "none", "of all messages", "exact", "none", "no"))
    rows.append((_READS, "has none", "never", "nothing", "none", "none", "none", "none", "no"))
    return _seen((*_HEADS, "Answers"), rows, aligned)


def _seen(heads: Sequence[str], rows: Sequence[Sequence[object]], aligned: bool) -> Html:
    last = "Besides what the alignment told, there was nothing else." if aligned else "There was nothing else."
    caption = f"What each role held or saw during the run, while not all parties pool it. {last}"
    return join([tag("h2", "Who saw what"), table(heads, rows, caption=caption)])


def besides(statement: Statement, guarantees: Guarantees) -> Guarantees:
    """The promises that the table of observers does not make; of the observers only the analyst is named again."""
    named = {row.who for row in statement.rows} - {"analyst"}
    return Guarantees(tuple(row for row in guarantees if row.observer not in named))


def _task(model: Any, run: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(getattr(model, "plan_", None)) or mapping(run.get("task"))


def _lead(model: Any, task: Mapping[str, Any], columns: int) -> Html:
    rows, label = number(task.get("rows")), getattr(model, "label_", None)
    about = f" of {label}" if label else ""
    people = f"From {rows:,.0f} people, a" if rows else "A"
    kept = "Each party keeps its own weights, in its kept.json and nowhere else: this report holds none of them."
    if getattr(model, "release", False):
        kept = "Each party keeps its own weights; those below were published with noise, which was charged besides."
    return tag("p", f"{people} {task.get('family', 'linear')} model{about} on {counted(columns, 'column')}. {kept}")


def _facts(task: Mapping[str, Any]) -> Html | None:
    batches, rate = number(task.get("batches")), number(task.get("learning_rate"))
    facts = [
        ("Family", task.get("family")),
        ("Method", task.get("method")),
        ("Label at", task.get("active")),
        ("Epochs", _plain(task.get("epochs"))),
        ("Batches", _plain(batches) if batches and batches > 1 else None),
        ("Learning rate", _plain(rate) if rate else None),
        ("Slopes clipped to", _plain(task.get("message_clip"))),
        ("Noise", task.get("law")),
    ]
    listed = [join([tag("dt", name), tag("dd", value)]) for name, value in facts if value not in (None, "")]
    return tag("dl", *listed, class_="facts") if listed else None


def _parties(task: Mapping[str, Any], owners: Sequence[str]) -> Html | None:
    deviations, sides, active = mapping(task.get("deviations")), mapping(task.get("sides")), task.get("active")
    rows = []
    for name in owners:
        side, labelled = mapping(sides.get(name)), name == active
        if name not in deviations and not side:
            continue
        ball = "–" if labelled and task.get("method") == "alternating" else _plain(side.get("weight_bound")) or "–"
        clip = "–" if labelled else _plain(side.get("score_clip")) or "–"
        noise, ridge = _plain(deviations.get(name)) or "–", _plain(side.get("ridge")) or "–"
        sent, kept = ("slopes", "weights, factors of the others") if labelled else ("scores", "weights")
        rows.append((name, sent, noise, ridge, ball, clip, kept))
    if not rows:
        return None
    heads = ("Party", "Sent", "Noise", "Ridge", "Weights within", "Scores within", "Kept")
    caption = "Noise is the standard deviation on each number that a party sent. All other figures are public bounds."
    return join([tag("h3", "The parties"), table(heads, rows, caption=caption, numeric=range(2, 6))])


def _released(model: Any, names: Sequence[str], owners: Sequence[str]) -> Html | None:
    try:
        rows = [[float(value) for value in row] for row in getattr(model, "coef_", ())]
    except StudyError:  # every party kept its own
        return None
    if not rows or any(len(row) != len(names) for row in rows):
        return None
    return coefficients(model, names, rows, owners)


def _promises(model: Any) -> Html | None:
    statement, found = getattr(model, "privacy_", None), getattr(model, "guarantees_", None)
    if not isinstance(statement, Statement) or not isinstance(found, Guarantees):
        return None
    heads = ("What is seen", "By whom", "Tells about", "Epsilon", "Rests on", "Status")
    caption = (
        "Messages are private by their noise; what the others make of them, their own weights included, tells no more. "
        "Epsilon is rounded up."
    )
    rows = [_promise(row) for row in besides(statement, found)]
    return join([tag("h3", "What messages and weights tell"), table(heads, rows, caption=caption, numeric=(3,))])


def _promise(row: Guarantee) -> tuple[object, ...]:
    look = "good" if row.status == PROVEN else "warn"
    basis = tag("span", *(tag("span", text, class_="why") for text in row.theorem.split(", ") if text), class_="all")
    status = tag("span", row.status, class_=look)
    return (row.what, row.observer, row.about, tag("strong", words.epsilon(row.epsilon)), basis, status)


def _plain(value: object) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.4g}"
