"""Which people all parties hold: who must know it, and how many they are."""

from __future__ import annotations

from colonnade.errors import StudyError
from colonnade.models.federation import Federation, Roster


def require_known_members(roster: Roster, what: str) -> None:
    """Raise an error if the alignment was hidden: this computation needs to know which rows all parties hold."""
    if roster.hidden:
        raise StudyError(
            f"{what} does not work after a hidden alignment, in which nobody learns whom all parties hold: hidden "
            "alignment works with pca, linear and logistic (one-shot, functional); use one of those, or hidden = false"
        )


def common_rows(people: Federation) -> int:
    """The number of people that all parties hold; an error says whose number of rows differs, if one does."""
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
