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


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GateDecision:
    """How many people of a question an owner tells about, from its first, and until when it tells about no more.

    That follows from how many were asked about, and never from who they are or who was asked about before.
    """

    told: int
    until: int = 0
    """Unix time at which it may tell about the others; 0 if it tells about all."""


@dataclass(frozen=True)
class OpenedAnswer:
    """What the entitled party has of one question; nothing was opened about those whom an owner does not tell about."""

    opened: Any
    verdict: GateDecision


class QuestionSource(Protocol):
    """Where the questions of the entitled party come from."""

    @property
    def period(self) -> str:
        """The name of the period in which answers are kept now."""

    def begin(self, people: tuple[str, ...]) -> None:
        """All owners hold the same people, whose own ids these are, in the order of places."""

    def question(self) -> PeoplePlaces | None:
        """Wait for a question; nobody is a sign of life, and ``None`` ends the session for all."""

    def answer(self, answer: OpenedAnswer) -> None:
        """Take the answer to the last question."""


Summands = Callable[[PeoplePlaces], Integers]
"""What an owner would deal about these people if it did so for the first time: their parts with fresh noise."""
Gate = Callable[[str, PeoplePlaces], tuple[GateDecision, Integers]]
"""How an owner decides about a question in a period: called before anything about these people leaves it.

It returns what is dealt about those whom it tells about; about a person that is the same in the whole period.
"""
GateOpener = Callable[[Summands], Gate]
"""How it begins, once all owners hold the same people."""
Row = Mapping[str, Any]
"""What is known of one person, as plain values."""
Weigh = Callable[[OpenedAnswer, PeoplePlaces], list[Row]]
"""Turns what was opened of these places into what a caller is told of each of those who are told about."""


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
    def summed(self) -> bool:
        """Whether the noise of several owners is opened as one, so that all of them must draw anew if one does."""

    @property
    @abstractmethod
    def classes(self) -> Sequence[Any] | None:
        """The classes that are predicted; ``None`` where a number is."""

    @abstractmethod
    def weigh(self, table: Table) -> Weigh:
        """How the entitled party weighs answers about the people of its table."""

    @abstractmethod
    def agree(self, me: Owner, table: Table) -> Any:
        """Every owner's first step: its part of the answers, once all hold the same people; otherwise an error."""

    @abstractmethod
    def asker(self, me: Owner, part: Any, asked: QuestionSource) -> None:
        """The entitled party's program, with what it agreed on."""

    @abstractmethod
    def dealer(self, me: Owner, part: Any, opened: GateOpener) -> None:
        """Another owner's program, with what it agreed on; who is asked nothing opens no gate."""

    @abstractmethod
    def coordinator(self, me: Coordinator) -> None:
        """The coordinator's program."""
