"""The pages of a party's console: its studies, ledger, scores on demand, table, people and keys, and the doctor.

Why an attempt failed is said in words with what to do, by the classes of errors that docs/reference/errors.md explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from colonnade import errors
from colonnade.console.app import Pages
from colonnade.console.layout import refusal, render, send_report_frame
from colonnade.console.party_view import ENDED, UNDER_WAY, WAITING, PartyView
from colonnade.console.privacy_explainer import GENERAL_NOTE, CapForecast, applicable_row
from colonnade.console.security_middleware import form_fields
from colonnade.disk import reading
from colonnade.drawing.canvas import figure
from colonnade.drawing.charts import Histogram, HistogramChart
from colonnade.errors import ColonnadeError, PrivacyError
from colonnade.federation.agent_store import AttemptRecord, ProposedStudy
from colonnade.federation.members import MemberIdentity
from colonnade.federation.processes import Progress
from colonnade.federation.scores.service import OpenQuestion
from colonnade.privacy.ledger.approvers import Approver
from colonnade.privacy.statement import LargestEpsilon, spending_chart
from colonnade.report import wording
from colonnade.study import ledger_view
from colonnade.tables.profiling import ColumnProfile
from colonnade.wire import Certificate


def format_time_left(deadline: str) -> str:
    """How long there is to answer, in words."""
    left = datetime.fromisoformat(deadline) - datetime.now(UTC)
    hours = left.total_seconds() / 3600
    if hours <= 0:
        return "the deadline has passed"
    if hours < 1:
        return f"{math.ceil(hours * 60)} minutes left"
    return f"{hours:.0f} hours left" if hours < 48 else f"{hours / 24:.0f} days left"


PAGE = 50
"""Studies on one page of the history."""
SHOWN_DIGITS = 16
"""Digits of the digest that a yes names."""
_MOST_STUDY_COLUMNS = 200
_ASKED = ("refused", "description", "trial", "attempts", "ledger_news", "early_ends", "people", "labels", "forecast")
_UNKNOWN = dict.fromkeys((*_ASKED, "counting"))
"""What the page asks of a check that has not ended."""
_NOTES = ("align", "keys", "schema_news", "security", "again", "earlier", "watches")
"""Sentences of an assessment that are shown below the price."""
_WHAT_TO_DO: Mapping[type[errors.ColonnadeError], str] = {
    errors.SchemaError: "The schema of the study is wrong: tell the analyst what the sentence says.",
    errors.DataError: "Our table does not fit: look at Our table, mend the file, and ask the analyst to propose again.",
    errors.StudyError: "The study's file is wrong, or members hold different ones: tell the analyst.",
    errors.PolicyError: "Our policy does not allow it: change party.toml if you agree, or leave it.",
    errors.BudgetError: "A cap would be exceeded: see Ledger. Wait for a period to pass, or raise the cap.",
    errors.LedgerError: "The ledger cannot be used: press Verify on the page Ledger, and restore a copy if it fails.",
    errors.PrivacyError: "A promise was asked for that nothing proves: tell the analyst.",
    errors.StorageError: "A file could not be written: make room on the disk, and see that it is ours.",
    errors.IdentityError: "A key or certificate is not the one that was agreed on: see People and keys.",
    errors.ConnectError: "The hub was not reached: run Doctor. It is tried again by itself where retries are allowed.",
    errors.PeerLost: "Somebody was lost on the way. It is tried again by itself where all allow retries.",
    errors.PeerStopped: "Another participant ended it: ask that one.",
    errors.ProtocolError: "A message was not as agreed: all should run the same release of Colonnade.",
    errors.DisagreementError: "Participants hold different things: compare releases and files with the others.",
    errors.CapacityError: "The numbers are too large for the study's arithmetic: tell the analyst.",
    errors.ShareError: "A check of the computation failed: somebody deviated, or a machine is faulty. Ask the others.",
}
_OTHERWISE = "Read the sentence, or the log of the attempt; Doctor looks at the usual causes."


@dataclass(frozen=True)
class AttemptFailure:
    """Why an attempt ended, and what to do about it."""

    sentence: str
    advice: str
    code: int | None
    """The exit code; its chapter in docs/reference/errors.md has more."""


def explain_failure(message: str | None, record: Mapping[str, Any]) -> AttemptFailure | None:
    """What a person reads of an attempt that did not end well; ``None`` where it did, or still runs."""
    sentence = message or record.get("message")
    if not sentence or record.get("status") == "finished":
        return None
    found = wording.number(record.get("exit_code"))
    code = None if found is None else int(found)
    advice = next((text for cls, text in _WHAT_TO_DO.items() if cls.exit_code == code), _OTHERWISE)
    return AttemptFailure(str(sentence), advice, code)


def _why_ended(entry: ProposedStudy) -> str:
    """Why there is no result, where there is none."""
    if entry.state == "refused":
        return str((entry.assessment or {}).get("refused") or "It could not be checked.")
    if entry.state == "expired":
        return "Not everybody answered before the deadline. The analyst can propose it again."
    if entry.state == "declined" and not entry.why:
        named = ", ".join(party for party, said in entry.answers.items() if said is False)
        return f"{named} said no." if named else "The hub says that a party said no."
    return entry.why or ""


def _awaited(entry: ProposedStudy, progress: Progress | None) -> str:
    """What is being waited for, in one sentence."""
    if entry.state == "approved":
        unanswered = [party for party, said in entry.answers.items() if said is None]
        waited = wording.join_names(unanswered)
        return f"Approved. Waiting for the answer of {waited}." if waited else "Approved by all; it starts soon."
    if progress is None:
        return "It starts."
    if progress.waited_for:
        return f"Waiting for {wording.join_names(progress.waited_for)}."
    return f"It runs, in the phase {progress.phase}." if progress.phase else "It runs."


def show_inbox(request: Request) -> Response:
    """All proposals that wait for this party, the newest first."""
    view: PartyView = request.app.state.view
    asked = [
        {"entry": entry, "prices": view.prices(entry), "left": format_time_left(entry.deadline)}
        for entry in view.store.entries(WAITING)
    ]
    return render(request, "inbox.html", asked=asked)


def show_running(request: Request) -> Response:
    """All studies under way; the page is loaded anew when something changes."""
    view: PartyView = request.app.state.view
    studies = []
    for entry in view.store.entries(UNDER_WAY):
        attempts = view.store.attempts(entry.id)
        progress = view.store.progress(entry.id) if entry.state == "running" else None
        shown = {"sentence": _awaited(entry, progress), "sent": wording.size(progress.bytes) if progress else ""}
        studies.append(shown | {"entry": entry, "attempt": attempts[-1] if attempts else None, "progress": progress})
    return render(request, "running.html", studies=studies)


def show_history(request: Request) -> Response:
    """All studies that are over, the newest first; with ``?study=`` the report of one of them."""
    view: PartyView = request.app.state.view
    chosen, said = request.query_params.get("study", ""), request.query_params.get("page", "1")
    place = int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 6 and int(said) else 1
    found = view.store.entries(ENDED, PAGE + 1, PAGE * (place - 1))
    ended = [
        {"entry": entry, "attempts": _attempts(view, entry), "reason": _why_ended(entry)}
        | {"report": view.store.report(entry.id) is not None}
        for entry in found[:PAGE]
    ]
    shown = None
    with suppress(errors.ProposalError):
        entry = view.entry(chosen)
        shown = entry if entry.state in ENDED and view.store.report(entry.id) else None
    return render(request, "history.html", ended=ended, shown=shown, place=place, more=len(found) > PAGE)


def show_study(request: Request) -> Response:
    """Show a study, or take the answer to it."""
    view: PartyView = request.app.state.view
    entry = _entry(request)
    if request.method == "POST":
        return _answer(request, view, entry)
    return render(request, "study.html", **_study_values(view, entry))


def send_report(request: Request) -> Response:
    """The report of a study that is done."""
    found = request.app.state.view.store.report(_entry(request).id)
    if found is None:
        raise HTTPException(404)
    return send_report_frame(found)


def _entry(request: Request) -> ProposedStudy:
    view: PartyView = request.app.state.view
    try:
        return view.entry(request.path_params["id"])
    except errors.ProposalError:
        raise HTTPException(404) from None


def _study_values(view: PartyView, entry: ProposedStudy) -> dict[str, Any]:
    assessment = _UNKNOWN | dict(view.forecast(entry))
    prices, caps = view.prices(entry), view.caps(entry)
    return {
        "entry": entry,
        "asker": find_analyst(view, entry.analyst),
        "left": format_time_left(entry.deadline),
        "assessment": assessment,
        "columns": describe_columns(assessment),
        "prices": prices,
        "caps": caps,
        "tightest": min(caps, key=lambda cap: cap.cap - cap.after, default=None),
        "needs": describe_needs(assessment),
        "notes": [assessment[key] for key in _NOTES if assessment.get(key)],
        "general": GENERAL_NOTE,
        "watcher": applicable_row(entry.analyst, entry.analyst in entry.answers),
        "digits": entry.digest[:SHOWN_DIGITS],
        "rule": view.config.content.policy.rule,
        "attempts": _attempts(view, entry),
        "together": cost_of_attempts(view, entry),
        "progress": view.store.progress(entry.id) if entry.state == "running" else None,
        "report": view.store.report(entry.id) is not None,
    }


def _attempts(view: PartyView, entry: ProposedStudy) -> list[tuple[AttemptRecord, AttemptFailure | None]]:
    """The attempts of a study, the first one first, and why those failed that did."""
    return [(each, explain_failure(each.message, view.record(each))) for each in view.store.attempts(entry.id)]


def cost_of_attempts(view: PartyView, entry: ProposedStudy) -> list[str]:
    """What all attempts cost together, for whoever learns most; nothing where there was no second one."""
    for attempt in reversed(view.store.attempts(entry.id)):
        with suppress(reading.UnreadableFile, KeyError, TypeError, PrivacyError):
            said = reading.read_json(attempt.folder / "privacy.json")
            found = LargestEpsilon.parse(said | said["attempts"])
            return [
                f"All {said['attempts']['number']} attempts together tell {row.who} at most epsilon "
                f"{wording.epsilon(row.epsilon)}, {condition}."
                for row, condition in found.figures
            ]
    return []


def find_analyst(view: PartyView, name: str) -> MemberIdentity | None:
    """Who asks, with the six words of the key; ``None`` where the federation's file does not tell."""
    try:
        members = view.members()
    except (errors.FederationError, errors.IdentityError):
        return None
    return None if members is None or name not in members.roles else MemberIdentity.of(members, name)


