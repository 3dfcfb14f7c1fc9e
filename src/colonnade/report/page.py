"""One HTML file about one run: it loads nothing from elsewhere, and leaves out what the record does not say.

Each file is complete in itself; so is the page about probabilities beside what happened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from colonnade.drawing.canvas import Html, breakable, chart_style, figure, join, named_values, table, tag
from colonnade.models import serialization
from colonnade.models.assessment import Assessment, ThresholdDecision
from colonnade.models.pictures import calibration_chart, ranking_chart
from colonnade.privacy.observers import OTHERS
from colonnade.privacy.statement import LargestEpsilon, Statement
from colonnade.report import cost, privacy, wording
from colonnade.report.cost import participants, whole
from colonnade.report.privacy import alignment, people
from colonnade.report.sections import Model, ReportSection, evaluation as compared
from colonnade.report.wording import link_terms, mapping, number, sequence

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_COMPLETE = "Written by Colonnade. This file is complete in itself and asks nothing of a network."


def style() -> str:
    """The style sheet of pages and of the charts on them."""
    return chart_style() + resources("colonnade.report").joinpath("style.css").read_text(encoding="utf-8")


def document(title: str, header: Sequence[object], main: Sequence[object], sheet: str = "") -> str:
    """The whole file; ``sheet`` is added to the style sheet that all pages share."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style() + sheet)),
    )
    body = tag("body", tag("header", *header), tag("main", *main), tag("footer", tag("p", _COMPLETE)))
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def write_document(target: Path, text: str, *, private: bool = False) -> Path:
    """Write the file as a whole or not at all, and return its path; other users can never read a private one."""
    serialization.write_whole(target, text.encode(), private=private)
    return target


def write_assessment(target: Path, name: str, found: Assessment, decision: ThresholdDecision | None = None) -> Path:
    """Write a page about probabilities beside the truth, which other users cannot read, and return its path."""
    figures = [
        ("people", f"{found.count:,}"),
        ("of whom have the label", f"{found.prevalence:.1%}"),
        ("AUC", _figure(found.auc)),
        ("log-loss", f"{found.log_loss:.4f}"),
        ("Brier score", f"{found.brier:.4f}"),
        ("slope of the recalibration", _figure(found.slope)),
        ("intercept of the recalibration", _figure(found.intercept)),
    ]
    if decision is not None:
        figures += [
            ("threshold", f"{decision.threshold:.3g}"),
            ("accuracy", _figure(decision.accuracy)),
            ("balanced accuracy", _figure(decision.balanced_accuracy)),
            ("precision: of those predicted, who have the label", _figure(decision.precision)),
            ("recall: of those with the label, who are predicted", _figure(decision.recall)),
        ]
    said = "" if found.lacking is None else f" Not everything can be computed: {found.lacking}."
    header = [
        tag("div", "Colonnade · assessment", class_="brand"),
        tag("h1", f"{name}, beside the truth"),
        tag("p", f"{_NOT_PUBLIC}{said}", class_="note"),
    ]
    right = figure("reliability", calibration_chart(found.points, found.count, found.slope, name))
    main = [
        tag("section", tag("h2", "Are the probabilities right?"), right),
        tag("section", tag("h2", "Does the order tell who has the label?"), _ranking(found, name)),
        tag("section", tag("h2", "Figures"), table(("", "value"), figures, caption="Of these people.", numeric=(1,))),
    ]
    return write_document(target, document(f"{name}: assessment", header, main), private=True)


def _ranking(found: Assessment, name: str) -> Html:
    if found.auc is None:
        return tag("p", f"There is no curve of thresholds: {found.lacking}.", class_="note")
    return figure("roc", ranking_chart(found.roc, found.auc, name))


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


_NOT_PUBLIC = (
    "These figures were computed from the labels of people without noise: they are for those who hold the labels, not "
    "for publication."
)


NAME = "report.html"
_LONG = 8
_MOST = 30
_OTHERS = " The last row is everybody but {} together, as far as each study's threshold allows."


