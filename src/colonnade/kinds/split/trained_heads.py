"""Heads that the party with the label trains itself: a linear layer, or any torch module of its own.

They learn together with encoders, for the algorithm as published, or from embeddings that are there: from embeddings to
a loss and its slopes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.encoder_base import Matrix, Places, Vector
from colonnade.kinds.split.torch_encoders import set_weights
from colonnade.models.pytorch import Adam, find_device, load_torch

if TYPE_CHECKING:
    from torch import nn

_ROWS = 4096


class SoftmaxHead:
    """A linear head, in numpy: logistic loss over ``classes``, or with 0 classes half the squared error of a number.

    It learns by Adam's steps of this rate, from the mean loss of a batch.
    """

    def __init__(self, labels: NDArray[Any], width: int, classes: int, *, rate: float = 0.01) -> None:
        self.labels, self.classes = check_labels(labels, classes), classes
        self.weights, self.offsets = np.zeros((width, max(1, classes))), np.zeros(max(1, classes))
        self._adam = Adam(rate)

    def scores(self, embeddings: Matrix) -> Matrix:
        """Scores of classes, or predicted numbers, (n, classes or 1)."""
        return np.asarray(embeddings @ self.weights + self.offsets)

    def slopes(self, places: Places, embeddings: Matrix, /) -> tuple[float, Matrix]:
        """The mean loss of a batch and the slopes of its rows; then the head moves."""
        losses, pulls = loss_and_slopes(self.scores(embeddings), self.labels[places])
        back = pulls @ self.weights.T
        step = self._adam.step(np.vstack([embeddings.T @ pulls, pulls.sum(axis=0)]) / len(places))
        self.weights, self.offsets = self.weights + step[:-1], self.offsets + step[-1]
        return float(losses.mean()), np.asarray(back)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned."""
        return {"weights": self.weights, "offsets": self.offsets}


