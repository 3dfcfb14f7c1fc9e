"""Encoders that are torch modules: a network that Colonnade brings, or any module of a party's own.

First weights of our networks are drawn by our own streams; torch's own randomness is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.encoder_base import (
    MOST_NUMBERS,
    WIDEST,
    Arrays,
    EncoderOptions,
    ImageShape,
    Matrix,
    TrainableEncoder,
    Vector,
    image_shape,
    row_blocks,
    try_encoder,
    whole_option,
    wholes_option,
)
from colonnade.models.pytorch import find_device, load_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

_ROWS = 1024  # embedded at a time
_PAIRED = 1 << 22  # numbers of per-row gradients at a time


class NetworkEncoder(TrainableEncoder):
    """An encoder that applies a torch module; its parameters are those of the module that require gradients."""

    kind = "module"

    def __init__(
        self,
        columns: int,
        module: nn.Module,
        options: Mapping[str, Any],
        shape: ImageShape | None,
        device: str = "auto",
    ) -> None:
        """With a shape, the module is given images, channels first; else rows."""
        self.columns, self._options, self._shape = columns, dict(options), shape
        self.module = module.float().eval()
        self.to(device)
        with load_torch().no_grad():
            self.width = try_encoder(self._applied, columns)

    def to(self, device: str) -> Self:
        """The same encoder, which now computes on ``cpu``, on ``cuda`` or, with ``auto``, on a GPU if there is one."""
        self._device = find_device(device)
        self.module.to(self._device)
        return self

    def embed(self, rows: Matrix) -> Matrix:
        """Embeddings of rows; where a number of one is not finite, the whole of it is zero."""
        found = self.check(rows)
        out = np.empty((len(found), self.width))
        with load_torch().no_grad(), self.own_code():
            for start in range(0, len(found), _ROWS):
                out[start : start + _ROWS] = self._applied(found[start : start + _ROWS])
        out[~np.isfinite(out).all(axis=1)] = 0.0
        return out

    def arrays(self) -> Arrays:
        """The weights and buffers, by their names in the module."""
        return {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}

    @property
    def parameters(self) -> int:
        """How many numbers of the module are learned."""
        return sum(each.numel() for each in self._learned.values())

    def pull_back(self, rows: Matrix, slopes: Matrix) -> Vector:
        """The sum of the rows' gradients."""
        torch, found, learned = load_torch(), self.check(rows), list(self._learned.values())
        total = np.zeros(self.parameters)
        for start in range(0, len(found), _ROWS):
            block = slice(start, start + _ROWS)
            outputs, pulls = self._applied_on_device(found[block]), self._tensor(slopes[block])
            grads = torch.autograd.grad(outputs, learned, pulls, allow_unused=True, materialize_grads=True)
            total += torch.cat([each.reshape(-1) for each in grads]).double().cpu().numpy()
        return total

    def pull_back_each(self, rows: Matrix, slopes: Matrix) -> Iterator[Matrix]:
        """Each row's gradient, as if the module were given that row alone."""
        torch, found = load_torch(), self.check(rows)
        if any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in self.module.modules()):
            raise StudyError(
                "an encoder with batch normalisation has no gradient of one row alone, which private training needs: "
                "use GroupNorm or LayerNorm instead, or leave the encoder frozen [ST302]"
            )
        learned = {name: each.detach() for name, each in self._learned.items()}

        def along(weights: dict[str, Tensor], row: Tensor, slope: Tensor) -> Tensor:
            output: Tensor = torch.func.functional_call(self.module, weights, (row.unsqueeze(0),))
            return (output.squeeze(0) * slope).sum()

        each = torch.func.vmap(torch.func.grad(along), in_dims=(None, 0, 0))
        for block in row_blocks(len(found), self.parameters, _PAIRED):
            with self.own_code():
                grads = each(learned, self._input(found[block]), self._tensor(slopes[block]))
            joined = torch.cat([grads[name].flatten(1) for name in learned], dim=1)
            yield joined.cpu().numpy().astype(np.float64)

    def move(self, step: Vector) -> None:
        """Add a step to the parameters."""
        torch, start = load_torch(), 0
        with torch.no_grad():
            for each in self._learned.values():
                part = np.ascontiguousarray(step[start : start + each.numel()], dtype=np.float32)
                each.add_(torch.from_numpy(part).to(each.device).reshape(each.shape))
                start += each.numel()

    @property
    def _learned(self) -> dict[str, nn.Parameter]:
        return {name: each for name, each in self.module.named_parameters() if each.requires_grad}

    def _tensor(self, values: Matrix) -> Tensor:
        made: Tensor = load_torch().from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        return made.to(self._device)

    def _input(self, rows: Matrix) -> Tensor:
        if self._shape is None:
            return self._tensor(rows)
        return self._tensor(rows.reshape(-1, *self._shape).transpose(0, 3, 1, 2))

    def _applied_on_device(self, rows: Matrix) -> Tensor:
        found = self.module(self._input(rows))
        if not isinstance(found, load_torch().Tensor):
            raise StudyError(f"the module of an encoder must give one tensor, not a {type(found).__name__} [ST297]")
        output: Tensor = found
        return output

    def _applied(self, rows: Matrix) -> Matrix:
        return self._applied_on_device(rows).double().cpu().numpy()


