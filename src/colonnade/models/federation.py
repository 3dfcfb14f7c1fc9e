"""Parties and their federation in one process: each party is a thread that runs the same program as on a machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import AlignmentError, PeerLost, PeerStopped, SchemaError, StudyError
from colonnade.models import notebook
from colonnade.models.alignment import AlignmentSummary, keys_of, keys_on
from colonnade.models.planner import Roster
from colonnade.protocols.align import DEFAULT_MODE, AlignmentTask, Mode
from colonnade.protocols.roles import COORDINATOR, Owner, Progress, silent
from colonnade.tables import Schema, Table, read_table
from colonnade.tables.cell_parsing import TextFormat
from colonnade.tables.keys import Duplicates, Key, KeyColumn, KeyPlan, key_columns
from colonnade.wire import SimulatedNetwork, check_name

if TYPE_CHECKING:
    from colonnade.models.session_budget import SessionTotal
    from colonnade.privacy import Ledger
    from colonnade.privacy.observers import Inputs, Security
    from colonnade.protocols.align import AlignmentCounts
    from colonnade.protocols.session import RunResult
    from colonnade.protocols.task import RunnableTask


class Party:
    """One organisation: a name, its table (a path, a pandas or a pyarrow table), its public schema, its ids.

    ``id`` is the column that names people. ``keys`` is for an alignment, if the table's columns have other names than
    the keys: it maps each key to its column, such as ``{"birth": KeyColumn("dob", format="%d.%m.%Y")}``.
    ``separator``, ``encoding``, ``decimal`` and ``thousands`` say how its CSV file is written, if not as the
    schema says.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        *,
        schema: Schema | str | Path | None = None,
        id: str | None = None,
        keys: Mapping[str, KeyColumn | str] | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
    ) -> None:
        if schema is None:
            raise SchemaError(
                f"{name} has no schema, and bounds are never read off private data: run `colonnade schema draft FILE`, "
                "review what it wrote, and pass it as schema= [SC001]"
            )
        if not isinstance(schema, Schema | str | Path):
            raise SchemaError(f"{name}: schema= takes a Schema or the path of one, not {type(schema).__name__} [SC002]")
        self.name = check_name(name)
        self.schema = schema if isinstance(schema, Schema) else Schema.load(schema)
        self._source = source
        self._id = id
        self._keys = _checked_keys(self.name, keys)
        self._text = TextFormat(separator, encoding, decimal, thousands)

    @cached_property
    def table(self) -> Table:
        """The party's table, read and checked against its schema on this machine."""
        if self._id is None:
            raise StudyError(
                f"{self.name} has no id column: pass id=, or call people.align(on=...) on its federation [ST077]"
            )
        return read_table(self._source, self._written, id=self._id, name=self._called)

    def keyed(self, plan: KeyPlan) -> Table:
        """The party's table with its keys, by which it can be aligned with others."""
        columns = key_columns(plan.keys, self._keys, self._id, self.name)
        return read_table(self._source, self._written, id=self._id, name=self._called, keys=plan, columns=columns)

    @property
    def _written(self) -> Schema:
        """The schema, as the party's file is written."""
        return self.schema.with_text_format(self._text)

    @property
    def _called(self) -> str | None:
        """The name of the table in error messages: ``None`` for a path, which is named itself, else the party."""
        return None if isinstance(self._source, str | Path) else self.name

    def __repr__(self) -> str:
        return f"Party({self.name!r}, {len(self.schema.names)} columns)"

    def _repr_html_(self) -> str:
        return notebook.party_html(self.name, self.schema)