class TorchHead:
    """Any torch module as the head, from all parties' embeddings to scores; it learns by Adam's steps of this rate.

    Without a module it is one linear layer, which starts at zero. The module is copied.
    """

    def __init__(
        self,
        labels: NDArray[Any],
        width: int,
        classes: int,
        module: nn.Module | None = None,
        *,
        rate: float = 0.01,
        device: str = "auto",
    ) -> None:
        torch = load_torch()
        self.labels, self.classes = check_labels(labels, classes), classes
        self._device = find_device(device)
        if module is None:
            module = torch.nn.utils.skip_init(torch.nn.Linear, width, max(1, classes))
            with torch.no_grad():
                for each in module.parameters():
                    each.zero_()
        self.module: nn.Module = copy.deepcopy(module).to(self._device).float().eval()
        self._check(width)
        self._learned = [each for each in self.module.parameters() if each.requires_grad]
        self._adam = [Adam(rate) for _ in self._learned]

    def scores(self, embeddings: Matrix) -> Matrix:
        """Scores of classes, or predicted numbers, (n, classes or 1)."""
        torch = load_torch()
        with torch.no_grad():
            starts = range(0, max(1, len(embeddings)), _ROWS)
            blocks = [self._applied(self._tensor(embeddings[at : at + _ROWS])) for at in starts]
            return np.vstack([each.double().cpu().numpy() for each in blocks])

    def _applied(self, given: Any) -> Any:
        """What the party's own module makes of embeddings; if it fails, its words are not told, which may hold some."""
        try:
            return self.module(given)
        except Exception as error:
            raise StudyError(
                f"the module of the head failed on embeddings: {type(error).__name__} (its "
                "message is not shown) [ST288]"
            ) from None

    def slopes(self, places: Places, embeddings: Matrix, /) -> tuple[float, Matrix]:
        """The mean loss of a batch and the slopes of its rows; then the head moves."""
        given = self._tensor(embeddings).requires_grad_()
        scores = self._applied(given)
        losses, pulls = loss_and_slopes(scores.detach().double().cpu().numpy(), self.labels[places])
        torch = load_torch()
        back, *grads = torch.autograd.grad(scores, [given, *self._learned], self._tensor(pulls))
        with torch.no_grad():
            for each, adam, grad in zip(self._learned, self._adam, grads, strict=True):
                each.add_(adam.step(grad / len(places)))
        return float(losses.mean()), back.double().cpu().numpy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, by its names in the module."""
        return {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}

    def _tensor(self, values: Matrix) -> Any:
        made = load_torch().from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        return made.to(self._device)

    def _check(self, width: int) -> None:
        """Try the module on zeros, of which its message may be shown."""
        try:
            with load_torch().no_grad():
                shape = tuple(self.module(self._tensor(np.zeros((2, width)))).shape)
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:200]
            raise StudyError(
                f"the module of the head cannot be applied to embeddings of {width} numbers: {said} [ST289]"
            ) from None
        if shape != (2, max(1, self.classes)):
            raise StudyError(f"the module of the head must make {max(1, self.classes)} scores of each row [ST290]")


def check_labels(labels: NDArray[Any], classes: int) -> NDArray[Any]:
    """Labels as numbers, or as the numbers of classes."""
    found = np.asarray(labels)
    if classes == 0:
        return found.astype(np.float64)
    if classes < 2 or found.dtype.kind not in "iub" or (found.size and not 0 <= found.min() <= found.max() < classes):
        raise StudyError("the labels of a head are numbers of classes, from 0 to one below how many there are [ST292]")
    return found.astype(np.int64)


def loss_and_slopes(scores: Matrix, labels: NDArray[Any]) -> tuple[Vector, Matrix]:
    """Each row's loss, and how it changes with the row's scores."""
    if labels.dtype.kind == "f":
        error = scores[:, 0] - labels
        return error**2 / 2, error[:, None]
    rows, shifted = np.arange(len(labels)), scores - scores.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    totals = powers.sum(axis=1, keepdims=True)
    pulls = powers / totals
    pulls[rows, labels] -= 1.0
    return np.log(totals[:, 0]) - shifted[rows, labels], pulls


HeadMatrix = NDArray[np.float64]
TrainedHead = SoftmaxHead | TorchHead
_EPOCHS, _BATCH, _RATE = 20, 256, 0.01


def create_head(
    labels: NDArray[Any], width: int, classes: int, module: Any = None, rate: float | None = None
) -> TrainedHead:
    """A head that is to learn these labels from joint embeddings of this width."""
    if module is None:
        return SoftmaxHead(labels, width, classes, rate=rate or _RATE)
    return TorchHead(labels, width, classes, module, rate=rate or _RATE / 10)


def train_head(rows: HeadMatrix, labels: NDArray[Any], classes: int, module: Any) -> dict[str, NDArray[Any]]:
    """What such a head learns from embeddings that are there; its order of batches is fixed."""
    head = create_head(labels, rows.shape[1], classes, module)
    random, count = np.random.default_rng(0), max(1, len(rows) // _BATCH)
    for _ in range(_EPOCHS):
        for places in np.array_split(random.permutation(len(rows)), count):
            head.slopes(places, rows[places])
    return head.arrays()


def head_scores(rows: HeadMatrix, arrays: Mapping[str, NDArray[Any]], classes: int, module: Any = None) -> HeadMatrix:
    """Scores by a head that was learned before, (rows, outputs)."""
    nobody = np.zeros(0, dtype=np.int64 if classes else np.float64)
    if module is None:
        if set(arrays) != {"weights", "offsets"}:
            raise StudyError(
                "the head is a module, of which files hold the weights alone: set head_module to it [ST295]"
            )
        if arrays["weights"].shape != (rows.shape[1], max(1, classes)):
            raise StudyError("the head that was kept does not belong to embeddings of this width [ST296]")
        return np.asarray(rows @ arrays["weights"] + arrays["offsets"])
    head = TorchHead(nobody, rows.shape[1], classes, module)
    set_weights(head.module, arrays)
    return head.scores(rows)
