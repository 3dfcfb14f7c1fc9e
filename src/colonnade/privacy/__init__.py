"""What an observer can learn, and what is left of the budget."""

from __future__ import annotations

from colonnade.privacy.accountant import Bound, delta, epsilon
from colonnade.privacy.calibrate import least_noise
from colonnade.privacy.events import DiscreteGaussianRelease, Event, NonPrivate, SkellamRelease, View, view
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust, parse_budgets
from colonnade.privacy.sensitivity import Sensitivity, moments_sensitivity, rounded_norm, rounded_norm_squared
from colonnade.privacy.statement import Row, Statement

__all__ = [
    "Adjacency",
    "Bound",
    "Budget",
    "DiscreteGaussianRelease",
    "Entry",
    "Event",
    "Ledger",
    "NonPrivate",
    "Observer",
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
    "rounded_norm",
    "rounded_norm_squared",
    "view",
]
