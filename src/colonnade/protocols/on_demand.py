"""Questions on demand: what a session that stays open asks of the kind of study that it is about.

The entitled party asks about people by their places in a common list, and every other owner decides by itself, before
anything leaves it, whom it answers about. What is dealt, added up and opened is the kind's matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.task import RunnableTask
from colonnade.tables import Table

MOST_ASKED = 1 << 13
"""People in one question; more are asked about in several."""
PeoplePlaces = NDArray[np.int64]
"""Whom a question is about: places in the common list, each at most once."""


@dataclass(frozen=True)
class GateDecision:
    """Whom of a question an owner tells nothing about, and until when."""

    refused: NDArray[np.bool_]
    until: int = 0
    """Unix time at which it may answer again; 0 if nobody is refused."""


@dataclass(frozen=True)
class OpenedAnswer:
    """What the entitled party has of one question; nothing was opened about those who are refused."""

    opened: Any
    verdict: GateDecision


class QuestionSource(Protocol):
    """Where the questions of the entitled party come from."""

    def begin(self, people: tuple[str, ...]) -> None:
        """All owners hold the same people, whose own ids these are, in the order of places."""

    def question(self) -> PeoplePlaces | None:
        """Wait for a question; nobody is a sign of life, and ``None`` ends the session for all."""

    def answer(self, answer: OpenedAnswer) -> None:
        """Take the answer to the last question."""


Gate = Callable[[PeoplePlaces], GateDecision]
"""How an owner decides: called before anything about these people leaves it, it has counted them when it returns."""
GateOpener = Callable[[tuple[str, ...]], Gate]
"""How it begins: called with the common people, by the owner's own ids."""
Row = Mapping[str, Any]
"""What is known of one person, as plain values."""
Weigh = Callable[[OpenedAnswer, PeoplePlaces], list[Row]]
"""Turns what was opened of these places into what a caller is told of each; not called for those who are refused."""


class OnDemandQuestion(ABC):
    """A study that stands open for questions: its programs, and what becomes of answers."""

    task: Any
    """The public task; its ``to`` is the entitled party, and ``exact`` says whether answers have no noise."""

    @property
    @abstractmethod
    def session(self) -> RunnableTask:
        """The task as sessions play it, with as many openings as owners let through."""

    @property
    @abstractmethod
    def classes(self) -> Sequence[Any] | None:
        """The classes that are predicted; ``None`` where a number is."""

    @abstractmethod
    def weigh(self, table: Table) -> Weigh:
        """How the entitled party weighs answers about the people of its table."""

    @abstractmethod
    def asker(self, me: Owner, table: Table, asked: QuestionSource) -> None:
        """The entitled party's program."""

    @abstractmethod
    def dealer(self, me: Owner, table: Table, opened: GateOpener) -> None:
        """Another owner's program."""

    @abstractmethod
    def coordinator(self, me: Coordinator) -> None:
        """The coordinator's program."""
