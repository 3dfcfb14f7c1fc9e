"""The hub's console: what its pages may ask, and the pages about proposals, results and members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.app import Pages
from colonnade.console.layout import render, send_report_frame
from colonnade.disk import reading
from colonnade.errors import ColonnadeError, FederationError, StorageError, one_code
from colonnade.federation.members import NOT_LISTED, six_words
from colonnade.federation.proposal_store import ProposalStore
from colonnade.federation.store_file import AuditLog
from colonnade.models import Estimator
from colonnade.privacy.statement import format_rounded_up
from colonnade.protocols.roles import COORDINATOR
from colonnade.sanitize import sanitize

_LATEST = 1 << 62  # no serial number is as large
_LARGEST_STATEMENT = 1 << 24


@dataclass
class HubView:
    """The hub's view of its federation.

    An operator, whom the federation's file names, sees all, and a person of a member's name what that member may. Names
    are the same if all their letters are. Nobody else sees anything.
    """

    proposals: ProposalStore
    results: Path
    """The folder that holds a folder for each study that is done."""
    present: Callable[[], Collection[str]] = tuple
    """The members that are connected now."""
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.audit = AuditLog(self.proposals.file)

    @property
    def name(self) -> str:
        """The federation's name."""
        return f"{self.proposals.members.name} · hub"

    def status_line(self, person: str) -> tuple[bool, str]:
        """How many of the studies that this person may see run and wait."""
        states = [study["state"] for study in self.studies(person)]
        running, waiting = states.count("running"), states.count("open")
        return True, f"{running} running, {waiting} waiting for answers or for their turn."

    def state_text(self) -> str:
        """The serial number of the last change, and who is here."""
        return f"{self.proposals.news(COORDINATOR, _LATEST)['serial']} {sorted(self.present())}"

    def studies(self, person: str) -> list[dict[str, Any]]:
        """All proposals that this person may see, the newest first."""
        found: list[dict[str, Any]] = []
        since = 0
        while True:
            news = self.proposals.news(self._sees_as(person), since)
            found += news["studies"]
            if news["serial"] == since or not news["studies"]:
                return sorted(found, key=lambda study: (study["made"], study["id"]), reverse=True)
            since = news["serial"]

    def study(self, id: str, person: str) -> dict[str, Any]:
        """One of them."""
        return self.proposals.study(id, self._sees_as(person))

    def result(self, id: str, person: str) -> dict[str, Any]:
        """The result of a study that this person may see; the report, as over a line, only for those who may read it.

        Its sizes and seconds tell the number of rows: it is for the parties of the study and the hub's own people.
        """
        study = self.study(id, person)
        if study["state"] != "done":
            raise FederationError(
                f"the study {sanitize(study['name'])!r} is {study['state']}, so it has no result [FE016]"
            )
        if id not in self._known:
            self._known[id] = _read_result(self.results / id)
        found = self._known[id]
        return found if self._sees_as(person) in (COORDINATOR, *study["parties"]) else found | {"report": None}

    def audit_reader(self, person: str) -> str | None:
        """A person of a member's name reads her own lines."""
        return None if self._sees_as(person) == COORDINATOR else person

    def _sees_as(self, person: str) -> str:
        """The member as which a person is shown things: her own member's, or for an operator the hub."""
        members = self.proposals.members
        if not members.may_enter(person):
            raise FederationError(NOT_LISTED)
        return COORDINATOR if members.hub is not None and person in members.hub.operators else person


def _read_result(folder: Path) -> dict[str, Any]:
    """The result in this folder in a few lines, the rows of its privacy statement, and where its report lies.

    What is missing or damaged is said in its place.
    """
    try:
        lines = tuple(Estimator.load(folder / "model.json").summary())
    except ColonnadeError as error:
        lines = (one_code(f"The model cannot be shown here: {error}."),)
    try:
        rows = tuple(reading.read_json(folder / "privacy.json", _LARGEST_STATEMENT)["rows"])
    except (reading.UnreadableFile, KeyError, TypeError):
        rows = ()
    report = folder / "report.html"
    return {"lines": lines, "rows": rows, "report": report if report.is_file() else None}


MAX_RESULTS = 4
"""Studies beside each other."""


def show_proposals(request: Request) -> Response:
    """The list."""
    return render(request, "hub/proposals.html", studies=request.app.state.view.studies(request.state.session.person))


def show_proposal(request: Request) -> Response:
    """One proposal, with its result if it is done."""
    view, person = request.app.state.view, request.state.session.person
    study = view.study(request.path_params["id"], person)
    result = view.result(study["id"], person) if study["state"] == "done" else None
    return render(request, "hub/proposal.html", study=study, result=result)


def send_report(request: Request) -> Response:
    """Its report, as the content of a frame."""
    result = request.app.state.view.result(request.path_params["id"], request.state.session.person)
    if result["report"] is None:
        raise StorageError("this study has no report here [SO017]")
    return send_report_frame(result["report"])


def show_results(request: Request) -> Response:
    """The studies that are done, and those that were chosen beside each other."""
    view, person = request.app.state.view, request.state.session.person
    done = [study for study in view.studies(person) if study["state"] == "done"]
    chosen = request.query_params.getlist("id")[:MAX_RESULTS]
    names = Counter(study["name"] for study in done)
    picked = [
        study | {"label": study["name"] if names[study["name"]] == 1 else f"{study['name']} ({study['id'][:6]})"}
        for study in done
        if study["id"] in chosen
    ]
    beside = [(study, view.result(study["id"], person)) for study in picked]
    observers = list(dict.fromkeys(row["observer"] for _, result in beside for row in result["rows"]))
    prices = [(who, [format_price(result["rows"], who) for _, result in beside]) for who in observers]
    return render(request, "hub/results.html", done=done, chosen=chosen, beside=beside, prices=prices, most=MAX_RESULTS)


def format_price(rows: Any, observer: str) -> str:
    """What an observer can learn by a study, as text."""
    found = next((row for row in rows if row["observer"] == observer), None)
    if found is None:
        return "not in this study"
    if found["epsilon"] is None:
        return "no guarantee"
    return f"{format_rounded_up(found['epsilon'])} (delta {found['delta']:g}; {found['adjacency']})"


def show_members(request: Request) -> Response:
    """All members."""
    view = request.app.state.view
    members, here = view.proposals.members, set(view.present())
    rows = [
        {"name": name, "role": role, "pin": (pin := members.pins[name]), "words": six_words(pin), "here": name in here}
        for name, role in members.roles.items()
    ]
    return render(request, "hub/members.html", members=rows, address=members.address)


HUB_PAGES: Pages = (
    ("/proposals", "Proposals", show_proposals),
    ("/results", "Results", show_results),
    ("/members", "Members", show_members),
    ("/proposals/{id}", None, show_proposal),
    ("/proposals/{id}/report", None, send_report),
)
"""The pages of the hub's console, in the order of the menu."""
