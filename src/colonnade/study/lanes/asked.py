"""What whoever runs a participant says of its workers; studies without lanes read no more of lanes than this."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from colonnade.errors import StudyError
from colonnade.study.compute import PROCESSES, ComputePart
from colonnade.study.forks import Forks
from colonnade.study.spec import first_problem


@dataclass(frozen=True)
class Asked:
    """What whoever runs a participant says of its workers: how many, and at the coordinator, where they run."""

    workers: int | None = None
    engine: str | None = None
    """The coordinator's; a party's file names its own."""
    forks: Forks | None = None
    """By which processes are started."""

    def compute(self, own: ComputePart | None = None) -> ComputePart:
        """What is used in the end; a coordinator has no table, so it needs no folder that machines share."""
        found = own or self._coordinators
        return found.model_copy(update={} if self.workers is None else {"workers": self.workers})

    @property
    def _coordinators(self) -> ComputePart:
        try:
            return ComputePart(engine=self.engine or PROCESSES, spool="/")
        except ValidationError as error:
            raise StudyError(f"--{first_problem(error)} [ST558]") from None

    def close(self) -> None:
        """End what starts processes."""
        if self.forks is not None:
            self.forks.close()


AS_WRITTEN = Asked()
