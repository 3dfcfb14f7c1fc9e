"""One HTML file about one run: no request leaves it, and whatever the record lacks is left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.privacy.statement import Statement
from colonnade.report import cost, exchange, promise, words
from colonnade.report import result as learned
from colonnade.report.alignment import alignment, people
from colonnade.report.answers import title as title_of
from colonnade.report.markup import Html, join, tag
from colonnade.report.style import style
from colonnade.report.words import mapping, number

NAME = "report.html"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(
    run: Mapping[str, Any], statement: Statement, model: Any, evaluation: Mapping[str, Any] | None = None
) -> str:
    """The report as one HTML document.

    Args:
        run: what ``run.json`` of the coordinator holds; anything may be missing.
        statement: the privacy statement of the study.
        model: the fitted model.
        evaluation: a comparison with other methods, for a study whose data may be looked at.
    """
    run = mapping(run)
    title = str(run.get("study") or "A private study")
    sections = [
        ("privacy", "Privacy", promise.privacy(statement)),
        ("people", "Whom it is about", alignment(run, statement.trust)),
        ("seen", "Who saw what", _seen(run, statement, model)),
        ("result", "Result", learned.result(model, run, statement.trust.owners)),
        ("evaluation", "Does it work?", learned.evaluation(mapping(evaluation)) if evaluation else None),
        ("cost", "Time and bytes", cost.time_and_bytes(run)),
        ("check", "How to check it", cost.how_to_check(run)),
    ]
    kept = [(key, name, body) for key, name, body in sections if body]
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in kept]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title}: what was learned, and what was not"),
        tag("style", Html(style())),
    )
    body = tag(
        "body",
        tag("header", _brand(), tag("h1", title), *_opening(run, statement, model)),
        tag(
            "main",
            tag("nav", tag("ul", *links), aria_label="Sections"),
            *(tag("section", inside, id=key, aria_label=name) for key, name, inside in kept),
        ),
        tag(
            "footer",
            tag("p", "Written by Colonnade. This file is complete in itself and asks nothing of a network."),
        ),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def write_report(
    folder: str | Path,
    run: Mapping[str, Any],
    statement: Statement,
    model: Any,
    evaluation: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``report.html`` into the run directory and return its path."""
    target = Path(folder) / NAME
    partial = target.with_suffix(".partial")
    partial.write_text(render(run, statement, model, evaluation), encoding="utf-8")
    partial.replace(target)
    return target


def _opening(run: Mapping[str, Any], statement: Statement, model: Any) -> list[Html | None]:
    failed = run.get("status") == "failed"
    if failed:
        said = f"This run failed: {run.get('message') or run.get('error') or 'the record does not say why'}"
        return [tag("p", said, class_="note"), _figures(run, statement, model)]
    what = title_of(model, _columns(run, model))
    lead = (
        f"{words.listed(statement.trust.owners)} computed {what}; nobody, the coordinator included, "
        f"learned more about a person than the {'tables below say' if run.get('alignment') else 'table below says'}."
    )
    return [tag("p", lead, class_="lead"), _lost(run), _figures(run, statement, model)]


def _lost(run: Mapping[str, Any]) -> Html | None:
    """Whom the study went on without; a record may hold anything."""
    lost = run.get("lost")
    if not isinstance(lost, list) or not lost:
        return None
    said = f"The study went on without {words.listed(lost)}, lost on the way: what was opened is the same."
    return tag("p", said, class_="note")


def _figures(run: Mapping[str, Any], statement: Statement, model: Any) -> Html:
    bound, columns = promise.worst(statement), _columns(run, model)
    took, sent, common = number(run.get("seconds")), cost.bytes_sent(run), people(run)
    figures = [
        (f"worst epsilon {promise.within(statement.trust)}", None if bound is None else words.epsilon(bound)),
        ("delta", words.power(statement.delta)),
        ("columns", f"{columns:,}" if columns else None),
        ("parties", f"{len(statement.trust.owners):,}") if common is None else ("people in common", f"{common:,}"),
        ("from start to end", None if took is None else words.seconds(took)),
        ("sent by everyone", None if sent is None else words.size(sent)),
    ]
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in figures if value]
    return tag("dl", *shown, class_="figures")


def _seen(run: Mapping[str, Any], statement: Statement, model: Any) -> Html:
    aligned = _aligned(run)
    if getattr(model, "kind", "") == exchange.KIND:
        return exchange.who_saw_what(model, run, statement.trust.owners, aligned=aligned["aligned"])
    if getattr(model, "kind", "") == exchange.SCORES:
        return exchange.who_saw_scores(model.to, statement.trust.owners, aligned=aligned["aligned"])
    return promise.who_saw_what(statement.trust, getattr(model, "to", None), **aligned)


def _aligned(run: Mapping[str, Any]) -> dict[str, bool]:
    found = mapping(run.get("alignment"))
    return {"aligned": bool(found), "hidden": found.get("hidden") is True}


def _columns(run: Mapping[str, Any], model: Any) -> int:
    known = len(getattr(model, "feature_names_in_", ()))
    return known or int(number(mapping(run.get("task")).get("columns")) or 0)


def _brand() -> Html:
    shapes = [(2, 3, 22, 3), (4, 8, 3, 11), (11.5, 8, 3, 11), (19, 8, 3, 11), (2, 21, 22, 3)]
    bars = [tag("rect", x=x, y=y, width=wide, height=tall) for x, y, wide, tall in shapes]
    logo = tag("svg", *bars, viewBox="0 0 26 26", aria_hidden="true", focusable="false")
    return tag("div", logo, tag("span", join(["Colonnade · report of a run"])), class_="brand")
