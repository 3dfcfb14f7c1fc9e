"""The head of a participant in a study in lanes: its table in partitions, its workers, and what is recorded of both."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Self, cast

from colonnade.errors import StudyError
from colonnade.models.base import Estimator
from colonnade.mpc.verification.claims import STUDY_ERROR
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.lanes import lane as laning
from colonnade.protocols.lanes.arbiter import RUNS_THAT_MAY_CHEAT
from colonnade.protocols.lanes.lane import BEAT, LanePlan
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.study.alignment_session import RunNotes, record_alignment
from colonnade.study.connect import MeetingPoint
from colonnade.study.lanes.crew import LaneWorkerPool
from colonnade.study.lanes.worker import PartitionFinder, WorkerTask
from colonnade.study.party_config import PartyConfig
from colonnade.study.party_file import DEFAULT_WORKERS, ComputeSection, WorkerOptions
from colonnade.study.spec import Study
from colonnade.tables import Schema
from colonnade.tables.partitioning import PartitionedTable, StagedTable, stage_table
from colonnade.tables.partitioning.partitions import PrivateTempDir
from colonnade.tables.partitioning.staging import PartitionRunner
from colonnade.wire import Certificate, Identity
from colonnade.wire.link_offers import DirectLinkSettings, RouteCallback

_REACH_SECONDS = 10.0
"""For how long a worker tries to reach a hub, at first or again: a lane that is lost can be run at another one."""


class LanesHead(ABC):
    """What the heads of owners and of the coordinator have in common; it is left when the study ends, in any way."""

    error = RUNS_THAT_MAY_CHEAT * STUDY_ERROR
    """The most with which a wrong claim passes in all lanes (docs/theory/lanes.md)."""

    def __init__(
        self,
        study: Study,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions,
        told: RouteCallback | None,
    ) -> None:
        self._study, self._model, self._identity, self._certificates = study, model, identity, certificates
        self._place, self._record, self._asked, self._told = place, record, asked, told
        self._left = ExitStack()
        try:
            self._own_crew = self._prepare()
        except BaseException:
            self._left.close()
            raise

    @abstractmethod
    def _prepare(self) -> LaneWorkerPool:
        """The workers; an owner's table is read and checked before."""

    @cached_property
    def laned(self) -> LanePlan:
        """The study as all participants know it."""
        aligning = self._study.aligning
        if aligning is None:
            raise StudyError("lanes needs [align] [ST559]")
        hubs = len(self._study.content.coordinator.lane_hubs)
        return LanePlan(cast("CommitteeTask", self._study.task), aligning, bytes.fromhex(self._study.digest), hubs)

    def _crew(
        self, compute: ComputeSection, hubs: Sequence[str], direct: DirectLinkSettings, schema: Schema | None = None
    ) -> LaneWorkerPool:
        limits = self._study.content.limits
        settings = limits.of_participant(min(limits.join, _REACH_SECONDS))
        settings["reconnect_grace"] = min(limits.reconnect, _REACH_SECONDS)
        duty = WorkerTask(
            self._identity.name,
            self.laned,
            self._model,
            dict(self._certificates),
            self._place.topic(self._study.digest),
            settings,
            limits.join,
            schema,
            direct if self._study.content.coordinator.links == "direct" else None,
            self._place.room,
        )
        engine = compute.open_engine(self._asked.forks)
        crew = LaneWorkerPool(
            engine, duty, self._identity, hubs, compute.workers, self._told, self._record.record_public
        )
        self._left.callback(lambda: self._record.add(lanes=crew.facts))
        self._left.callback(crew.close)
        self._record.record_public("workers started", workers=crew.size, engine=compute.engine)
        return crew

    @property
    def claims(self) -> int:
        """How many claims about shares were checked in lanes."""
        return self._own_crew.claims

    @property
    def _beat(self) -> float:
        return min(BEAT, self._study.content.limits.silence / 3)

    def _hubs(self, own: str) -> list[str]:
        return [own, *self._study.content.coordinator.hubs]

    def _write_down(self, crew: LaneWorkerPool, start: float, counts: Mapping[str, Any]) -> None:
        aligning = self.laned.aligning
        record_alignment(self._record, aligning, False, start, None if aligning.hidden else crew.rows, counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()


class OwnerLanesHead(LanesHead):
    """An owner's: its table is read and checked once, with its workers, and lies in a private folder until the end."""

    def __init__(
        self,
        study: Study,
        config: PartyConfig,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions = DEFAULT_WORKERS,
        told: RouteCallback | None = None,
    ) -> None:
        self._config, self._compute = config, asked.compute(config.content.compute)
        super().__init__(study, model, identity, certificates, place, record, asked, told)

    def _prepare(self) -> LaneWorkerPool:
        self._gathered = self._read()
        return self._started

    @cached_property
    def _started(self) -> LaneWorkerPool:
        """The workers: they are started when there is something to do for them, at the latest before lanes."""
        hub = self._place.hub or self._study.content.coordinator.address
        return self._crew(self._compute, self._hubs(hub), self._config.content.network.direct, self._schema)

    @property
    def _schema(self) -> Schema:
        return self._study.roster.schemas[self._config.name].with_text_format(self._config.content.text_format)

    def _hands(self, pulse: laning.Pulse) -> PartitionRunner:
        return lambda chores: self._started.share(chores, pulse)

    def _read(self) -> StagedTable:
        study, config, own = self._study, self._config, self._config.content
        plan = self.laned.aligning.plan
        room = PrivateTempDir(config.spool)
        self._left.callback(room.remove)  # after workers have ended, who may write there
        gathered = stage_table(
            config.data,
            self._schema,
            plan,
            room,
            id=own.id,
            columns=config.key_columns(plan),
            misfits=own.misfits,
            workers=self._hands(lambda: None),
        )
        report = gathered.report
        misfits = dict(report.misfits)
        self._record.record_public(
            "table checked", rows=gathered.rows, clipped=report.total_clipped, misfits=misfits, keys=gathered.keys
        )
        self._record.add(misfits=misfits, rows_held=gathered.rows)
        self.laned.aligning.check_length(gathered.keys)
        if study.content.align is not None and study.content.align.used_again:
            self._record.record_public("in lanes, an alignment is neither kept nor used again")
        return gathered

    def owner(self, me: Owner) -> Any:
        """The program."""
        start, gathered = time.monotonic(), self._gathered

        def split(spread: Partitions, pulse: laning.Pulse) -> list[int]:
            partition_of = PartitionFinder.write(spread, gathered.folder)
            spool: PartitionedTable = gathered.split(
                partition_of, spread.count, self._hands(pulse), self._compute.memory
            )
            partition_of.forget()
            self._own_crew.lay(str(spool.folder), gathered.keys)
            self._record.record_public("table in partitions", partitions=spread.count)
            return [int(length) for length in spool.lengths]

        found = laning.owner(me, self.laned, self.laned.task.programs, self._own_crew, split, beat=self._beat)
        counts = {"rows": gathered.rows, "missing": gathered.missing, "repeated": gathered.repeated}
        self._write_down(self._own_crew, start, counts)
        return found


class CoordinatorLanesHead(LanesHead):
    """The coordinator's: it has workers, and no table."""

    def __init__(
        self,
        study: Study,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions = DEFAULT_WORKERS,
        told: RouteCallback | None = None,
        *,
        dial: bool = True,
    ) -> None:
        self._dial = dial
        super().__init__(study, model, identity, certificates, place, record, asked, told)

    def _prepare(self) -> LaneWorkerPool:
        compute = self._asked.compute()
        # Its own processes need not come in by the door that strangers use.
        own = self._place.hub if compute.address is None else None
        hubs = self._hubs(own or self._study.content.coordinator.address)
        return self._crew(compute, hubs, DirectLinkSettings(dials=self._dial))

    def coordinator(self, me: Coordinator) -> Any:
        """The program."""
        start = time.monotonic()
        found = laning.coordinator(me, self.laned, self.laned.task.programs, self._own_crew, beat=self._beat)
        self._write_down(self._own_crew, start, {})
        return found
