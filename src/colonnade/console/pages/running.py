"""What is approved or runs: phases, progress, rounds, bytes, who is here and who is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.console.party import UNDER_WAY, PartyDesk
from colonnade.report import words
from colonnade.standing.office import Attempt, Entry
from colonnade.standing.output import Progress


@dataclass(frozen=True)
class UnderWay:
    """One study that is approved or runs."""

    entry: Entry
    attempt: Attempt | None
    progress: Progress | None

    @property
    def unanswered(self) -> list[str]:
        """Parties that have not answered yet."""
        return [party for party, said in self.entry.answers.items() if said is None]

    @property
    def sent(self) -> str:
        """Bytes, in words."""
        return words.size(self.progress.bytes) if self.progress else ""

    @property
    def sentence(self) -> str:
        """What is being waited for, in one sentence."""
        if self.entry.state == "approved":
            waited = words.listed(self.unanswered)
            return f"Approved. Waiting for the answer of {waited}." if waited else "Approved by all; it starts soon."
        if self.progress is None:
            return "It starts."
        if self.progress.waited_for:
            return f"Waiting for {words.listed(self.progress.waited_for)}."
        return f"It runs, in the phase {self.progress.phase}." if self.progress.phase else "It runs."


async def page(request: Request) -> Response:
    """All studies under way; the page is loaded anew when something changes."""
    return render(request, "running.html", studies=await run_in_threadpool(_studies, request.app.state.desk))


def _studies(desk: PartyDesk) -> list[UnderWay]:
    found = []
    for entry in desk.office.entries(UNDER_WAY):
        attempts = desk.attempts(entry)
        running = entry.state == "running"
        found.append(UnderWay(entry, attempts[-1] if attempts else None, desk.progress(entry) if running else None))
    return found
