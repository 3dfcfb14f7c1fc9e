"""What is told about labels while each way learns, and how well the first passive party guesses them from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade import SplitClassifier
from colonnade.audit.attacks.membership import LabelGuesses, infer_labels
from colonnade.audit.attacks.views import collect_gradients
from research.afe import settings
from research.afe.cases import Case
from research.reproduce.chance import stream

ROWS, KNOWN, EPOCHS = 2_000, 20, 3
OPEN = "Colonnade, embeddings told (AFE-R), labels unprotected"
NOTHING = "Colonnade, committee: nothing is told, the commonest class"

_PUBLISHED = {"head": "published", "epochs": EPOCHS}
_TOLD = {"head": "embeddings", "training": "labels", "epsilon": settings.OURS_EPSILON, "delta": settings.OURS_DELTA}
WAYS: dict[str, dict[str, Any]] = {
    "unprotected": _PUBLISHED | {"unprotected": True, "rescale": False, "adjust": False},
    "vanilla": _PUBLISHED | {"per_release": 10.0, "rescale": False, "adjust": False},
    "VFL-AFE": _PUBLISHED | {"per_release": 10.0},
    OPEN: _TOLD,
    "Colonnade, embeddings told (AFE-R), labels at epsilon 3": _TOLD | {"label_epsilon": 3.0},
    "Colonnade, embeddings told (AFE-R), labels at epsilon 1": _TOLD | {"label_epsilon": 1.0},
}
"""All that tell something about labels. A committee tells neither slopes nor labels."""


def attacked(way: str, case: Case, seed: int, rows: int = ROWS) -> LabelGuesses:
    """Guess the labels of some people from what was returned or told about them; a few are known."""
    people = case.train.take(np.arange(rows))
    given = WAYS[way]
    if given["head"] == "embeddings":
        given = given | {"encoders": {party: settings.learned(case, party) for party in case.passives}}
    model = SplitClassifier(label=case.label, **given)
    model.simulate(people.tables, case.roster(committee=False), stream(seed, "labels", way))
    found = collect_gradients(model, people.tables, KNOWN, seed, stream=stream(seed, "returned", way))
    return infer_labels(found, seed=seed)
