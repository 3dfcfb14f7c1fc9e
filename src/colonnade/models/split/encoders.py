"""Encoders from what a study or a party says of them: a specification, a module, or an encoder that is there."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.models.split.contract import Encoder, Matrix, OverRows, Trainable
from colonnade.models.split.features import (
    Convolution,
    ConvolutionOptions,
    Cosine,
    CosineOptions,
    Linear,
    LinearOptions,
)

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "Encoder", "Matrix", "OverRows", "Trainable", "encoder_from"]

_DRAWN: dict[str, tuple[Any, Any]] = {
    "cosine": (Cosine, CosineOptions),
    "convolution": (Convolution, ConvolutionOptions),
    "linear": (Linear, LinearOptions),
}
KINDS = tuple(_DRAWN)
"""The kinds of encoders that a specification can name."""


def encoder_from(
    spec: Mapping[str, Any] | torch.nn.Module | Encoder, columns: int, *, seed: int | None = None
) -> Encoder:
    """The encoder of a party whose rows have so many encoded columns.

    A specification is public: ``kind``, mostly ``width``, and options of the kind. What it leaves to chance is drawn
    from a fresh secret, unless a seed is given, which is then as public as the specification.
    """
    if isinstance(spec, Encoder):
        return _fitting(spec, columns)
    if not isinstance(spec, Mapping):
        raise StudyError("an encoder is given as a specification with a kind, as an encoder, or as a torch module")
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in _DRAWN:
        raise StudyError(f"an encoder's kind is one of {', '.join(KINDS)}")
    made, read = _DRAWN[kind]
    encoder: Encoder = made.draw(columns, read.read(kind, options), _generator(seed))
    return encoder


def _generator(seed: int | None) -> np.random.Generator:
    return np.random.default_rng(secrets.randbits(128) if seed is None else seed)


def _fitting(encoder: Encoder, columns: int) -> Encoder:
    if encoder.columns != columns:
        raise StudyError(f"the encoder reads {encoder.columns} encoded columns, but the table has {columns}")
    return encoder
