"""The networks that Colonnade brings, and how their first weights are drawn; torch's own randomness is not used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.networks import Network, check_weights, set_weights
from colonnade.kinds.split.options import MOST_NUMBERS, WIDEST, Options, Shape, image_shape
from colonnade.models.pytorch import load_torch

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class PerceptronOptions(Options):
    """Layers of these sizes between the columns and the embedding."""

    width: int = 16
    hidden: tuple[int, ...] = (64,)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        self._whole("width", 1, WIDEST)
        self._wholes("hidden", range(9), WIDEST)
        self._among("activation", ("tanh", "relu"))

    def image(self, columns: int) -> Shape | None:
        """Rows stay rows."""
        return None

    def build(self, columns: int) -> nn.Module:
        """Linear layers with the activation between them."""
        return _sequential(_dense(columns, self.hidden, self.width, self.activation))


@dataclass(frozen=True)
class ConvolutionalOptions(Options):
    """Convolutions, each followed by the activation and means over 2 by 2 places; then layers of ``hidden`` sizes.

    With channels 6 and 16 and hidden layers of 120 and 84 it is LeNet-5 with borders.
    """

    shape: tuple[int, ...] = ()
    width: int = 16
    channels: tuple[int, ...] = (16, 32)
    size: int = 5
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"

    def __post_init__(self) -> None:
        self._wholes("shape", (2, 3), 4096)
        self._whole("width", 1, WIDEST)
        self._wholes("channels", range(1, 7), 1024)
        self._whole("size", 1, 31)
        self._wholes("hidden", range(9), WIDEST)
        self._among("activation", ("tanh", "relu"))
        if min(self.shape[:2]) < 2 ** len(self.channels):
            raise StudyError("an image is too small for so many layers of 'channels', of which each halves it [ST286]")

    def image(self, columns: int) -> Shape:
        """Channels come first in torch; the table has them last."""
        return image_shape(self.shape, columns)

    def build(self, columns: int) -> nn.Module:
        """Convolutions that keep the size, pools that halve it, then linear layers."""
        nn = load_torch().nn
        height, width, inward = self.image(columns)
        layers: list[Any] = []
        for outward in self.channels:
            layers.append(nn.Conv2d(inward, outward, self.size, padding=self.size // 2, device="meta"))
            layers += [_activation(self.activation), nn.AvgPool2d(2)]
            height, width = ((side + 1 - self.size % 2) // 2 for side in (height, width))
            inward = outward
        return _sequential(
            [*layers, nn.Flatten(), *_dense(inward * height * width, self.hidden, self.width, self.activation)]
        )


class Built(Network):
    """A network that is built and drawn here."""

    @classmethod
    def draw(cls, columns: int, options: PerceptronOptions | ConvolutionalOptions, random: np.random.Generator) -> Self:
        """Weights of variance 1 over the number of inputs, doubled before a rectifier, and no offsets."""
        module, gain = options.build(columns), 2.0 if options.activation == "relu" else 1.0
        if sum(value.numel() for value in module.state_dict().values()) > MOST_NUMBERS:
            raise StudyError("a network of these options would be too large: take fewer or smaller layers [ST287]")
        weights: dict[str, NDArray[Any]] = {
            name: np.zeros(tuple(value.shape)) for name, value in module.state_dict().items()
        }
        for name, zeros in weights.items():
            if zeros.ndim > 1:
                spread = math.sqrt(gain / math.prod(zeros.shape[1:]))
                weights[name] = spread * random.standard_normal(zeros.shape)
        return cls.restore(columns, options, weights)

    @classmethod
    def restore(
        cls, columns: int, options: PerceptronOptions | ConvolutionalOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """The network whose options and weights these are."""
        module = options.build(columns)
        check_weights(module, arrays)  # before there is memory for them
        set_weights(module.to_empty(device="cpu"), arrays)
        return cls(columns, module, options.plain(), options.image(columns))


class Perceptron(Built):
    """A multi-layer perceptron, for tables."""

    kind = "mlp"


class ConvolutionalNetwork(Built):
    """A small convolutional network, for images."""

    kind = "cnn"


def _activation(name: str) -> nn.Module:
    torch = load_torch()
    made: nn.Module = torch.nn.Tanh() if name == "tanh" else torch.nn.ReLU()
    return made


def _dense(inward: int, hidden: tuple[int, ...], width: int, activation: str) -> list[nn.Module]:
    torch, layers = load_torch(), []
    for outward in hidden:
        layers += [torch.nn.Linear(inward, outward, device="meta"), _activation(activation)]
        inward = outward
    return [*layers, torch.nn.Linear(inward, width, device="meta")]


def _sequential(layers: list[nn.Module]) -> nn.Module:
    made: nn.Module = load_torch().nn.Sequential(*layers)
    return made
