"""What every kind of study has: public parameters, from which a public task follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

from typing_extensions import TypeVar

from colonnade.protocols.task import Adjustable, Priced

if TYPE_CHECKING:
    from colonnade.models.federation import Roster
    from colonnade.privacy import Statement

AnyTask = TypeVar("AnyTask", bound=Priced, default=Any)
"""The tasks that a kind plans."""


@dataclass(frozen=True)
class Details:
    """What a pre-flight says about one kind, besides what it says about all."""

    method: str | None = None
    """How it is computed, where there are several ways."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Plain values for JSON."""
    brief: tuple[str, ...] = ()
    """Lines for a person, below the costs."""
    section: tuple[str, ...] = ()
    """Lines of a section of its own, which a party is shown before it says yes."""


class Promises(Protocol):
    """Promises besides those of a privacy statement."""

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values for JSON."""

    def besides(self, statement: Statement) -> object:
        """Those that the statement does not make itself; as text they are a table."""


class Planner(ABC, Generic[AnyTask]):
    """Public parameters, given to the constructor, from which a public task follows."""

    kind: ClassVar[str]
    tasks: ClassVar[tuple[type[Priced], ...]] = ()
    """The classes of the tasks that it plans."""
    shares: ClassVar[bool] = True
    """Whether somebody holds shares, so that a committee and a hidden alignment have a meaning."""
    why_not_run: ClassVar[str | None] = None
    """Why there is no program for it, as the end of a sentence that begins with the study."""

    @abstractmethod
    def plan(self, roster: Roster) -> AnyTask:
        """The public task, with the least noise that meets the budgets."""

    def adjustable(self, roster: Roster, rows: int | None) -> Adjustable | None:
        """The task with noise that is given and not calibrated; nothing where there is no such."""
        return self.plan(roster).adjustable(rows)

    def details(self, task: AnyTask, statement: Statement) -> Details:
        """What a pre-flight says about this task in particular."""
        return Details()

    def promises(self, statement: Statement) -> Promises | None:
        """Promises that the statement's table of observers does not make; nothing where there are no others."""
        return None

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why a study of this kind cannot be about a public model, as the end of a sentence that begins with it."""
        return "is of no use to this kind of study"
