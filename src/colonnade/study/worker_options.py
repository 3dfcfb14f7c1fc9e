"""Where workers run, how many there are and what each may use: by a file, a hub or whoever starts a participant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from colonnade.errors import StudyError
from colonnade.study.engine.base import Engine
from colonnade.study.fork_server import ForkServer
from colonnade.study.spec import first_problem
from colonnade.study.study_file import FileSection, check_path
from colonnade.wire.link_offers import is_address

PROCESSES, RAY = "processes", "ray"
_CLIENT = "ray://"
_LEAST_MEMORY = 3 * 10**8
_MOST_WORKERS = 4096


class WorkersSection(FileSection):
    """Where workers run, and how many there are: all that is said of a coordinator's."""

    engine: str = PROCESSES
    workers: int | None = Field(default=None, ge=1, le=_MOST_WORKERS, strict=True)

    @field_validator("engine")
    @classmethod
    def _known(cls, text: str) -> str:
        if text not in (PROCESSES, RAY) and not is_address(text.removeprefix(_CLIENT)):
            raise ValueError(
                f'must be "{PROCESSES}", "{RAY}", or the address of a Ray cluster: "host:port" on one of its nodes, '
                f'"{_CLIENT}host:port" from elsewhere [VA182]'
            )
        return text


class ComputeSection(WorkersSection):
    """``[compute]``: has a meaning in studies with lanes alone."""

    memory: int | None = None
    spool: str | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        size = parse_size(given)
        if size is None:
            raise ValueError('must be a size such as "1 GB" or "800 MB" [VA183]')
        if size < _LEAST_MEMORY:
            raise ValueError("must be at least 300 MB: a worker needs so much before its first row [VA184]")
        return size

    @field_validator("spool")
    @classmethod
    def _path(cls, text: str | None) -> str | None:
        return None if text is None else check_path(text)

    @model_validator(mode="after")
    def _shared(self) -> ComputeSection:
        if self.address is not None and (self.spool is None or not self.spool.startswith("/")):
            raise ValueError(
                f"engine = {self.engine!r} may have several machines, so spool must name a folder that all of them "
                "see under the same path, which begins with / [VA185]"
            )
        return self

    @property
    def address(self) -> str | None:
        """The address of a Ray cluster, if one is given."""
        return None if self.engine in (PROCESSES, RAY) else self.engine

    def open_engine(self, forks: ForkServer | None = None) -> Engine:
        """The engine, not started yet; an ``EngineError`` where a cluster is not guarded."""
        if self.engine == PROCESSES:
            from colonnade.study.engine.processes import ProcessEngine

            return ProcessEngine(self.memory, forks)
        from colonnade.study.engine.ray_actors import RayEngine
        from colonnade.study.engine.ray_cluster import check_guarded

        if self.address is not None:
            check_guarded(self.address)
        return RayEngine(self.address, self.memory)


def parse_size(given: Any) -> int | None:
    """The bytes that a text such as ``"4 GB"`` means; ``None`` if it means none."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([MGT])B", given) if isinstance(given, str) else None
    return None if found is None else int(float(found[1]) * {"M": 10**6, "G": 10**9, "T": 10**12}[found[2]])


@dataclass(frozen=True)
class WorkerOptions:
    """What whoever runs a participant says of its workers: how many, and at the coordinator, where they run."""

    workers: int | None = None
    engine: str | None = None
    """The coordinator's; a party's file names its own."""
    forks: ForkServer | None = None
    """By which processes are started."""

    def compute(self, own: ComputeSection | None = None) -> ComputeSection:
        """What is used in the end; a coordinator has no table, so it needs no folder that machines share."""
        found = own or self._coordinators
        return found.model_copy(update={} if self.workers is None else {"workers": self.workers})

    @property
    def _coordinators(self) -> ComputeSection:
        try:
            return ComputeSection(engine=self.engine or PROCESSES, spool="/")
        except ValidationError as error:
            raise StudyError(f"--{first_problem(error)} [ST558]") from None

    def close(self) -> None:
        """End what starts processes."""
        if self.forks is not None:
            self.forks.close()


DEFAULT_WORKERS = WorkerOptions()
