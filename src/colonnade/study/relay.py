"""A hub for lanes alone, which the coordinator's organisation runs on another machine beside the coordinator's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import StudyError
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.meeting import load_identity
from colonnade.study.spec import Study
from colonnade.wire import Hub


@contextmanager
def relay(study: Study, key: Path, listen: str | None = None) -> Iterator[Hub]:
    """Serve lanes of a study, for as long as this lasts; ``key`` is the coordinator's.

    It listens at the one further hub that the study names, or at ``listen``.
    """
    hubs = study.content.coordinator.hubs
    if not hubs:
        raise StudyError(
            f"{study.path}: coordinator.hubs is missing, so nobody would come here: write the addresses of further "
            "hubs there, and give everyone the new study file [ST580]"
        )
    if listen is None and len(hubs) > 1:
        raise StudyError(
            f"{study.path}: coordinator.hubs names {len(hubs)} hubs: say with --listen HOST:PORT "
            "which one this is [ST581]"
        )
    certificates = study.certificates()
    identity = load_identity(key, COORDINATOR, certificates)
    limits = study.content.limits.of_hub
    with Hub(identity, certificates, listen or hubs[0], rooms={}, lanes=True, **limits) as hub:
        yield hub
