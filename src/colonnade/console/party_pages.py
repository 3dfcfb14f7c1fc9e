"""The other pages of a party's console: its ledger, scores on demand, its table, people and keys, and the doctor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from colonnade.console import charts, study_pages
from colonnade.console.app import Pages
from colonnade.console.layout import refusal, render
from colonnade.console.party import PartyView
from colonnade.console.privacy_explainer import CapForecast
from colonnade.console.security_middleware import form_fields
from colonnade.errors import ColonnadeError
from colonnade.federation.members import MemberIdentity
from colonnade.federation.scores.service import OpenQuestion
from colonnade.report import wording
from colonnade.study import ledger_view
from colonnade.wire import Certificate

_LATEST = 100
_FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
AGAIN = 3
"""Seconds after which a page whose table is still being read loads itself anew."""
_MOST_STUDIES = 50
_MOST_COLUMNS = 500
_LEVELS = {"good": "well", "unsure": "look at it", "bad": "wrong"}


def show_ledger(request: Request) -> Response:
    """The ledger; with ``?verify=1`` it is checked as a whole first."""
    desk: PartyView = request.app.state.desk
    verdict = _verdict(desk) if request.query_params.get("verify") == "1" else None
    return render(request, "ledger.html", **ledger_values(desk), verdict=verdict)


def export_ledger(request: Request) -> Response:
    """The whole chain as a file."""
    desk: PartyView = request.app.state.desk
    kind, session = request.path_params["kind"], request.state.session
    known = desk.book()
    if known is None or kind not in _FORMATS:
        raise HTTPException(404)
    text, _ = ledger_view.export_chain(known, kind)
    desk.audit.add(session.person, session.role, "exported the ledger", None, kind)
    attached = {"content-disposition": f'attachment; filename="ledger.{kind}"'}
    return Response(text, media_type=_FORMATS[kind], headers=attached)


def ledger_values(desk: PartyView) -> dict[str, Any]:
    """What the page of the ledger shows."""
    delta = max(cap.delta for cap in desk.config.caps)
    known = desk.book()
    if known is None:
        return {"facts": None, "file": desk.config.ledger}
    facts = ledger_view.ledger_facts(known, delta, None, desk.config)
    left = [
        CapForecast.of(each | {"period": each["days"], "after": each["spent"], "at_most": each["spent"]})
        for each in facts["left"]
    ]
    return {
        "facts": facts,
        "file": desk.config.ledger,
        "caps": left,
        "totals": [
            (
                "all others together" if who == "others" else who,
                wording.epsilon(math.inf if total is None else total, 4),
            )
            for who, total in facts["totals"].items()
        ],
        "entries": facts["entries"][: -_LATEST - 1 : -1],
        "chart": charts.draw_spending(*known.spending_over_time(delta), datetime.now(UTC), delta),
        "count": wording.count_noun(len(facts["entries"]), "entry", "entries"),
        "delta": wording.power(delta),
        "own": desk.name,
    }


def _verdict(desk: PartyView) -> tuple[bool, str]:
    """Whether the ledger is whole, and a sentence."""
    known = desk.book()
    if known is None:
        return True, "There is no ledger yet, so there is nothing to verify."
    try:
        known.verify()
    except ColonnadeError as error:
        return False, str(error)
    return True, f"The ledger is whole: every hash, entry and sum was computed anew. Its head is {known.head}."


@dataclass(frozen=True)
class ServedModel:
    """One model that stands open for questions."""

    name: str
    asker: str
    """The party that may ask."""
    here: str
    """Whether it can be asked now, in words."""
    price: str
    """What a question tells the one who asks."""
    today: tuple[int, int] | None
    """How many people were told about today, and how many more may be; ``None`` where we ask, and others count."""
    times: int
    """How often a day one person may be asked about."""
    paid: bool
    """Whether today is in our ledger."""

    @classmethod
    def of(cls, kept: OpenQuestion) -> ServedModel:
        """A model, with what was counted of it today."""
        task, study = kept.standing.task, kept.standing.study
        price = "exact, no promise" if task.exact else f"epsilon {wording.epsilon(study.statement.epsilon(task.to))}"
        if kept.allowance is None:
            return cls(study.name, task.to, _readiness(kept), price, None, kept.standing.per_person, False)
        asked = kept.allowance.count_today()
        today = asked or 0, max(0, kept.standing.per_day - (asked or 0))
        return cls(study.name, task.to, _readiness(kept), price, today, kept.standing.per_person, asked is not None)


def _readiness(kept: OpenQuestion) -> str:
    if kept.ready:
        return "all are here"
    if kept.stay.open:
        return "open, others are waited for" if kept.ready is False else "open, we are there"
    return f"not now: {kept.stay.last or 'it has not begun'}"


def show_scores(request: Request) -> Response:
    """All models of this party that stand open."""
    scores = request.app.state.desk.scores
    return render(
        request, "scores.html", served=[ServedModel.of(kept) for kept in scores.kept.values()] if scores else []
    )


def show_table(request: Request) -> Response:
    """The table under the newest schema, or under that of ``?study=``."""
    values = _table_values(request.app.state.desk, request.query_params.get("study", ""))
    answer = render(request, "table.html", **values)
    if values["reading"]:
        answer.headers["refresh"] = str(AGAIN)
    return answer


def _table_values(desk: PartyView, chosen: str) -> dict[str, Any]:
    found = list(islice(desk.schemas(), _MOST_STUDIES))
    entry, path = next((pair for pair in found if pair[0].id == chosen), found[0] if found else (None, None))
    data = desk.config.data
    values: dict[str, Any] = {
        "studies": [each for each, _ in found],
        "entry": entry,
        "file": desk.config.source().name,
        "called": data.name if isinstance(data, Path) else desk.config.source().name,
        "survey": None,
        "problem": None,
        "reading": False,
        "chart": None,
        "rows": [],
    }
    if path is None:
        return values
    try:
        survey = desk.survey(path)
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
    return values | {"survey": survey, "rows": rows, "chart": charts.draw_columns(survey.columns)}


def show_people(request: Request) -> Response:
    """Everybody in the federation, as this party knows them; a person who has compared the words accepts newcomers."""
    desk: PartyView = request.app.state.desk
    if request.method == "POST":
        return _accept(request, desk)
    problem, members, pending = None, None, []
    try:
        members, pending = desk.members(), desk.newcomers()
    except ColonnadeError as error:
        problem = str(error)
    return render(
        request,
        "people.html",
        federation=desk.federation,
        members=members,
        people=[] if members is None else [MemberIdentity.of(members, name) for name in members.roles],
        pending=pending,
        problem=problem,
        own=_own_key(desk),
        key_file=desk.config.key,
        party_file=desk.config.path.name,
        approval=desk.config.approval,
    )


def _accept(request: Request, desk: PartyView) -> Response:
    session, fields = request.state.session, form_fields(request)
    name, pin = fields.get("name", ""), fields.get("pin", "")
    if fields.get("compared") != "yes":
        return refusal(request, 400, "Nobody was accepted: compare the six words first, and tick the box. [CO018]")
    desk.accept(name, pin)
    desk.audit.add(session.person, session.role, "accepted a member", None, f"{name}, {pin}")
    return RedirectResponse("/people", 303)


def _own_key(desk: PartyView) -> MemberIdentity | None:
    """Our own key; ``None`` where the certificate cannot be read."""
    try:
        return MemberIdentity(desk.name, "party", Certificate.load(desk.config.key.with_suffix(".crt")))
    except ColonnadeError:
        return None


def show_doctor(request: Request) -> Response:
    """The checks, once they were asked for with ``?run=1``; they read the table and dial the hub."""
    desk: PartyView = request.app.state.desk
    query = request.query_params
    # A study that could not be priced in a child with limits is not planned in this process, which has none.
    known = (entry for entry, _ in desk.schemas() if (entry.assessment or {}).get("statement"))
    studies = list(islice(known, _MOST_STUDIES))
    entry = next((each for each in studies if each.id == query.get("study")), None)
    checks = [(each, _LEVELS[each.level]) for each in desk.checks(entry)] if query.get("run") == "1" else None
    return render(request, "doctor.html", studies=studies, entry=None if checks is None else entry, checks=checks)


PARTY_PAGES: Pages = (
    ("/inbox", "Inbox", study_pages.show_inbox),
    ("/running", "Running", study_pages.show_running),
    ("/history", "History", study_pages.show_history),
    ("/ledger", "Ledger", show_ledger),
    ("/ledger/export.{kind}", None, export_ledger),
    ("/scores", "Scores", show_scores),
    ("/table", "Our table", show_table),
    ("/people", "People and keys", show_people),
    ("/doctor", "Doctor", show_doctor),
    ("/studies/{id}", None, study_pages.show_study),
    ("/studies/{id}/report", None, study_pages.send_report),
)
"""The pages of a party's console, in the order of the menu."""
