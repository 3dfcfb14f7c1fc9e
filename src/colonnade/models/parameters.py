"""What constructors say about their parameters, so that study files need not say it again.

The keys of ``[task]`` follow from a model's constructor: its names, defaults and annotations. These marks stand in
``Annotated[...]`` beside the limits of ``annotated_types``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, MinLen

from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy.observers import check_epsilon

REQUIRED: Any = ...


@dataclass(frozen=True)
class InFile:
    """In a study file the parameter has this type and default; without a default it must be given."""

    type: Any
    default: Any = REQUIRED


@dataclass(frozen=True)
class Checked:
    """A check that raises a ValueError, called with the value as it was written."""

    check: Callable[[Any], None]


class Mark:
    """A property of a parameter that has no value of its own."""


NAMES_PARTIES = Mark()
"""The value is the name of a party, or a mapping from such names."""
SETS_PRICE = Mark()
"""Where it is given, epsilon is not: the task has its own price."""
FINITE = Mark()
STRICT = Mark()
"""A text such as "true" is not taken for what it says."""

Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0), FINITE]


def dotted(label: Any) -> None:
    """Refuse a label that is not written party.column."""
    if isinstance(label, str) and not all(label.rpartition(".")):
        raise ValueError('must be written party.column, such as "bank.default"')


def each_positive(given: Any) -> None:
    """Refuse a mapping in which an epsilon is no positive number."""
    for value in given.values() if isinstance(given, Mapping) else ():
        try:
            check_epsilon(value)
        except PrivacyError as error:
            raise ValueError(f"- {error}") from None


Label = Annotated[str | None, InFile(Annotated[str, Checked(dotted)])]
EpsilonByParty = Annotated[
    Mapping[str, float] | None,
    InFile(Annotated[dict[str, float] | None, MinLen(1), Checked(each_positive)], None),
    NAMES_PARTIES,
    SETS_PRICE,
]


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number within these limits."""
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
