"""Learned attributes as the plain values that a file holds, and how each is read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain(value: Any) -> Any:
    """A learned value as JSON holds it: arrays as lists, dataclasses as mappings, an infinite number as ``null``."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return {name: plain(each) for name, each in value.items()} if isinstance(value, Mapping) else finite(value)


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value


def word(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError("a text is expected [VA041]")
    return value


def texts(values: Any) -> list[str]:
    """A list of texts."""
    if not isinstance(values, list):
        raise TypeError("a list is expected [VA042]")
    return [word(value) for value in values]


def number(value: Any) -> float:
    """A finite number."""
    found = float(_numeric(value))
    if not math.isfinite(found):
        raise ValueError("a finite number is expected [VA043]")
    return found


def size(value: Any) -> float:
    """A finite number that is not negative."""
    if number(value) < 0:
        raise ValueError("a number that is not negative is expected [VA044]")
    return number(value)


def count(value: Any) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number that is not negative is expected [VA045]")
    return value


def size_if_any(value: Any) -> Any:
    """A finite number that is not negative, as JSON holds it, or ``None``."""
    return value if value is None or size(value) >= 0 else None


def numbers(values: Any) -> NDArray[np.float64]:
    """An array of finite numbers."""
    found = np.array(values)
    if not isinstance(values, list | np.ndarray) or (found.size and found.dtype.kind not in "iuf"):
        raise TypeError("an array of numbers is expected [VA046]")
    if not np.isfinite(found.astype(np.float64)).all():
        raise ValueError("finite numbers are expected [VA047]")
    return found.astype(np.float64)


def epsilons(values: Any) -> dict[str, float]:
    """Epsilons by name; ``null`` is infinite."""
    return {name: math.inf if value is None else size(value) for name, value in values.items()}


def facts(values: Any) -> dict[str, Any]:
    """Plain values by name, all of whose numbers are finite."""
    if not isinstance(values, dict):
        raise TypeError("plain values by name are expected [VA048]")
    json.dumps(values, allow_nan=False)
    return values


def _numeric(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is expected [VA049]")
    return value