def describe_columns(assessment: Any) -> dict[str, Any]:
    """Our columns that the study reads, with what the schema says of them, and how many of others."""
    names = wording.sequence(assessment.get("columns"))
    said = wording.mapping(assessment.get("says"))
    return {
        "own": [(name, said.get(name, "")) for name in names[:_MOST_STUDY_COLUMNS]],
        "more": max(0, len(names) - _MOST_STUDY_COLUMNS),
        "others": sorted(wording.mapping(assessment.get("others")).items()),
    }


def describe_needs(assessment: Any) -> list[tuple[str, str]]:
    """What a run takes of this party's machine, in words."""
    figures = wording.mapping(assessment.get("preflight"))
    found: list[tuple[str, str, Callable[[float], str]]] = [
        ("seconds", "Time, about", wording.seconds),
        ("bytes", "Sent by us", wording.size),
        ("memory", "Memory", wording.size),
        ("rounds", "Rounds of messages", "{:,.0f}".format),
        ("partitions", "Partitions, added up by our workers", "{:,.0f}".format),
    ]
    figures_of = {key: wording.number(figures.get(key)) for key, _, _ in found}
    return [(name, show(value)) for key, name, show in found if (value := figures_of[key]) is not None]


def _answer(request: Request, view: PartyView, entry: ProposedStudy) -> Response:
    session, fields = request.state.session, form_fields(request)
    what = fields.get("answer", "")
    host, how = request.client.host if request.client else "", "the proxy" if session.at_proxy else "a link"
    by = Approver(session.person, "console", f"{host}, signed in by {how}")
    if what == "approve":
        if fields.get("digits") != entry.digest[:SHOWN_DIGITS] or fields.get("sure") != "yes":
            return refusal(
                request, 400, "Nothing was approved: tick the box that names the digest and the price first. [CO019]"
            )
        view.store.approve(entry.id, by, view.config.content.policy.rule)
        detail = f"digest {entry.digest}"
    elif what == "decline":
        detail = fields.get("why", "").strip()
        if not detail:
            return refusal(
                request, 400, "Nothing was declined: say why in a few words, which the analyst will read. [CO020]"
            )
        view.store.decline(entry.id, str(by), detail)
    elif what == "withdraw":
        detail = fields.get("why", "").strip() or "withdrawn in the console"
        view.store.withdraw(entry.id, str(by), detail)
    else:
        return refusal(request, 400, "Nothing was done: this form has no such answer. [CO021]")
    view.audit.add(session.person, session.role, what, entry.id, detail)
    return RedirectResponse(f"/studies/{entry.id}", 303)


