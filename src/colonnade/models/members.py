"""Where nobody knows whom all parties hold, only computations on second moments go on."""

from __future__ import annotations

from colonnade.errors import StudyError
from colonnade.models.federation import Federation, Roster


def require_known_members(roster: Roster, what: str) -> None:
    """Refuse what works on the rows that all parties hold when a hidden alignment told nobody which those are."""
    if roster.hidden:
        raise StudyError(
            f"{what} does not work after a hidden alignment, in which nobody learns whom all parties hold: hidden "
            "alignment works with pca, linear and logistic (one-shot, functional); use one of those, or hidden = false"
        )


def common_rows(people: Federation) -> int:
    """How many people all parties hold, if they hold the same ones; who holds how many others is said where not."""
    if people.alignment is not None:
        return next(iter(people.tables().values())).rows
    held = {name: party.table.rows for name, party in people.parties.items()}
    first, *others = held
    for name in others:
        if held[name] != held[first]:
            raise StudyError(
                f"{name} has {held[name]} rows and {first} has {held[first]}: all must hold the same people, so "
                "call people.align(on=...) first"
            )
    return held[first]
