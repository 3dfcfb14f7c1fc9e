"""A console with one page, and a browser that has signed in."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.access import Access, TrustedHeader
from colonnade.console.app import make_app
from colonnade.console.guard import Guard, form
from colonnade.console.layout import refusal
from colonnade.study.console_part import Role

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another client below it
    from starlette.testclient import TestClient

HOST = "127.0.0.1:8471"
ORIGIN = f"http://{HOST}"
PAGES = (("/first", "First", __name__),)


@dataclass(frozen=True)
class Click:
    """One line of the log, as offices keep them."""

    at: datetime
    who: str
    role: str
    what: str
    study: str | None
    detail: str


@dataclass
class Notebook:
    """A desk that holds what the frame asks for, in memory."""

    name: str = "bank"
    stands: tuple[bool, str] = (True, "The hub is reached.")
    state: str = "quiet"
    written: list[Click] = field(default_factory=list)

    def standing(self, person: str) -> tuple[bool, str]:
        return self.stands

    def pulse(self) -> str:
        return self.state

    def log(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        self.written.insert(0, Click(datetime.now(UTC), who, role, what, study, detail))

    def clicks(self, person: str, limit: int = 100) -> Sequence[Click]:
        return self.written[:limit]


async def page(request: Request) -> Response:
    """A page that says what was sent to it."""
    if request.method == "POST":
        request.app.state.desk.log(request.state.session.person, request.state.session.role, form(request)["what"])
    return refusal(request, 200, "The first page.")


@dataclass
class Hands:
    """A clock whose hands a test moves."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def access(folder: Path, clock: Hands | None = None, header: TrustedHeader | None = None, **more: Role) -> Access:
    return Access(folder, (HOST,), lambda: more, header, clock=clock or Hands())


def console(access: Access, desk: Notebook | None = None) -> Guard:
    return make_app(desk or Notebook(), access, PAGES)


def browser(app: Guard, address: str = "127.0.0.1") -> TestClient:
    return TestClient(app, base_url=ORIGIN, follow_redirects=False, client=(address, 50_000))


def signed_in(app: Guard, role: Role = "approver", person: str = "Ada") -> TestClient:
    client = browser(app)
    link = app.access.link(person, role)
    answer = client.post("/enter", data={"link": link}, headers={"origin": ORIGIN})
    assert answer.status_code == 303
    return client


def csrf(client: TestClient) -> str:
    """The token that the forms of this session carry."""
    text = client.get("/first").text
    return text.split('name="csrf" value="')[1].split('"')[0]
