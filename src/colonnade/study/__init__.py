"""What is asked, of whom, at what price, and what came of it."""

from colonnade.study.local import run_local
from colonnade.study.policy import PartyConfig
from colonnade.study.preflight import Preflight, preflight
from colonnade.study.record import RunRecord
from colonnade.study.run import run_coordinator, run_party
from colonnade.study.spec import Study

__all__ = [
    "PartyConfig",
    "Preflight",
    "RunRecord",
    "Study",
    "preflight",
    "run_coordinator",
    "run_local",
    "run_party",
]
