"""Scores on demand: which models stand open, who may ask, how often today, and what is left of the day."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.console.party import PartyDesk
from colonnade.report import words
from colonnade.standing.scores.service import Kept


@dataclass(frozen=True)
class Served:
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
    def of(cls, kept: Kept) -> Served:
        """A model, with what was counted of it today."""
        task, study = kept.standing.task, kept.standing.study
        price = "exact, no promise" if task.exact else f"epsilon {words.epsilon(study.statement.epsilon(task.to))}"
        if kept.allowance is None:
            return cls(study.name, task.to, _here(kept), price, None, kept.standing.per_person, False)
        asked = kept.allowance.asked_today()
        today = asked or 0, max(0, kept.standing.per_day - (asked or 0))
        return cls(study.name, task.to, _here(kept), price, today, kept.standing.per_person, asked is not None)


def _here(kept: Kept) -> str:
    if kept.ready:
        return "all are here"
    if kept.stay.open:
        return "open, others are waited for" if kept.ready is False else "open, we are there"
    return f"not now: {kept.stay.last or 'it has not begun'}"


async def page(request: Request) -> Response:
    """All models of this party that stand open."""
    return render(request, "scores.html", served=await run_in_threadpool(_served, request.app.state.desk))


def _served(desk: PartyDesk) -> list[Served]:
    return [] if desk.scores is None else [Served.of(kept) for kept in desk.scores.kept.values()]