_LATEST = 100
_FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
AGAIN = 3
"""Seconds after which a page whose table is still being read loads itself anew."""
_MOST_STUDIES = 50
_MOST_COLUMNS = 500
_LEVELS = {"good": "well", "unsure": "look at it", "bad": "wrong"}


def show_ledger(request: Request) -> Response:
    """The ledger; with ``?verify=1`` it is checked as a whole first."""
    view: PartyView = request.app.state.view
    verdict = _verdict(view) if request.query_params.get("verify") == "1" else None
    return render(request, "ledger.html", **ledger_values(view), verdict=verdict)


def export_ledger(request: Request) -> Response:
    """The whole chain as a file."""
    view: PartyView = request.app.state.view
    kind, session = request.path_params["kind"], request.state.session
    known = view.book()
    if known is None or kind not in _FORMATS:
        raise HTTPException(404)
    text, _ = ledger_view.export_chain(known, kind)
    view.audit.add(session.person, session.role, "exported the ledger", None, kind)
    attached = {"content-disposition": f'attachment; filename="ledger.{kind}"'}
    return Response(text, media_type=_FORMATS[kind], headers=attached)


def ledger_values(view: PartyView) -> dict[str, Any]:
    """What the page of the ledger shows."""
    delta = max(cap.delta for cap in view.config.caps)
    known = view.book()
    if known is None:
        return {"facts": None, "file": view.config.ledger}
    facts = ledger_view.ledger_facts(known, delta, None, view.config)
    left = [
        CapForecast.of(each | {"period": each["days"], "after": each["spent"], "at_most": each["spent"]})
        for each in facts["left"]
    ]
    return {
        "facts": facts,
        "file": view.config.ledger,
        "caps": left,
        "totals": [
            (
                "all others together" if who == "others" else who,
                wording.epsilon(math.inf if total is None else total, 4),
            )
            for who, total in facts["totals"].items()
        ],
        "entries": facts["entries"][: -_LATEST - 1 : -1],
        "chart": draw_spending(*known.spending_over_time(delta), datetime.now(UTC), delta),
        "count": wording.count_noun(len(facts["entries"]), "entry", "entries"),
        "delta": wording.power(delta),
        "own": view.name,
    }


