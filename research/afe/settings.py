"""What each data set is learned with: the networks of the paper, and the encoders that are ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from research.afe import networks
from research.afe.cases import Case

if TYPE_CHECKING:
    from torch import nn

EPOCHS = 20
DELTA = 0.01
"""The paper's delta for one release."""
OURS_DELTA = 1e-5


OURS_EPSILON = 8.0
EPSILONS = (0.3, 1.0, 3.0, 8.0)


@dataclass(frozen=True)
class Published:
    """How Algorithm 1 is run: ``per_release`` is the epsilon that the paper would print.

    ``travel`` is the rate times the number of steps: how far Adam moves a parameter at most. Networks that learn
    without noise take steps of ``open_rate``. With slow steps and a generous clip noise is what stands between
    embeddings and their head; with fast ones encoders fill the clip by themselves, and rescaling harms. Of each batch
    the first ``compared`` rows are, to save time.
    """

    per_release: float
    clip: float
    travel: float
    beta: float
    channels: tuple[int, ...] = ()
    hidden: int = 64
    width: int = 16
    open_rate: float = 1e-3
    batch: int = 256
    compared: int = 128
    alpha: float = 0.01
    confidence: float = 0.5

    def network(self, columns: int, shape: Sequence[int], seed: int) -> nn.Module:
        """The network of a party with these columns, which are a picture of this shape if there is one."""
        if shape:
            return networks.flattened(shape, self.channels, seed)
        return networks.perceptron(columns, self.hidden, self.width, seed)


PUBLISHED = {
    "Adult": Published(10.0, 30.0, 0.254, 0.001),
    "MNIST": Published(100.0, 20.0, 0.047, 0.003, channels=(16, 32)),
    "CIFAR-10": Published(100.0, 20.0, 0.2, 0.003, channels=(6, 16)),
}


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
