"""The paper's networks: a linear layer or two for tables, a two-layer CNN and LeNet-5 with feature flattening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def perceptron(columns: int, hidden: int, width: int, seed: int) -> nn.Module:
    """Two linear layers with a rectifier between them."""
    from torch import nn

    with _seeded(seed):
        return nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, width))


def flattened(shape: Sequence[int], channels: Sequence[int], seed: int) -> nn.Module:
    """Convolutions of 5 x 5, each with a rectifier and the largest of 2 x 2 places; then all of it as one row."""
    from torch import nn

    height, width, colours = (*shape, 1)[:3]
    with _seeded(seed):
        layers: list[nn.Module] = [_Pictures(height, width, colours)]
        for inward, outward in zip((colours, *channels), channels, strict=False):
            layers += [nn.Conv2d(inward, outward, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten())


def _Pictures(height: int, width: int, colours: int) -> nn.Module:  # noqa: N802 - it stands for a class of torch
    """Rows of a table, whose channels come last, as pictures of torch, whose channels come first."""
    from torch import Tensor, nn

    class Pictures(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return rows.reshape(-1, height, width, colours).permute(0, 3, 1, 2)

    return Pictures()


class _seeded:  # noqa: N801 - a context that reads like a verb
    """Weights follow from a seed; torch's own state of randomness stays as it was."""

    def __init__(self, seed: int) -> None:
        import torch

        self._fork, self._seed = torch.random.fork_rng(devices=[]), seed

    def __enter__(self) -> None:
        import torch

        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        self._fork.__exit__(None, None, None)