def _verdict(view: PartyView) -> tuple[bool, str]:
    """Whether the ledger is whole, and a sentence."""
    known = view.book()
    if known is None:
        return True, "There is no ledger yet, so there is nothing to verify."
    try:
        known.verify()
    except ColonnadeError as error:
        return False, str(error)
    return True, f"The ledger is whole: every hash, entry and sum was computed anew. Its head is {known.head}."


def describe_served(kept: OpenQuestion) -> dict[str, Any]:
    """A model that stands open for questions: who may ask, whether now, at what price, and what was told today.

    ``today`` is how many people were told about, and how many more may be; ``None`` where we ask, and others count.
    ``paid`` says whether this period is in our ledger.
    """
    task, study = kept.standing.task, kept.standing.study
    price = "exact, no promise" if task.exact else f"epsilon {wording.epsilon(study.statement.epsilon(task.to))}"
    asked = None if kept.answers is None else kept.answers.count_today()
    left = max(0, kept.standing.per_day - (asked or 0))
    if kept.ready:
        here = "all are here"
    elif kept.stay.open:
        here = "open, others are waited for" if kept.ready is False else "open, we are there"
    else:
        here = f"not now: {kept.stay.last or 'it has not begun'}"
    return {
        "name": study.name,
        "asker": task.to,
        "here": here,
        "price": price,
        "today": None if kept.answers is None else (asked or 0, left),
        "period": kept.standing.period,
        "paid": asked is not None,
    }


