"""What an observer can learn, and what is left of the budget."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.privacy.accountant import delta as delta, epsilon as epsilon, profile as profile
    from colonnade.privacy.calibrate import least_noise as least_noise
    from colonnade.privacy.events import Event as Event, view as view, views as views
    from colonnade.privacy.ledger import Ledger as Ledger, LedgerEntry as LedgerEntry
    from colonnade.privacy.noise_laws import (
        DiscreteGaussianRelease as DiscreteGaussianRelease,
        DiscreteLaplaceRelease as DiscreteLaplaceRelease,
        NonPrivate as NonPrivate,
        PoissonSampled as PoissonSampled,
        PostProcessing as PostProcessing,
        RepeatedRelease as RepeatedRelease,
        SkellamRelease as SkellamRelease,
        View as View,
    )
    from colonnade.privacy.observers import (
        Adjacency as Adjacency,
        Budget as Budget,
        Observer as Observer,
        Trust as Trust,
        parse_budgets as parse_budgets,
    )
    from colonnade.privacy.sensitivity import Sensitivity as Sensitivity
    from colonnade.privacy.statement import Statement as Statement

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "accountant": "delta epsilon profile",
        "calibrate": "least_noise",
        "events": "Event view views",
        "ledger": "LedgerEntry Ledger",
        "observers": "Adjacency Budget Observer Trust parse_budgets",
        "noise_laws": "DiscreteGaussianRelease DiscreteLaplaceRelease NonPrivate PoissonSampled PostProcessing "
        "RepeatedRelease SkellamRelease View",
        "sensitivity": "Sensitivity",
        "statement": "Statement",
    },
)
