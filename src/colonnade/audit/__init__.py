"""Does the promise hold against an attacker? Games that bound it from below, and the probe of sensitivities."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.audit.registry import (
        Game as Game,
        ProbeReport as ProbeReport,
        Sampler as Sampler,
        TableChange as TableChange,
        games as games,
        neighbours_in_ball as neighbours_in_ball,
        profile_audit as profile_audit,
        register as register,
        sensitivity_probe as sensitivity_probe,
        subject as subject,
        subjects as subjects,
    )

SAMPLES = 400_000
MOST_SAMPLES = 10_000_000  # a gigabyte of memory, and hours for the larger games

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "registry": "Game Sampler games register subject subjects TableChange ProbeReport neighbours_in_ball "
        "profile_audit sensitivity_probe",
    },
)