def show_scores(request: Request) -> Response:
    """All models of this party that stand open."""
    scores = request.app.state.view.scores
    return render(
        request, "scores.html", served=[describe_served(kept) for kept in scores.kept.values()] if scores else []
    )


def show_table(request: Request) -> Response:
    """The table under the newest schema, or under that of ``?study=``."""
    values = _table_values(request.app.state.view, request.query_params.get("study", ""))
    answer = render(request, "table.html", **values)
    if values["reading"]:
        answer.headers["refresh"] = str(AGAIN)
    return answer


def _table_values(view: PartyView, chosen: str) -> dict[str, Any]:
    found = list(islice(view.schemas(), _MOST_STUDIES))
    entry, path = next((pair for pair in found if pair[0].id == chosen), found[0] if found else (None, None))
    data = view.config.data
    values: dict[str, Any] = {
        "studies": [each for each, _ in found],
        "entry": entry,
        "file": view.config.source().name,
        "called": data.name if isinstance(data, Path) else view.config.source().name,
        "survey": None,
        "problem": None,
        "reading": False,
        "chart": None,
        "rows": [],
    }
    if path is None:
        return values
    try:
        survey = view.survey(path)
    except ColonnadeError as error:
        return values | {"problem": str(error)}
    if survey is None:
        return values | {"reading": True}
    rows = [
        (
            each.name if each.name == each.source else f"{each.name} (column {each.source})",
            each.summary,
            f"{each.missing:,}",
            f"{each.clipped:,}",
            f"{each.unknown:,}",
        )
        for each in survey.columns[:_MOST_COLUMNS]
    ]
    return values | {"survey": survey, "rows": rows, "chart": draw_columns(survey.columns)}


_MOST_PANELS = 60


def draw_spending(
    when: Sequence[datetime], found: Mapping[str, Sequence[float]], now: datetime, delta: float
) -> Markup | None:
    """What each observer had learned over time, until now; those who were told things exactly are left out."""
    if not when or not any(line and all(map(math.isfinite, line)) for line in found.values()):
        return None
    return Markup(figure("spending", spending_chart(when, found, now, delta)))  # noqa: S704 - made of escaped parts


