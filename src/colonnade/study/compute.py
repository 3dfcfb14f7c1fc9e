"""``[compute]`` of a party file, and what a hub says of its workers: where they run, how many, what each may use."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator, model_validator

from colonnade.study.engine.contract import Engine
from colonnade.study.forks import Forks
from colonnade.study.keys import Part, checked_path
from colonnade.wire.offer import is_address

PROCESSES, RAY = "processes", "ray"
_CLIENT = "ray://"
_LEAST_MEMORY = 3 * 10**8
_MOST_WORKERS = 4096


class CrewPart(Part):
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


class ComputePart(CrewPart):
    """``[compute]``: has a meaning in studies with lanes alone."""

    memory: int | None = None
    spool: str | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        size = size_of(given)
        if size is None:
            raise ValueError('must be a size such as "1 GB" or "800 MB" [VA183]')
        if size < _LEAST_MEMORY:
            raise ValueError("must be at least 300 MB: a worker needs so much before its first row [VA184]")
        return size

    @field_validator("spool")
    @classmethod
    def _path(cls, text: str | None) -> str | None:
        return None if text is None else checked_path(text)

    @model_validator(mode="after")
    def _shared(self) -> ComputePart:
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

    def opened(self, forks: Forks | None = None) -> Engine:
        """The engine, not started yet; an ``EngineError`` where a cluster is not guarded."""
        if self.engine == PROCESSES:
            from colonnade.study.engine.processes import Processes

            return Processes(self.memory, forks)
        from colonnade.study.engine.on_ray import OnRay
        from colonnade.study.engine.ray_door import check_guarded

        if self.address is not None:
            check_guarded(self.address)
        return OnRay(self.address, self.memory)


def size_of(given: Any) -> int | None:
    """The bytes that a text such as ``"4 GB"`` means; ``None`` if it means none."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([MGT])B", given) if isinstance(given, str) else None
    return None if found is None else int(float(found[1]) * {"M": 10**6, "G": 10**9, "T": 10**12}[found[2]])
