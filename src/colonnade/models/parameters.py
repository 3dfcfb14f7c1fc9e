"""Marks on the parameters of models: what study files, too, must know about a parameter.

The keys of ``[task]`` in a study file are the names, defaults and annotations of a model's parameters. These marks
are written in ``Annotated[...]``. A limit may also be one of ``annotated_types``, which takes a while to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeGuard

from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy.observers import check_epsilon

REQUIRED: Any = ...


@dataclass(frozen=True)
class InFile:
    """In a study file the parameter has another type and default: these; without a default it must be given."""

    type: Any
    default: Any = REQUIRED


@dataclass(frozen=True)
class CheckedBy:
    """A function that is called with the value as it stands in the file, and raises a ValueError if it is wrong."""

    check: Callable[[Any], None]


class ParameterLimit(NamedTuple):
    """A limit on the value, with the name that ``annotated_types`` has for it."""

    name: str
    value: float


at_least = partial(ParameterLimit, "Ge")
"""The value is this, or more."""
above = partial(ParameterLimit, "Gt")
"""The value is more than this."""
at_most = partial(ParameterLimit, "Le")
"""The value is this, or less."""
not_shorter_than = partial(ParameterLimit, "MinLen")
"""The value has so many characters, or members, or more."""


class ParameterMark:
    """A property of a parameter that has no value of its own."""


NAMES_PARTIES = ParameterMark()
"""The value is the name of a party, or a mapping from such names."""
SETS_PRICE = ParameterMark()
"""If this parameter is given, epsilon must not be: it sets the price of the task instead."""
NAMES_LABEL = ParameterMark()
"""The value is the column to predict, written ``party.column``."""
NAMES_MODEL = ParameterMark()
"""The value is the path of a public model that the study is about."""
LIMITS_ROWS = ParameterMark()
"""The value is the largest number of rows that the study allows."""
FINITE = ParameterMark()
STRICT = ParameterMark()
"""The value must have the right type; a text such as "true" is not converted."""

Count = Annotated[int, at_least(1)]
RowsAtMost = Annotated[int, at_least(1), LIMITS_ROWS]
Positive = Annotated[float, above(0), FINITE]


def check_dotted(label: Any) -> None:
    """Refuse a label that is not written party.column."""
    if isinstance(label, str) and not all(label.rpartition(".")):
        raise ValueError('must be written party.column, such as "bank.default" [VA029]')


def check_each_positive(given: Any) -> None:
    """Refuse a mapping in which an epsilon is no positive number."""
    for value in given.values() if isinstance(given, Mapping) else ():
        try:
            check_epsilon(value)
        except PrivacyError as error:
            raise ValueError(f"- {error} [VA030]") from None


Label = Annotated[str | None, InFile(Annotated[str, CheckedBy(check_dotted)]), NAMES_LABEL]
EpsilonByParty = Annotated[
    Mapping[str, float] | None,
    InFile(Annotated[dict[str, float] | None, not_shorter_than(1), CheckedBy(check_each_positive)], None),
    NAMES_PARTIES,
    SETS_PRICE,
]


def check_whole(name: str, value: object, low: int, high: int) -> int:
    """The value, if it is a whole number within these limits; otherwise an error."""
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be a whole number from {low} to {high}, not {value!r} [ST150]")
    return int(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_positive(name: str, value: object) -> float:
    """The value, if it is a finite number above 0; otherwise an error."""
    if not is_number(value) or not 0 < value < math.inf:
        raise StudyError(f"{name} must be a finite number above 0, not {value!r} [ST137]")
    return float(value)


def one_of(what: str, value: object, known: Iterable[str]) -> None:
    """Raise an error if the value is not one of the known words; it suggests a similar word."""
    names = tuple(known)
    if value not in names:
        from colonnade.tables.cell_parsing import suggest_name

        hint = suggest_name(value, names) if isinstance(value, str) else ""
        raise StudyError(f"{what} must be one of {', '.join(names)}, not {value!r}{hint} [ST136]")