def draw_columns(columns: Sequence[ColumnProfile]) -> Markup | None:
    """A histogram of each column."""
    panels = [
        Histogram(each.name, each.labels, [float(bar) for bar in each.bars], borders=each.ends or ())
        for each in columns[:_MOST_PANELS]
    ]
    if not panels:
        return None
    rest = len(columns) - len(panels)
    more = f" The first {len(panels)} columns; {rest} more are in the table above." if rest > 0 else ""
    chart = HistogramChart(
        panels,
        "{:,.0f} rows".format,
        title="Cells of each column",
        note=f"How the cells lie, as a study would read them.{more}",
        description="; ".join(f"{each.name}: {_peak(each)}" for each in columns[:_MOST_PANELS]),
    )
    return Markup(figure("cells", chart))  # noqa: S704 - made of escaped parts


def _peak(each: ColumnProfile) -> str:
    if not any(each.bars):
        return "no cells"
    most = max(range(len(each.bars)), key=each.bars.__getitem__)
    if each.labels:
        return f"most often {each.labels[most]}, {each.bars[most]:,} times"
    low, high = each.ends or ("", "")
    return f"between {low} and {high}, most in part {most + 1} of {len(each.bars)}"


def show_people(request: Request) -> Response:
    """Everybody in the federation, as this party knows them; a person who has compared the words accepts newcomers."""
    view: PartyView = request.app.state.view
    if request.method == "POST":
        return _accept(request, view)
    problem, members, pending = None, None, []
    try:
        members, pending = view.members(), view.newcomers()
    except ColonnadeError as error:
        problem = str(error)
    return render(
        request,
        "people.html",
        federation=view.federation,
        members=members,
        people=[] if members is None else [MemberIdentity.of(members, name) for name in members.roles],
        pending=[(each, *view.comparison(each)) for each in pending],
        problem=problem,
        own=_own_key(view),
        key_file=view.config.key,
        party_file=view.config.path.name,
        approval=view.config.approval,
    )


def _accept(request: Request, view: PartyView) -> Response:
    session, fields = request.state.session, form_fields(request)
    name, pin = fields.get("name", ""), fields.get("pin", "")
    if not fields.get("words", "").strip():
        return refusal(request, 400, "Nobody was accepted: type the words that are asked for. [CO018]")
    left = view.accept(name, pin, fields["words"])
    what = "accepted a member" if left is None else "typed other words for a member"
    view.audit.add(session.person, session.role, what, None, f"{name}, {pin}")
    if left is not None:
        told = f"Nobody was accepted: these are not the words. Tries that are left: {left}. [CO780]"
        return refusal(request, 403, told)
    return RedirectResponse("/people", 303)


def _own_key(view: PartyView) -> MemberIdentity | None:
    """Our own key; ``None`` where the certificate cannot be read."""
    try:
        return MemberIdentity(view.name, "party", Certificate.load(view.config.key.with_suffix(".crt")))
    except ColonnadeError:
        return None


def show_doctor(request: Request) -> Response:
    """The checks, once they were asked for with ``?run=1``; they read the table and dial the hub."""
    view: PartyView = request.app.state.view
    query = request.query_params
    # A study that could not be priced in a child with limits is not planned in this process, which has none.
    known = (entry for entry, _ in view.schemas() if (entry.assessment or {}).get("statement"))
    studies = list(islice(known, _MOST_STUDIES))
    entry = next((each for each in studies if each.id == query.get("study")), None)
    checks = [(each, _LEVELS[each.level]) for each in view.checks(entry)] if query.get("run") == "1" else None
    return render(request, "doctor.html", studies=studies, entry=None if checks is None else entry, checks=checks)


PARTY_PAGES: Pages = (
    ("/inbox", "Inbox", show_inbox),
    ("/running", "Running", show_running),
    ("/history", "History", show_history),
    ("/ledger", "Ledger", show_ledger),
    ("/ledger/export.{kind}", None, export_ledger),
    ("/scores", "Scores", show_scores),
    ("/table", "Our table", show_table),
    ("/people", "People and keys", show_people),
    ("/doctor", "Doctor", show_doctor),
    ("/studies/{id}", None, show_study),
    ("/studies/{id}/report", None, send_report),
)
"""The pages of a party's console, in the order of the menu."""