class Federation:
    """Parties that hold different columns about the same people, or about people that :meth:`align` finds.

    Here all parties run in this process, each in a thread, for notebooks and tests; ``colonnade run`` and
    ``colonnade party`` run the same programs in processes and on machines of their own. With ``network``
    messages take as long as between machines at that distance.

    Everything that is computed adds up, and ``privacy_`` shows what each observer learned from all of it together, at
    ``delta``. With ``ledger``, the path of one, that is written down before each computation, so that it also counts in
    other processes. ``caps`` are the most that observers may learn in all, such as ``{"analyst": 3.0}``; what would
    exceed one is refused before it starts.

    With ``security="active"`` the seats check what each of them sends before anything is opened, so that it may deviate
    from the protocol; ``inputs`` says whether owners also prove the bounds of what they deal (``"proven"``).
    Where neither is given, each kind of model has its own default.
    ``noise_missing`` is how many owners may leave out their noise and every budget is met all the same; by default as
    many as the threshold where security is active, and otherwise none.
    """

    def __init__(
        self,
        parties: Sequence[Party],
        *,
        committee: Sequence[str] = (),
        threshold: int | None = None,
        progress: Progress = silent,
        network: SimulatedNetwork | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        caps: float | Mapping[str, float] | None = None,
        delta: float = 1e-5,
        security: Security | None = None,
        inputs: Inputs | None = None,
        noise_missing: int | None = None,
    ) -> None:
        from colonnade.models.session_budget import SessionBudget

        if not all(isinstance(party, Party) for party in parties):
            raise StudyError("a Federation is made of Party objects: Party(name, table, schema=..., id=...) [ST083]")
        if not isinstance(network, SimulatedNetwork | None):
            raise StudyError("network= takes a Network(round_trip=...), or None for threads that are not apart [ST084]")
        names = [party.name for party in parties]
        if len(set(names)) != len(names):
            raise StudyError("two parties have the same name; give each its own [ST085]")
        self.parties = {party.name: party for party in parties}
        schemas = {party.name: party.schema for party in parties}
        self.roster = Roster.of(
            schemas, committee, threshold, security=security, inputs=inputs, noise_missing=noise_missing
        )
        self.progress = progress
        self.network = network
        self.charges = SessionBudget(ledger, caps, delta, self.roster.trust)
        self.alignment: AlignmentSummary | None = None
        self._aligned: dict[str, Table] = {}

    def align(
        self,
        on: str | Key | Sequence[str | Key],
        *,
        mode: Mode = DEFAULT_MODE,
        hidden: bool = False,
        duplicates: Duplicates = "drop",
        at_least: int = 1,
        similarity: float | None = None,
        pad_to: int | None = None,
    ) -> Federation:
        """Find the people whom all parties hold; all later computations are about them.

        What was found is in ``alignment``. Aligning again replaces it; an alignment that fails leaves it as it was.
        Its :class:`~colonnade.errors.AlignmentError` holds as ``examples`` some keys of the first party, as compared.

        Args:
            on: the key columns, by name or as a :class:`Key` with rules for how its cells are compared.
            mode: ``"ot"`` and ``"dh"`` trust no helper, and ``"dh"``, which needs an operation in a group for every
                key, is much slower; ``"helper"`` is faster still and trusts the coordinator not to collude;
                ``"fuzzy"`` pairs keys that are only similar, for two parties.
            hidden: no party learns which of its people the others hold.
            duplicates: what happens to rows of one party with the same key: all are left out, or it is an error.
            at_least: with fewer people in common it is an error.
            similarity: how similar keys must be, from 0 to 1 (default 0.85); for mode ``"fuzzy"`` alone.
            pad_to: fill every list up to this public length, so that nobody learns how long it is.
        """
        task = AlignmentTask(self.roster.trust, keys_on(on), mode, hidden, duplicates, at_least, pad_to=pad_to)
        if similarity is not None and mode != "fuzzy":
            raise StudyError('similarity= is for mode="fuzzy" alone: the other modes compare exactly [ST090]')
        if similarity is not None:
            task = replace(task, similarity=similarity)
        started = time.perf_counter()
        tables = {name: party.keyed(task.plan) for name, party in self.parties.items()}
        matched, aligned = self._match(task, tables)
        summary = AlignmentSummary.of(task, tables, matched, time.perf_counter() - started)
        roster = replace(self.roster, hidden=task.hidden, assumptions=(task.sentence,))
        self._aligned, self.alignment, self.roster = aligned, summary, roster
        return self

    def _match(self, task: AlignmentTask, tables: Mapping[str, Table]) -> tuple[AlignmentCounts, dict[str, Table]]:
        """What the coordinator found, and everyone's aligned table."""
        from colonnade.protocols.align import programs  # here, and not by every thread at once

        def owner(me: Owner, table: Table) -> Table:
            return programs.owner(me, keys_of(table), task).table(table)

        try:
            results = self._play(task, tables, owner, lambda me: programs.coordinator(me, task))
        except AlignmentError as error:
            error.examples = keys_of(next(iter(tables.values()))).examples
            raise
        return results[COORDINATOR], {name: results[name] for name in tables}

    @property
    def privacy_(self) -> SessionTotal:
        """What each observer learned from everything that was computed so far, together."""
        return self.charges.total()

    def tables(self) -> dict[str, Table]:
        """Each party's table of the same people in the same order: the order of the ids, or of the alignment."""
        if self.roster.hidden:
            raise StudyError(
                "the alignment was hidden, so nobody knows whose rows belong together; align with hidden=False to get "
                "the tables of the people in common [ST086]"
            )
        tables = {name: table.sorted_by_id() for name, table in self._held().items()}
        if len({tuple(table.ids) for table in tables.values()}) > 1:
            raise StudyError("the parties do not hold the same people: call people.align(on=...) first [ST087]")
        return tables

    def common_rows(self) -> int:
        """The number of people that all parties hold; an error says whose number of rows differs, if one does."""
        if self.alignment is not None:
            return next(iter(self.tables().values())).rows
        held = {name: party.table.rows for name, party in self.parties.items()}
        first, *others = held
        for name in others:
            if held[name] != held[first]:
                raise StudyError(
                    f"{name} has {held[name]} rows and {first} has {held[first]}: all must hold the same people, so "
                    "call people.align(on=...) first [ST088]"
                )
        return held[first]

    def __repr__(self) -> str:
        return f"Federation({', '.join(self.parties)}{'; aligned' if self.alignment else ''})"

    def _repr_html_(self) -> str:
        aligned = "not aligned" if self.alignment is None else "aligned, hidden" if self.roster.hidden else "aligned"
        return notebook.federation_html(self.roster.schemas, self.roster.trust, aligned)

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be closed."""

    def run(
        self,
        task: RunnableTask,
        owner: Callable[[Any, Table], object],
        coordinator: Callable[[Any], object],
        name: str = "this computation",
    ) -> dict[str, Any]:
        """Play every role in its own thread; returns what each program returned, the coordinator's last.

        What the task reveals is charged under ``name`` before anything starts.
        """
        try:
            return self._play(task, self._held(), owner, coordinator, name)
        except StudyError:
            if self.alignment is None:
                self.tables()  # raises a better error if the parties hold different people
            raise

    def _held(self) -> dict[str, Table]:
        """The tables that everything is computed on."""
        return self._aligned or {name: party.table for name, party in self.parties.items()}

    def _play(
        self,
        task: RunnableTask,
        tables: Mapping[str, Table],
        owner: Callable[[Any, Table], object],
        coordinator: Callable[[Any], object],
        name: str = "",
    ) -> dict[str, Any]:
        from threadpoolctl import threadpool_limits

        from colonnade.protocols.session import partners_of, run_role
        from colonnade.wire import InMemoryNetwork

        programs: dict[str, Callable[[Any], object]] = {COORDINATOR: coordinator}
        for party, table in tables.items():
            programs[party] = _bound(owner, table)
        room = InMemoryNetwork(programs, self.network)
        first = next(iter(self.parties))
        outcomes: dict[str, RunResult[Any] | BaseException] = {}

        def take_part(party: str, spend: Callable[[], None]) -> None:
            try:
                progress = self.progress if party == first else silent
                place = room.place(party, partners_of(party, programs, task))
                outcomes[party] = run_role(place, task, programs[party], progress, before_sharing=spend)
            except BaseException as error:
                outcomes[party] = error

        with self.charges.charge(name, task.events, task.trust) as spend, threadpool_limits(limits=1, user_api="blas"):
            threads = [threading.Thread(target=take_part, args=(party, spend), name=party) for party in programs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return _concluded({party: outcomes[party] for party in (*self.parties, COORDINATOR)})


def _checked_keys(name: str, keys: object) -> dict[str, KeyColumn | str]:
    if keys is None:
        return {}
    if not isinstance(keys, Mapping) or not all(held and isinstance(held, str | KeyColumn) for held in keys.values()):
        raise StudyError(
            f'{name}: keys= takes a mapping from keys to columns, such as {{"name": "client"}} or '
            '{"birth": KeyColumn("born", format="%d.%m.%Y")} [ST089]'
        )
    return dict(keys)


def _bound(owner: Callable[[Any, Table], object], table: Table) -> Callable[[Any], object]:
    return lambda me: owner(me, table)


def _concluded(outcomes: Mapping[str, RunResult[Any] | BaseException]) -> dict[str, Any]:
    """What each program returned; where one failed, the first error that did not follow from another one's."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerStopped | PeerLost)):
        raise error
    return {name: played.result for name, played in outcomes.items() if not isinstance(played, BaseException)}
