"""A fitted PCA, its run, its statement and its evaluation, as pages of reports show them."""

from __future__ import annotations

from functools import cache

import numpy as np

from colonnade.kinds import PCA
from colonnade.models.registry import section_of
from colonnade.privacy import SkellamRelease
from colonnade.privacy.observers import COORDINATOR, Trust
from colonnade.privacy.statement import Statement
from colonnade.report import render

COLUMNS = {
    "bank": ["income", "savings", "loan_amount", "card_spend", "overdraft_days",
        "age", "years_as_customer", "has_mortgage"],
    "shop": ["basket_value", "visits", "returns", "discount_share", "organic_share",
        "online_share", "alcohol", "loyalty_points"],
    "clinic": ["systolic_pressure", "diastolic_pressure", "bmi", "hba1c", "cholesterol",
        "smoker", "visits", "exercise_hours"],
}  # fmt: skip


def rendered(run, statement, model, evaluation=None):
    """The page with the section that fits the kind of the model."""
    return render(run, statement, model, section_of(model.kind), evaluation)


@cache
def make_statement(owners=("bank", "shop", "clinic"), seats=None, threshold=1, noise=10**13):
    seats = seats or (tuple(owners)[:7] if len(owners) > 2 else (*owners, COORDINATOR))
    event = SkellamRelease(
        name="second moments",
        shares=tuple((owner, noise) for owner in owners),
        dimension=625,
        l1=10**8,
        l2_squared=2 * 10**13,
        replace_l1=2 * 10**8,
        replace_l2_squared=4 * 10**13,
        theorem="moments-sensitivity",
    )
    return Statement.of([event], Trust(tuple(owners), tuple(seats), threshold), 1e-5)


def make_model(columns=COLUMNS, n_components=3, seed=7, noise_std=60.0):
    """A fitted PCA."""
    rng = np.random.default_rng(seed)
    names = [f"{owner}.{column}" for owner, held in columns.items() for column in held]
    components = np.linalg.qr(rng.normal(size=(len(names), n_components)))[0].T
    ratio = np.array([0.41, 0.17, 0.062, 0.03, 0.02])[:n_components]
    learned = {
        "feature_names_in": names,
        "components": components,
        "explained_variance": ratio * 1.3,
        "explained_variance_ratio": ratio,
        "mean": np.zeros(len(names)),
        "count": 4987.3,
        "noise_std": noise_std,
    }
    return as_fitted(PCA(n_components, epsilon=1.0), learned)


def as_fitted(model, learned, schemas=None):
    """A model that came out of some study with this result."""
    model.parameters_, model.privacy_, model.schemas_ = model.get_params(), make_statement(), schemas or {}
    model.restore(learned)
    return model


SAID = [{"rounds": rounds, "messages": messages, "bytes": messages * 90_000}
        for rounds, messages in ((0, 0), (0, 0), (0, 32), (0, 0), (2, 0), (0, 8), (1, 8))]  # fmt: skip


def make_run(columns=COLUMNS):
    phases = {
        "noise": 0.05,
        "encode": 0.31,
        "deal": 0.62,
        "own block": 0.08,
        "receive": 0.9,
        "multiply": 1.24,
        "open": 0.11,
    }

    def facts(k, held):
        return {
            "columns": held,
            "seat": True,
            "phases": {
                name: {"wall": (1 + 0.15 * k) * wall, "cpu": (0.1 if name == "receive" else 0.9) * wall, **said}
                for (name, wall), said in zip(phases.items(), SAID, strict=True)
            },
            "traffic": {
                "sent": 4_300_000 + 91_000 * k,
                "received": 8_600_000,
                "sealed_sent": 4_412_345 + 91_000 * k,
                "sealed_received": 8_712_345,
                "messages": 48 + k,
                "rounds": 3,
            },
            "seconds": 4.1 + 0.3 * k,
            "alignment": {"rows": 9_100 + k, "missing": 40 + k, "repeated": 3, "matched": 4_990},
        }

    return {
        "participant": "coordinator",
        "study": "Spending and blood pressure",
        "digest": "7f3a" * 16,
        "started": "2025-05-01T09:00:00.000+00:00",
        "ended": "2025-05-01T09:00:05.213+00:00",
        "seconds": 5.213,
        "status": "finished",
        "platform": "Python 3.11.9 on x86_64",
        "processors": 2,
        "participants": [*columns, "coordinator"],
        "alignment": {
            "mode": "dh",
            "hidden": False,
            "on": ["name", "birth"],
            "matched": 4_990,
            "rows": dict.fromkeys(columns, 9_057),
            "reused": False,
            "seconds": 1.75,
        },
        "task": {
            "kind": "pca",
            "n_components": 3,
            "center": True,
            "gamma": 4096,
            "noise": "30000000000000",
            "law": "skellam",
            "columns": sum(map(len, columns.values())),
            "primes": 3,
            "value_bits": 55,
            "system_bits": 65,
            "rows_at_most": 2**24,
            "noise_std": 60.0,
        },
        "parties": {name: facts(k, held) for k, (name, held) in enumerate(columns.items())},
        "coordinator": {
            "columns": [],
            "seat": False,
            "phases": {"open": {"wall": 0.12, "cpu": 0.02}},
            "traffic": {"sent": 900, "received": 22_000, "messages": 12},
            "seconds": 5.2,
        },
    }


def make_evaluation():
    epsilons = [0.1, 0.25, 0.5, 1, 2, 4, 8]
    return {
        "title": "ACS people of one state, 24 columns, 50 000 rows",
        "note": "Every line is held to the same epsilon against the analyst.",
        "epsilons": epsilons,
        "lines": [
            {"name": "Colonnade", "mean": [0.31, 0.45, 0.537, 0.585, 0.607, 0.613, 0.616],
             "std": [0.03, 0.025, 0.012, 0.006, 0.003, 0.002, 0.001]},
            {"name": "trusted curator (Analyze-Gauss)",
             "mean": [0.34, 0.475, 0.555, 0.594, 0.61, 0.6145, 0.6165],
             "std": [0.03, 0.02, 0.01, 0.005, 0.003, 0.002, 0.001]},
            {"name": "local noise", "mean": [0.125, 0.127, 0.13, 0.14, 0.17, 0.25, 0.41],
             "std": [0.01, 0.01, 0.01, 0.012, 0.015, 0.02, 0.02]},
        ],
        "ceiling": 0.618,
        "n_components": 3,
        "runs": 20,
    }  # fmt: skip
