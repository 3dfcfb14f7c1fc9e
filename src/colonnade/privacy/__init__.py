"""What an observer can learn, and what is left of the budget."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.privacy.accountant import Bound, delta, epsilon, profile
    from colonnade.privacy.calibrate import least_noise
    from colonnade.privacy.events import Event, View, view, views
    from colonnade.privacy.ledger import Entry, Ledger
    from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust, parse_budgets
    from colonnade.privacy.releases import (
        DiscreteGaussianRelease,
        DiscreteLaplaceRelease,
        GaussianRelease,
        NonPrivate,
        PoissonSampled,
        PostProcessing,
        RandomisedResponse,
        Repeated,
        SkellamRelease,
    )
    from colonnade.privacy.sensitivity import Sensitivity, moments_sensitivity, rounded_norm, rounded_norm_squared
    from colonnade.privacy.statement import Row, Statement

__all__ = [
    "Adjacency",
    "Bound",
    "Budget",
    "DiscreteGaussianRelease",
    "DiscreteLaplaceRelease",
    "Entry",
    "Event",
    "GaussianRelease",
    "Ledger",
    "NonPrivate",
    "Observer",
    "PoissonSampled",
    "PostProcessing",
    "RandomisedResponse",
    "Repeated",
    "Row",
    "Sensitivity",
    "SkellamRelease",
    "Statement",
    "Trust",
    "View",
    "delta",
    "epsilon",
    "least_noise",
    "moments_sensitivity",
    "parse_budgets",
    "profile",
    "rounded_norm",
    "rounded_norm_squared",
    "view",
    "views",
]

_HOMES = {
    "accountant": "Bound delta epsilon profile",
    "calibrate": "least_noise",
    "events": "Event View view views",
    "ledger": "Entry Ledger",
    "observers": "Adjacency Budget Observer Trust parse_budgets",
    "releases": "DiscreteGaussianRelease DiscreteLaplaceRelease GaussianRelease NonPrivate PoissonSampled "
    "PostProcessing RandomisedResponse Repeated SkellamRelease",
    "sensitivity": "Sensitivity moments_sensitivity rounded_norm rounded_norm_squared",
    "statement": "Row Statement",
}


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used."""
    for home, names in _HOMES.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
