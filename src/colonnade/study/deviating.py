"""What a study does about participants that deviate from the protocol, in words and plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from colonnade.models import registry
from colonnade.privacy.events import innermost
from colonnade.privacy.observers import Inputs
from colonnade.privacy.releases import NonPrivate
from colonnade.protocols.cost import CHECKS, Checking, checking
from colonnade.protocols.task import Task

_PROVEN: dict[Inputs, str] = {
    "unproven": "that owners keep the bounds of what they deal is not proven",
    "covert": "owners prove the bounds of what they deal for rows that a coin chooses",
    "proven": "owners prove the bounds of what they deal",
}
_ON_ITS_OWN_SIDE = (
    "nobody holds shares that others could check; each party's figures hold whatever the others send, because every "
    "number that it tells is bounded and noised on its own side; others who deviate can spoil the result"
)
_NOTHING_PROMISED = "nobody holds shares that others could check, and nothing is promised in any case"


@dataclass(frozen=True)
class Deviating:
    """Whether participants may deviate: seats check each other, or nobody does, or parties only send messages."""

    security: Literal["active", "semi-honest", "messages"]
    inputs: Inputs
    sentence: str
    could_be_active: bool = False
    may_be_lost: int | None = None
    """How many seats may be lost once they have dealt everything, where seats check each other."""

    @classmethod
    def of(cls, task: Task) -> Deviating:
        """What this task does."""
        trust = task.trust
        if not trust.committee:
            promised = all(
                not isinstance(once := innermost(event), NonPrivate) and not _doubtful(once) for event in task.events
            )
            return cls("messages", "unproven", _ON_ITS_OWN_SIDE if promised else _NOTHING_PROMISED)
        if trust.active:
            checked = (
                f"security is active: seats check what each of them sends, at {_cost(checking(trust))}; a check that "
                f"fails stops the study; {_PROVEN[trust.inputs]}"
            )
            return cls("active", trust.inputs, checked, may_be_lost=task.losses)
        if task.why_not_active is not None:
            return cls("semi-honest", "unproven", f"security is semi-honest: this kind of study {task.why_not_active}")
        possible = (
            'security is semi-honest: nobody checks what others compute or deal; security = "active" does, at '
            f"{_cost(CHECKS[task.possible_proofs[0]])}"
        )
        return cls("semi-honest", "unproven", possible, could_be_active=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def line_for(kind: str) -> str:
    """The line of a new study file by which seats check each other; empty where this is no default of the kind."""
    if not any(task.active_by_default for task in registry.load(kind).tasks):
        return ""
    return (
        'security = "active"  # seats check each other, so that one of them may deviate; "semi-honest": nobody checks\n'
    )


def _doubtful(event: object) -> bool:
    return bool(getattr(event, "unproven", ""))


def _cost(checks: Checking) -> str:
    return f"about {checks.work - 1:.0%} more work on shares"