def render(
    run: Mapping[str, Any],
    statement: Statement,
    model: Model,
    section: ReportSection[Model],
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
        ("privacy", "Privacy", privacy.privacy(statement, mapping(run.get("attempts")))),
        ("people", "Whom it is about", alignment(run, statement.trust)),
        ("seen", "Who saw what", section.seen(model, run, statement.trust)),
        ("deviating", "If somebody deviates", describe_deviations(run)),
        ("enough", "Enough people?", enough_people(run)),
        ("result", "Result", section.result(model, run, statement.trust.owners) if model.fitted else None),
        ("evaluation", "Does it work?", compared(mapping(evaluation)) if evaluation else None),
        ("cost", "Time and bytes", cost.time_and_bytes(run)),
        ("check", "How to check it", cost.how_to_check(run, section.noise)),
    ]
    kept = [(key, name, body) for key, name, body in sections if body]
    if run.get("words") is True:  # records of earlier releases do not ask for them
        bodies, explained = link_terms([body for _, _, body in kept])
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
    section: ReportSection[Model],
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
        f"{wording.join_names(statement.trust.owners)} computed {what}; nobody, the coordinator included, "
        f"learned more about a person than the {'tables below say' if run.get('alignment') else 'table below says'}."
    )
    return [tag("p", about, class_="about") if about else None, tag("p", lead, class_="lead"), _lost_parties(run)]


def _lost_parties(run: Mapping[str, Any]) -> Html | None:
    """The parties that were lost during the run; None where the record names none."""
    lost = run.get("lost")
    if not isinstance(lost, list) or not lost:
        return None
    said = f"The study went on without {wording.join_names(lost)}, lost on the way: what was opened is the same."
    return tag("p", said, class_="note")


def _figures(run: Mapping[str, Any], statement: Statement, columns: int) -> Html:
    largest = LargestEpsilon.of(statement).row
    took, sent, common = number(run.get("seconds")), cost.bytes_sent(run), people(run)
    figures = [
        (f"largest epsilon {privacy.within(statement.trust)}", largest and wording.epsilon(largest.epsilon)),
        ("delta", wording.power(statement.delta)),
        ("columns", f"{columns:,}" if columns else None),
        ("parties", f"{len(statement.trust.owners):,}") if common is None else ("people in common", f"{common:,}"),
        ("from start to end", None if took is None else wording.seconds(took)),
        (f"sent by {'this party' if run.get('own') else 'everyone'}", None if sent is None else wording.size(sent)),
    ]
    small = run.get("words") is True
    looks = {value: "long" if small and value and len(value) > _LONG else None for _, value in figures}
    shown = [tag("div", tag("dt", name), tag("dd", value, class_=looks[value])) for name, value in figures if value]
    return tag("dl", *shown, class_="figures")


def _columns(run: Mapping[str, Any], model: Model, section: ReportSection[Model]) -> int:
    """The number of columns, from the fitted model or else from the record; 0: not known."""
    known = section.columns(model) if model.fitted else 0
    return known or int(number(mapping(run.get("task")).get("columns")) or 0)


def _brand() -> Html:
    shapes = [(2, 3, 22, 3), (4, 8, 3, 11), (11.5, 8, 3, 11), (19, 8, 3, 11), (2, 21, 22, 3)]
    bars = [tag("rect", x=x, y=y, width=wide, height=tall) for x, y, wide, tall in shapes]
    logo = tag("svg", *bars, viewBox="0 0 26 26", aria_hidden="true", focusable="false")
    return tag("div", logo, tag("span", join("Colonnade · report of a run")), class_="brand")


def enough_people(run: Mapping[str, Any]) -> Html | None:
    """The forecast of a run, and a warning where there were too few people; None where the record has none."""
    found = mapping(run.get("forecast"))
    error, enough, rows, people = (number(found.get(key)) for key in ("error", "enough", "rows", "people"))
    if not found or enough is None:
        return None
    least = "" if people is None else f" An error of {enough:g} takes about {people:,.0f} people."
    if error is None or rows is None:
        said = f"How many people there were is not said here.{least}"
    else:
        said = f"With {rows:,.0f} people noise alone is expected to move {found.get('of')} by about {error:.2g}.{least}"
    lines = [tag("h2", "Were there enough people?"), tag("p", said)]
    if found.get("too_few") is True:
        cure = "Take the figures below as mostly noise; more people, or a larger epsilon, would change that."
        lines.append(tag("p", tag("strong", "There were too few people. "), cure, class_="note"))
    note = "The forecast follows from the study alone; it is rough, and no data was looked at."
    return join(*lines, tag("p", note, class_="soft small"))


def describe_deviations(run: Mapping[str, Any]) -> Html | None:
    """What was done about participants that deviate; None for records of releases that did nothing about it."""
    found = mapping(run.get("security"))
    said = found.get("sentence")
    if not isinstance(said, str):
        return None
    return join(tag("h2", "If somebody had deviated"), tag("p", f"{said[:1].upper()}{said[1:]}."), _checks(run))


