"""Learned attributes that a file holds as plain values: each model names them once, with how each is read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.models.base import Estimator, Result, RunTask


class Saved(Estimator[RunTask, Result]):
    """A model whose learned attributes are all named in ``saved``, without the underscore at their end."""

    saved: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def learned(self) -> dict[str, Any]:
        """The learned attributes as plain values."""
        return {name: plain(getattr(self, f"{name}_")) for name in self.saved}

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""
        for name, read in self.saved.items():
            setattr(self, f"{name}_", read(learned[name]))


def plain(value: Any) -> Any:
    """A learned value as JSON holds it: arrays as lists, and ``null`` for an infinite number in a mapping."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return {name: finite(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value


def as_read(value: Any) -> Any:
    """A value that JSON holds as it is."""
    return value


def texts(values: Any) -> list[str]:
    """A list of texts."""
    return [str(value) for value in values]


def numbers(values: Any) -> NDArray[np.float64]:
    """An array of numbers."""
    return np.array(values, dtype=np.float64)


def epsilons(values: Any) -> dict[str, float]:
    """Epsilons by name; ``null`` is infinite."""
    return {name: math.inf if value is None else float(value) for name, value in values.items()}
