"""Does the promise hold against an attacker? Games that bound it from below, and the probe of sensitivities."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

if TYPE_CHECKING:
    from colonnade.audit.distinguish import profile_audit as profile_audit
    from colonnade.audit.probe import (
        Change as Change,
        ProbeReport as ProbeReport,
        neighbours_in_ball as neighbours_in_ball,
        sensitivity_probe as sensitivity_probe,
    )
    from colonnade.audit.registry import (
        Game as Game,
        Sampler as Sampler,
        games as games,
        register as register,
        subject as subject,
        subjects as subjects,
    )

SAMPLES = 400_000
MOST_SAMPLES = 10_000_000  # a gigabyte of memory, and hours for the larger games

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "distinguish": "profile_audit",
        "probe": "Change ProbeReport neighbours_in_ball sensitivity_probe",
        "registry": "Game Sampler games register subject subjects",
    },
)