def check_weights(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise unless these are finite weights for the module: the names of its ``state_dict``, with the same shapes."""
    into = module.state_dict()
    if odd := sorted(set(arrays) ^ set(into)):
        where = "the file lacks" if odd[0] in into else "the module lacks"
        raise StudyError(f"the weights do not belong to the module of this encoder: {where} one of them [ST303]")
    for name, value in into.items():
        array = arrays[name]
        if tuple(array.shape) != tuple(value.shape) or array.dtype.kind not in "fiub":
            raise StudyError("the weights do not belong to the module of this encoder: shapes differ [ST304]")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StudyError("the weights of an encoder hold numbers that are not finite [ST305]")


def set_weights(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put weights into a module, by their names in its ``state_dict``."""
    check_weights(module, arrays)
    torch = load_torch()
    with torch.no_grad():
        for name, value in module.state_dict().items():
            value.copy_(torch.from_numpy(np.array(arrays[name])))


def _activation_option() -> Any:
    """The option that names the function between layers."""
    return field(
        default="tanh",
        metadata={
            "fits": ("tanh", "relu").__contains__,
            "said": "option {name!r} of an encoder must be one of tanh, relu [ST310]",
        },
    )


@dataclass(frozen=True)
class PerceptronOptions(EncoderOptions):
    """Layers of these sizes between the columns and the embedding."""

    width: int = whole_option(16, 1, WIDEST)
    hidden: tuple[int, ...] = wholes_option((64,), range(9), WIDEST)
    activation: str = _activation_option()

    def image(self, columns: int) -> ImageShape | None:
        """Rows stay rows."""
        return None

    def build(self, columns: int) -> nn.Module:
        """Linear layers with the activation between them."""
        return _sequential(_dense(columns, self.hidden, self.width, self.activation))


@dataclass(frozen=True)
class ConvolutionalOptions(EncoderOptions):
    """Convolutions, each followed by the activation and means over 2 by 2 places; then layers of ``hidden`` sizes.

    With channels 6 and 16 and hidden layers of 120 and 84 it is LeNet-5 with borders.
    """

    shape: tuple[int, ...] = wholes_option((), (2, 3), 4096)
    width: int = whole_option(16, 1, WIDEST)
    channels: tuple[int, ...] = wholes_option((16, 32), range(1, 7), 1024)
    size: int = whole_option(5, 1, 31)
    hidden: tuple[int, ...] = wholes_option((), range(9), WIDEST)
    activation: str = _activation_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shape[:2]) < 2 ** len(self.channels):
            raise StudyError("an image is too small for so many layers of 'channels', of which each halves it [ST286]")

    def image(self, columns: int) -> ImageShape:
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


class BuiltNetwork(NetworkEncoder):
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


class Perceptron(BuiltNetwork):
    """A multi-layer perceptron, for tables."""

    kind = "mlp"


class ConvolutionalNetwork(BuiltNetwork):
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
