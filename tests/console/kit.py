"""A console with one page, a browser that has signed in, and a party with a real store, ledger and table."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.access import AccessControl, TrustedHeader
from colonnade.console.app import make_app
from colonnade.console.layout import refusal
from colonnade.console.party_pages import PARTY_PAGES as OF_A_PARTY
from colonnade.console.party_view import PartyView
from colonnade.console.security_middleware import SecurityMiddleware, form_fields
from colonnade.federation import checks
from colonnade.federation.agent_store import AgentStore, ProposedStudy, State
from colonnade.federation.statements import Proposal
from colonnade.federation.store_file import AuditEntry
from colonnade.privacy import Ledger
from colonnade.study import PartyConfig, Study
from colonnade.study.party_file import ConsoleRole
from tests.support.standing import BUDGET, Standing, make

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another client below it
    from starlette.testclient import TestClient

HOST = "127.0.0.1:8471"
ORIGIN = f"http://{HOST}"
OURS = {"origin": ORIGIN}
SECRET = "5" * 64
BY_PROXY = {"x-colonnade-proxy": SECRET}
"""What the proxy shows with every request."""
BAD = '<script>alert("x")</script>'


@dataclass
class Notebook:
    """A view that holds what the frame asks for, in memory."""

    name: str = "bank"
    stands: tuple[bool, str] = (True, "The hub is reached.")
    state: str = "quiet"
    written: list[AuditEntry] = field(default_factory=list)

    @property
    def audit(self) -> Notebook:
        return self

    def status_line(self, person: str) -> tuple[bool, str]:
        return self.stands

    def state_text(self) -> str:
        return self.state

    def add(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        self.written.insert(0, AuditEntry(datetime.now(UTC).isoformat(), who, role, what, study, detail))

    def latest(self, limit: int = 100, who: str | None = None) -> Sequence[AuditEntry]:
        return self.written[:limit]

    def audit_reader(self, person: str) -> str | None:
        return None


async def page(request: Request) -> Response:
    if request.method == "POST":
        request.app.state.view.add(
            request.state.session.person, request.state.session.role, form_fields(request)["what"]
        )
    return refusal(request, 200, "The first page.")


PAGES = (("/first", "First", page),)


@dataclass
class Hands:
    """A clock whose hands a test moves."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def access(
    folder: Path, clock: Hands | None = None, header: TrustedHeader | None = None, **more: ConsoleRole
) -> AccessControl:
    return AccessControl(folder, (HOST,), lambda: more, header, clock=clock or Hands(), secret=SECRET)


def console(access: AccessControl, view: Notebook | None = None) -> SecurityMiddleware:
    return make_app(view or Notebook(), access, PAGES)


def browser(app: SecurityMiddleware, address: str = "127.0.0.1") -> TestClient:
    return TestClient(app, base_url=ORIGIN, follow_redirects=False, client=(address, 50_000))


def signed_in(app: SecurityMiddleware, role: ConsoleRole = "approver", person: str = "Ada") -> TestClient:
    client = browser(app)
    answer = client.post("/login", data={"link": app.access.link(person, role)}, headers=OURS)
    assert answer.status_code == 303
    return client


def csrf(client: TestClient, path: str = "/first", **headers: str) -> str:
    return client.get(path, headers=headers).text.split('name="csrf" value="')[1].split('"')[0]


def shows(text: str, *pieces: str) -> None:
    assert [piece for piece in pieces if piece not in text] == []


def hides(text: str, *pieces: str) -> None:
    assert [piece for piece in pieces if piece in text] == []


@dataclass
class Bank:
    """The bank of a small federation, with its store, and studies that were proposed to it."""

    three: Standing
    store: AgentStore

    @classmethod
    def make(cls, folder: Path) -> Bank:
        three = make(folder, called=f"three {BAD}")
        return cls(three, AgentStore(three.of("bank") / "agent"))

    @property
    def config(self) -> PartyConfig:
        return self.three.config("bank")

    @property
    def view(self) -> PartyView:
        return PartyView(self.config, self.store)

    def app(self) -> SecurityMiddleware:
        return make_app(self.view, access(self.three.folder / "access"), OF_A_PARTY)

    def study_of(self, entry: ProposedStudy) -> Study:
        return Study.load(entry.study_file)

    def receive(self, purpose: str = BAD, budget: str = BUDGET) -> ProposedStudy:
        asked = self.three.proposal(self.three.study_named("what-we-share", budget=budget), purpose, "3d")
        proposal = Proposal.unpack(asked.pack(self.three.identity()), self.three.members())
        entry = self.store.receive(proposal)
        proposal.write(entry.study_file.parent, self.three.members())
        return entry

    def propose(self, purpose: str = BAD, budget: str = BUDGET, state: State = "waiting") -> ProposedStudy:
        """A study, checked as the agent checks it."""
        entry = self.receive(purpose, budget)
        found, _ = checks.assess(entry.study_file, self.config, entry.name, entry.digest)
        refused = found["refused"] is not None
        self.store.record_assessment(
            entry.id, found, "refused" if refused else state, "the policy" if refused else None
        )
        return self.store.entry(entry.id)

    def spend(self, entry: ProposedStudy) -> Ledger:
        """Charge a study to the bank's ledger, as a run does."""
        study, book = self.study_of(entry), self.config.open_ledger()
        kept = book.reserve(
            study.name, study.digest, self.config.charged_events(study), study.trust, (), (), study.keys()
        )
        book.commit(book.mark_sent(kept))
        return book

    def attempt(self, entry: ProposedStudy, number: int = 1, lines: Sequence[dict[str, Any]] = ()) -> Path:
        """The folder of an attempt that runs, of which these lines came from its process."""
        assert self.store.start_attempt(entry.id, number, f"{entry.id}.{number}", 3, timedelta(hours=12))
        folder = self.store.attempts(entry.id)[-1].folder
        folder.mkdir(parents=True)
        (folder / "output.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "a log line\n{\n")
        return folder
