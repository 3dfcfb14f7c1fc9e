"""What is asked, of whom, at what price, and what came of it."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

# Not with the others below: its name is also the name of its module, which importing would put in its place.
from colonnade.study.preflight import Preflight as Preflight, preflight as preflight

if TYPE_CHECKING:
    from colonnade.study.local import run_local as run_local
    from colonnade.study.party_config import PartyConfig as PartyConfig
    from colonnade.study.record import RunRecord as RunRecord
    from colonnade.study.run import run_coordinator as run_coordinator, run_party as run_party
    from colonnade.study.spec import Study as Study

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "local": "run_local",
        "party_config": "PartyConfig",
        "record": "RunRecord",
        "run": "run_coordinator run_party",
        "spec": "Study",
    },
)
