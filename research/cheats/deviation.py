"""A run in which one participant deviates: it plays the real program with a hand and links that do something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, PeerLost, PeerStopped
from colonnade.mpc import ShareEngine
from colonnade.mpc.residues import ResidueSystem
from colonnade.protocols.roles import COORDINATOR, Role
from colonnade.protocols.session import RunResult, run_role
from colonnade.protocols.task import RunnableTask
from colonnade.tables.slots import RowSlots
from research.cheats.stage import Stage, StagePlace

Program = Callable[[Any], Any]
Deviate = Callable[[Role, StagePlace], None]
"""What turns an honest role into a deviating one, before its program begins."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dealt:
    """Rows in memory, as a table would give them."""

    values: Array
    places: RowSlots | None = None

    @property
    def ids(self) -> list[str]:
        """Made-up ids, the same at every owner."""
        return [f"p{number:06d}" for number in range(len(self.values))]

    def blocks(self, rows: int, /) -> Iterator[Array]:
        """So many rows at a time."""
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


@dataclass(frozen=True)
class Outcome:
    """How a run ended for everybody."""

    ended: Mapping[str, Any]
    cheater: str | None

    @property
    def accepted(self) -> dict[str, Any]:
        """The results of the honest participants that have one."""
        return {
            name: found.result
            for name, found in self.ended.items()
            if name != self.cheater and isinstance(found, RunResult)
        }

    @property
    def reason(self) -> BaseException | None:
        """The error of the first honest participant that noticed something by itself, else of one that was told."""
        errors = [
            found for name, found in self.ended.items() if name != self.cheater and isinstance(found, BaseException)
        ]
        errors.sort(key=lambda error: (isinstance(error, PeerStopped), isinstance(error, PeerLost)))
        return errors[0] if errors else None

    @property
    def faults(self) -> list[BaseException]:
        """Errors of honest participants that are none of ours: faults of the program, not findings of a check."""
        mine = (found for name, found in self.ended.items() if name != self.cheater)
        return [e for e in mine if isinstance(e, BaseException) and not isinstance(e, ColonnadeError)]


def perform(
    task: RunnableTask, programs: Mapping[str, Program], cheater: str | None = None, deviate: Deviate | None = None
) -> Outcome:
    """Everybody plays; the cheater comes last in every round, and does not tell the others why it stops."""
    names = sorted(programs, key=lambda name: name == cheater)

    def part(name: str) -> Callable[[StagePlace], RunResult[Any]]:
        def honest(place: StagePlace) -> RunResult[Any]:
            return run_role(place, task, programs[name])

        def deviating(place: StagePlace) -> RunResult[Any]:
            place.silent = True

            def program(me: Role) -> Any:
                if deviate is not None:
                    deviate(me, place)
                return programs[name](me)

            return run_role(place, task, program)

        return deviating if name == cheater else honest

    return Outcome(Stage(names).run({name: part(name) for name in names}), cheater)


def everybody(module: Any, task: Any, held: Mapping[str, Array], labels: Array | None = None) -> dict[str, Program]:
    """Every role of a protocol; labels go to the owner whom the task names."""

    def owner(name: str) -> Program:
        rows = Dealt(held[name])
        if labels is None:
            return lambda me: module.owner(me, rows, task)
        return lambda me: module.owner(me, rows, labels if name == task.label_owner else None, task)

    return {name: owner(name) for name in task.owners} | {COORDINATOR: lambda me: module.coordinator(me, task)}


def replace_method(thing: object, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Give one participant's object another method; ``change`` gets the real one."""
    setattr(thing, name, change(getattr(thing, name)))


def on_every_hand(hand: ShareEngine, change: Callable[[ShareEngine], None]) -> None:
    """Change a participant's hand, and every hand that it makes from it for other primes."""

    def over(real: Callable[..., ShareEngine]) -> Callable[..., ShareEngine]:
        def made(system: ResidueSystem) -> ShareEngine:
            other = real(system)
            on_every_hand(other, change)
            return other

        return made

    change(hand)
    replace_method(hand, "with_system", over)