def _checks(run: Mapping[str, Any]) -> Html | None:
    """How many claims were checked, the most that any seat counted, and how often a wrong one would have passed."""
    each = [checks for facts in participants(run).values() if (checks := mapping(facts.get("checks")))]
    claims = max((number(checks.get("claims")) or 0.0 for checks in each), default=0.0)
    errors = [error for checks in each if (error := number(checks.get("error"))) is not None and 0 < error < 1]
    if not claims or not errors:
        return None
    how = "all of them, lane by lane" if mapping(run.get("lanes")) else "all of them together"
    said = (
        f"The seats made {claims:,.0f} claims about their shares and checked {how}; none failed. A "
        "run in which somebody cheats passes them with a chance of at most 2"
    )
    return tag("p", said, tag("sup", f"-{math.floor(-math.log2(max(errors)))}"), ".")


def own_part(run: Mapping[str, Any], statement: Statement, view: Assessment | None = None) -> Html | None:
    """The section for this party's eyes; None in the record of a coordinator.

    ``view`` is what it sees of the model's chances for the fit's people, if it holds their labels.
    """
    own = mapping(run.get("own"))
    if not own:
        return None
    name = own.get("party")
    kept = own.get("kept")
    misfits = sum(number(count) or 0 for count in mapping(run.get("misfits")).values())
    found = [
        ("Rows of the own table", whole(run.get("rows_held"))),
        ("Cells outside the schema", whole(misfits) if "misfits" in run else None),
        ("Approved by", mapping(run.get("approval")).get("by")),
        ("Ledger", own.get("ledger")),
        ("Head of the ledger", tag("span", run["ledger_head"], class_="mono") if run.get("ledger_head") else None),
        ("Kept for itself", None if not kept else f"{own.get('keeps')}, in {kept}: back it up, nobody else has it"),
    ]
    return join(
        tag("h2", f"For {name} alone"),
        tag("p", f"This page is {name}'s own: it names what no other participant is told.", class_="note"),
        named_values(found),
        *(tag("p", line) for line in sequence(own.get("lines"))),
        None if view is None else _chances(view),
        _ledger_totals(own, statement),
    )


def _chances(view: Assessment) -> Html:
    """A reliability diagram of the fit's people."""
    figures = [
        ("People", f"{view.count:,}"),
        ("AUC", None if view.auc is None else f"{view.auc:.3f}"),
        ("Log-loss", f"{view.log_loss:.4f}"),
        ("Slope of the recalibration", None if view.slope is None else f"{view.slope:.2f}"),
    ]
    lacking = "" if view.lacking is None else f" Not everything can be computed: {view.lacking}."
    said = (
        "Chances by own columns and by the scores that came with noise, beside the labels. People whom a model has "
        "seen make it look better than new ones will; these figures have no noise and are not for publication."
    )
    return join(
        tag("h3", "Are the chances right? In sample: the people of the fit"),
        tag("p", said + lacking, class_="note"),
        figure("reliability", calibration_chart(view.points, view.count, view.slope, "in sample")),
        named_values(figures),
    )


def _ledger_totals(own: Mapping[str, Any], statement: Statement) -> Html | None:
    totals = mapping(own.get("totals"))
    if not totals:
        return None
    here = {row.observer.label: row.epsilon for row in statement.rows}
    rows = [
        (breakable(who, after="+"), wording.epsilon(here[who]) if who in here else "–", _total(total))
        for who, total in list(totals.items())[:_MOST]
    ]
    studies = number(own.get("studies"))
    counted = "" if studies is None else f" of {wording.count_noun(int(studies), 'study', 'studies')}"
    caption = (
        f"Epsilon by this study and by all{counted} in the ledger, at delta {wording.power(statement.delta)}, rounded "
        "up. What studies cost together is composed, not added."
        f"{_OTHERS.format(own.get('party')) if OTHERS in totals else ''}"
    )
    rest = len(totals) - len(rows)
    caption += f" The first {len(rows)} observers; `colonnade ledger show` has {rest} more." if rest else ""
    return join(
        tag("h3", "What observers have learned about these people"),
        table(("Observer", "This study", "All studies"), rows, caption=caption, numeric=(1, 2)),
    )


def _total(value: object) -> str:
    found = number(value)
    return wording.epsilon(math.inf if found is None else found)
