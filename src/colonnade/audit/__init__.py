"""Does the promise hold against an attacker? Games from below, and the probe of sensitivities."""

from colonnade.audit.distinguish import CONFIDENCE, DELTA, EPSILONS, AuditResult, epsilon_lower_bound, profile_audit
from colonnade.audit.probe import Change, ProbeReport, neighbours_in_ball, sensitivity_probe
from colonnade.audit.registry import (
    Game,
    Row,
    Sampler,
    Twin,
    games,
    register,
    register_twin,
    rows,
    subject,
    twin_rows,
    twins,
)

__all__ = [
    "CONFIDENCE",
    "DELTA",
    "EPSILONS",
    "AuditResult",
    "Change",
    "Game",
    "ProbeReport",
    "Row",
    "Sampler",
    "Twin",
    "epsilon_lower_bound",
    "games",
    "neighbours_in_ball",
    "profile_audit",
    "register",
    "register_twin",
    "rows",
    "sensitivity_probe",
    "subject",
    "twin_rows",
    "twins",
]
