"""A model over noised messages: what each party sent, with which noise, what it kept, and what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.drawing.canvas import Html, join, named_values, table, tag
from colonnade.kinds.glm.preflight import Guarantee
from colonnade.privacy.observers import COORDINATOR, Trust
from colonnade.privacy.statement import PROVEN
from colonnade.report import wording
from colonnade.report.sections import ReportSection, Run, coefficients, counts
from colonnade.report.wording import count_noun, mapping, number

if TYPE_CHECKING:
    from colonnade.kinds.glm.kept_scores import KeptScores
    from colonnade.kinds.glm.model import GLM

_NOISE = "Noise, in 2⁻²⁰ of the squared sensitivity"
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
_RELAYS = join(COORDINATOR, tag("span", "relays", class_="why"))
_READS = join("analyst", tag("span", "reads the result and nothing else", class_="why"))


def title(model: GLM, columns: int) -> str:
    """What was computed, in a few words."""
    on = f" on {count_noun(columns, 'column')}" if columns else ""
    return f"one {model.family} model over noised messages{on}"


def exchange(model: GLM, run: Run, owners: Sequence[str]) -> Html:
    """Facts, parties, released weights and promises."""
    return join(
        tag("h2", "The result"),
        _lead(model),
        _facts(model.plan_),
        _parties(model.plan_, owners),
        coefficients(model, owners) if model.release else None,
        _promises(model),
    )


def who_saw_what(model: GLM, run: Run, trust: Trust) -> Html:
    """What each role saw, where parties send each other noised numbers and nobody holds shares."""
    plan = model.plan_ if model.fitted else mapping(run.get("task"))
    active = str(plan.get("active") or "")
    others = [name for name in trust.owners if name != active]
    told = "; everyone's, with noise" if model.release else ""
    slopes, scores = f"noisy slopes of {active or 'the label'}", f"noisy scores of {wording.join_names(others)}"
    rows: list[tuple[object, ...]] = [
        (
            join(name, tag("span", "holds the label", class_="why") if name == active else None),
            "its own",
            "never",
            scores if name == active else slopes,
            "its own",
            "of its own messages",
            "public",
            f"its own{told}",
        )
        for name in trust.owners
    ]
    seen = "everyone's, with noise" if model.release else "none"
    rows.append((_RELAYS, "has none", "never", "nothing", "none", "of all messages", "public", seen))
    rows.append((_READS, "has none", "never", "nothing", "none", "none", "public", seen))
    return _seen(_HEADS, rows, run)


def who_saw_scores(model: KeptScores, run: Run, trust: Trust) -> Html:
    """What each role saw, where one party receives scores by weights that each party keeps."""
    to = model.recipient
    others = wording.join_names([name for name in trust.owners if name != to])
    rows: list[tuple[object, ...]] = []
    for name in trust.owners:
        who = join(name, tag("span", "is told the scores", class_="why") if name == to else None)
        told = (f"noisy scores of {others}", "none") if name == to else ("nothing", "its own")
        kept = ("of its own messages", "exact", "its own", "yes" if name == to else "no")
        rows.append((who, "its own", "never", *told, *kept))
    rows.append((_RELAYS, "has none", "never", "nothing", "none", "of all messages", "exact", "none", "no"))
    rows.append((_READS, "has none", "never", "nothing", "none", "none", "none", "none", "no"))
    return _seen((*_HEADS, "Answers"), rows, run)


def _seen(heads: Sequence[str], rows: Sequence[Sequence[object]], run: Run) -> Html:
    aligned = mapping(run.get("alignment"))
    last = "Besides what the alignment told, there was nothing else." if aligned else "There was nothing else."
    caption = f"What each role held or saw during the run, while not all parties pool it. {last}"
    return join(tag("h2", "Who saw what"), table(heads, rows, caption=caption))


def _lead(model: GLM) -> Html:
    rows = number(model.plan_.get("rows"))
    people = f"From {rows:,.0f} people, a" if rows else "A"
    kept = "Each party keeps its own weights, in its kept.json and nowhere else: this report holds none of them."
    if model.release:
        kept = "Each party keeps its own weights; those below were published with noise, which was charged besides."
    columns = count_noun(len(model.feature_names_in_), "column")
    return tag("p", f"{people} {model.plan_['family']} model of {model.label_} on {columns}. {kept}")


def _facts(task: Mapping[str, Any]) -> Html | None:
    batches, rate = number(task.get("batches")), number(task.get("learning_rate"))
    found = [
        ("Family", task.get("family")),
        ("Method", task.get("method")),
        ("Label at", task.get("active")),
        ("Epochs", _plain(task.get("epochs"))),
        ("Batches", _plain(batches) if batches and batches > 1 else None),
        ("Learning rate", _plain(rate) if rate else None),
        ("Slopes clipped to", _plain(task.get("message_clip"))),
        ("Noise", task.get("law")),
    ]
    return named_values(found)


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
    return join(tag("h3", "The parties"), table(heads, rows, caption=caption, numeric=range(2, 6)))


def _promises(model: GLM) -> Html:
    heads = ("What is seen", "By whom", "Tells about", "Epsilon", "Rests on", "Status")
    caption = (
        "Messages are private by their noise; what the others make of them, their own weights included, tells no more. "
        "Epsilon is rounded up."
    )
    rows = [_promise(row) for row in model.guarantees_.besides(model.privacy_)]
    return join(tag("h3", "What messages and weights tell"), table(heads, rows, caption=caption, numeric=(3,)))


def _promise(row: Guarantee) -> tuple[object, ...]:
    look = "good" if row.status == PROVEN else "warn"
    basis = tag("span", *(tag("span", text, class_="why") for text in row.theorem.split(", ") if text), class_="all")
    status = tag("span", row.status, class_=look)
    return (row.what, row.observer, row.about, tag("strong", wording.epsilon(row.epsilon)), basis, status)


def _plain(value: object) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.4g}"


SECTION: ReportSection[GLM] = ReportSection(
    title, exchange, columns=lambda model: len(model.feature_names_in_), seen=who_saw_what, noise=_NOISE
)
SCORES: ReportSection[KeptScores] = ReportSection(
    title=lambda model, columns: f"predictions for {model.recipient} by weights that each of them keeps",
    result=counts,
    columns=lambda model: 0,
    seen=who_saw_scores,
    noise=_NOISE,
)
