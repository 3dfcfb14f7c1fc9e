"""What each data set is learned with: the networks of the paper, and the encoders that are ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from research.afe.cases import Case

EPOCHS = 20
DELTA = 0.01
"""The paper's delta for one release."""
OURS_DELTA = 1e-5


OURS_EPSILON = 8.0
EPSILONS = (0.3, 1.0, 3.0, 8.0)


@dataclass(frozen=True)
class Published:
    """How Algorithm 1 is run: ``per_release`` is the epsilon that the paper would print, ``rate`` that of its steps.

    Networks that learn without noise take steps of ``open_rate``. At the slow rates of the paper noise is what stands
    between embeddings and their head; at faster ones encoders fill the clip by themselves, and rescaling harms.
    """

    network: dict[str, Any]
    per_release: float
    clip: float
    rate: float
    beta: float
    open_rate: float = 1e-3
    batch: int = 256
    alpha: float = 0.01
    confidence: float = 0.5


_MLP = {"kind": "mlp", "hidden": [64], "width": 16, "activation": "relu"}
_CNN = {"kind": "cnn", "channels": [16, 32], "width": 32, "activation": "relu"}
_LENET = {"kind": "cnn", "channels": [6, 16], "hidden": [120, 84], "width": 32, "activation": "relu"}
PUBLISHED = {
    "Adult": Published(_MLP, 10.0, 30.0, 1e-4, 0.01),
    "MNIST": Published(_CNN, 100.0, 20.0, 1e-5, 0.003),
    "CIFAR-10": Published(_LENET, 100.0, 20.0, 1e-4, 0.003),
}


def network(case: Case, party: str) -> dict[str, Any]:
    """The specification of a party's network; those of pictures know how their columns are arranged."""
    found = dict(PUBLISHED[case.name].network)
    return found | {"shape": list(case.shapes[party])} if party in case.shapes else found


def features(case: Case, party: str, width: int | None = None) -> dict[str, Any]:
    """Public features of a party's columns: oriented edges of pictures, random cosines of tables."""
    wide = {} if width is None else {"width": width}
    if party in case.shapes:
        return {"kind": "edges", "shape": list(case.shapes[party]), **wide}
    return {"kind": "cosine", "width": 200, **wide}


def learned(case: Case, party: str) -> dict[str, Any]:
    """A linear map of public features to one dimension less than there are classes, which is learned under noise."""
    wide = 500 if party in case.shapes else None
    return {"kind": "linear", "width": case.classes - 1, "over": features(case, party, wide)}
