"""What an observer can learn, and what is left of the budget."""

from __future__ import annotations

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
