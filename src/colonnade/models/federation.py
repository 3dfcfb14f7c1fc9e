"""Parties and their federation, in one process: threads that talk over the same channels as machines do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from colonnade.errors import PeerLost, PeerStopped, SchemaError, StudyError
from colonnade.privacy import Trust
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.session import Played, Task, partners, play
from colonnade.tables import Schema, Table, read_table
from colonnade.wire import Identity, Switchboard, check_name

Result = TypeVar("Result")


class Party:
    """One organisation: a name, its table (a path, a pandas or a pyarrow table), its public schema, its ids."""

    def __init__(self, name: str, source: Any, *, schema: Schema | str | Path | None = None, id: str) -> None:
        if schema is None:
            raise SchemaError(
                f"{name} has no schema, and bounds are never read off private data: run `colonnade schema draft FILE`, "
                "review what it wrote, and pass it as schema="
            )
        if not isinstance(schema, Schema | str | Path):
            raise SchemaError(f"{name}: schema= takes a Schema or the path of one, not {type(schema).__name__}")
        self.name = check_name(name)
        self.schema = schema if isinstance(schema, Schema) else Schema.load(schema)
        self._source = source
        self._id = id

    @cached_property
    def table(self) -> Table:
        """The party's table, read and checked against its schema on this machine."""
        return read_table(self._source, self.schema, id=self._id)

    def __repr__(self) -> str:
        return f"Party({self.name!r}, {len(self.schema.names)} columns)"


@dataclass(frozen=True)
class Roster:
    """The public description of who takes part: each owner's schema, and the committee."""

    schemas: Mapping[str, Schema]
    trust: Trust

    @classmethod
    def of(cls, schemas: Mapping[str, Schema], committee: Sequence[str] = (), threshold: int | None = None) -> Roster:
        """Fill in the committee: the first seven owners, or two owners and the coordinator."""
        owners = tuple(schemas)
        if len(owners) < 2:
            raise StudyError("a study needs at least two parties: one alone has nothing to compute together")
        seats = tuple(committee) or (owners[:7] if len(owners) > 2 else (*owners, COORDINATOR))
        most = max(1, (len(seats) - 1) // 2)
        return cls(dict(schemas), Trust(owners, seats, most if threshold is None else threshold))


class Federation:
    """Parties that hold different columns about the same people.

    Here all of them run in this process, a thread each, as a notebook or a test wants it; ``colonnade run`` and
    ``colonnade party`` run the same programs in processes and on machines of their own.
    """

    def __init__(
        self,
        parties: Sequence[Party],
        *,
        committee: Sequence[str] = (),
        threshold: int | None = None,
        progress: Progress = silent,
    ) -> None:
        if not all(isinstance(party, Party) for party in parties):
            raise StudyError("a Federation is made of Party objects: Party(name, table, schema=..., id=...)")
        names = [party.name for party in parties]
        if len(set(names)) != len(names):
            raise StudyError("two parties have the same name; give each its own")
        self.parties = {party.name: party for party in parties}
        self.roster = Roster.of({p.name: p.schema for p in parties}, committee, threshold)
        self.progress = progress

    def tables(self) -> dict[str, Table]:
        """Everyone's table in the order of the ids, which must be the same for all."""
        tables = {name: party.table.sorted_by_id() for name, party in self.parties.items()}
        if len({tuple(table.ids) for table in tables.values()}) > 1:
            raise StudyError("the parties do not hold the same people: bring their tables to the same ids")
        return tables

    def __repr__(self) -> str:
        return f"Federation({', '.join(self.parties)})"

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing outlives a fit."""

    def run(
        self,
        task: Task,
        owner: Callable[[Any, Table], Result],
        coordinator: Callable[[Any], Result],
    ) -> Played[Result]:
        """Play every role in its own thread and return what the coordinator has in hand."""
        programs: dict[str, Callable[[Any], Result]] = {COORDINATOR: coordinator}
        for name, party in self.parties.items():
            programs[name] = _bound(owner, party.table)
        identities = {name: Identity.create(name) for name in programs}
        board = Switchboard(identity.certificate for identity in identities.values())
        outcomes: dict[str, Played[Result] | BaseException] = {}

        def take_part(name: str) -> None:
            try:
                progress = self.progress if name == first else silent
                known = [identities[peer].certificate for peer in (name, *partners(name, programs, task))]
                place = board.endpoint(identities[name], participants=known)
                outcomes[name] = play(place, task, programs[name], progress)
            except BaseException as error:
                outcomes[name] = error

        first = next(iter(self.parties))
        threads = [threading.Thread(target=take_part, args=(name,), name=name) for name in programs]
        with threadpool_limits(limits=1, user_api="blas"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return _conclude(outcomes)


def _bound(owner: Callable[[Any, Table], Result], table: Table) -> Callable[[Any], Result]:
    return lambda me: owner(me, table)


def _conclude(outcomes: Mapping[str, Played[Result] | BaseException]) -> Played[Result]:
    """The coordinator's outcome, or the error that was the cause of all others."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, BaseException)]
    causes = [error for error in errors if not isinstance(error, PeerStopped | PeerLost)]
    for error in (*causes, *errors):
        raise error
    outcome = outcomes[COORDINATOR]
    assert not isinstance(outcome, BaseException)  # noqa: S101 - for the type checker; raised above
    return outcome
