"""One HTML file about one run: it loads nothing from elsewhere, and leaves out what the record does not say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.models.assessment import Assessment
from colonnade.privacy.largest import Largest
from colonnade.privacy.statement import Statement
from colonnade.report import cost, promise, words
from colonnade.report.alignment import alignment, people
from colonnade.report.deviating import deviating
from colonnade.report.document import document, write_document
from colonnade.report.enough import enough_people
from colonnade.report.evaluation import evaluation as compared
from colonnade.report.glossary import linked
from colonnade.report.markup import Html, join, tag
from colonnade.report.own import own_part
from colonnade.report.section import Model, Section
from colonnade.report.words import mapping, number

NAME = "report.html"
_LONG = 8


def render(
    run: Mapping[str, Any],
    statement: Statement,
    model: Model,
    section: Section[Model],
    evaluation: Mapping[str, Any] | None = None,
    view: Assessment | None = None,
) -> str:
    """The report as one HTML document.

    Args:
        run: what ``run.json`` of the coordinator, or of one party, holds; anything may be missing.
        statement: the privacy statement of the study.
        model: the model; of one that is not fitted no result is shown.
        section: what a page says about such models.
        evaluation: a comparison with other methods, for a study whose data may be looked at.
        view: what one party alone sees of the model's chances; only for its own page.
    """
    run = mapping(run)
    title = str(run.get("study") or "A private study")
    columns = _columns(run, model, section)
    sections = [
        ("own", "For one party", own_part(run, statement, view)),
        ("privacy", "Privacy", promise.privacy(statement)),
        ("people", "Whom it is about", alignment(run, statement.trust)),
        ("seen", "Who saw what", section.seen(model, run, statement.trust)),
        ("deviating", "If somebody deviates", deviating(run)),
        ("enough", "Enough people?", enough_people(run)),
        ("result", "Result", section.result(model, run, statement.trust.owners) if model.fitted else None),
        ("evaluation", "Does it work?", compared(mapping(evaluation)) if evaluation else None),
        ("cost", "Time and bytes", cost.time_and_bytes(run)),
        ("check", "How to check it", cost.how_to_check(run, section.noise)),
    ]
    kept = [(key, name, body) for key, name, body in sections if body]
    if run.get("words") is True:  # records of earlier releases do not ask for them
        bodies, explained = linked([body for _, _, body in kept])
        kept = [(key, name, body) for (key, name, _), body in zip(kept, bodies, strict=True)]
        kept += [("words", "Words", explained)] if explained else []
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in kept]
    opening = [*_lead(run, statement, section.title(model, columns)), _figures(run, statement, columns)]
    main = [
        tag("nav", tag("ul", *links), aria_label="Sections"),
        *(tag("section", inside, id=key, aria_label=name) for key, name, inside in kept),
    ]
    return document(f"{title}: what was learned, and what was not", [_brand(), tag("h1", title), *opening], main)


def write_report(
    folder: str | Path,
    run: Mapping[str, Any],
    statement: Statement,
    model: Model,
    section: Section[Model],
    evaluation: Mapping[str, Any] | None = None,
    view: Assessment | None = None,
) -> Path:
    """Write ``report.html`` into the run directory and return its path; its sizes and times are not for everybody."""
    text = render(run, statement, model, section, evaluation, view)
    return write_document(Path(folder) / NAME, text, private=True)


def _lead(run: Mapping[str, Any], statement: Statement, what: str) -> list[Html | None]:
    """Who computed what and whom they lost, or why the run failed."""
    if run.get("status") == "failed":
        said = f"This run failed: {run.get('message') or run.get('error') or 'the record does not say why'}"
        return [tag("p", said, class_="note")]
    about = run.get("description")
    lead = (
        f"{words.listed(statement.trust.owners)} computed {what}; nobody, the coordinator included, "
        f"learned more about a person than the {'tables below say' if run.get('alignment') else 'table below says'}."
    )
    return [tag("p", about, class_="about") if about else None, tag("p", lead, class_="lead"), _lost(run)]


def _lost(run: Mapping[str, Any]) -> Html | None:
    """The parties that were lost during the run; None where the record names none."""
    lost = run.get("lost")
    if not isinstance(lost, list) or not lost:
        return None
    said = f"The study went on without {words.listed(lost)}, lost on the way: what was opened is the same."
    return tag("p", said, class_="note")


def _figures(run: Mapping[str, Any], statement: Statement, columns: int) -> Html:
    largest = Largest.of(statement).row
    took, sent, common = number(run.get("seconds")), cost.bytes_sent(run), people(run)
    figures = [
        (f"largest epsilon {promise.within(statement.trust)}", largest and words.epsilon(largest.epsilon)),
        ("delta", words.power(statement.delta)),
        ("columns", f"{columns:,}" if columns else None),
        ("parties", f"{len(statement.trust.owners):,}") if common is None else ("people in common", f"{common:,}"),
        ("from start to end", None if took is None else words.seconds(took)),
        (f"sent by {'this party' if run.get('own') else 'everyone'}", None if sent is None else words.size(sent)),
    ]
    small = run.get("words") is True
    looks = {value: "long" if small and value and len(value) > _LONG else None for _, value in figures}
    shown = [tag("div", tag("dt", name), tag("dd", value, class_=looks[value])) for name, value in figures if value]
    return tag("dl", *shown, class_="figures")


def _columns(run: Mapping[str, Any], model: Model, section: Section[Model]) -> int:
    """The number of columns, from the fitted model or else from the record; 0: not known."""
    known = section.columns(model) if model.fitted else 0
    return known or int(number(mapping(run.get("task")).get("columns")) or 0)


def _brand() -> Html:
    shapes = [(2, 3, 22, 3), (4, 8, 3, 11), (11.5, 8, 3, 11), (19, 8, 3, 11), (2, 21, 22, 3)]
    bars = [tag("rect", x=x, y=y, width=wide, height=tall) for x, y, wide, tall in shapes]
    logo = tag("svg", *bars, viewBox="0 0 26 26", aria_hidden="true", focusable="false")
    return tag("div", logo, tag("span", join("Colonnade · report of a run")), class_="brand")
