"""Constants of the algorithms behind a head: few people need others than the defaults, so they stand in one mapping.

Those of told embeddings are how the charge is divided and what encoders learn towards; those of the published
algorithm are the paper's. None of them adds to what is told without being in the plan, from which prices follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from colonnade.errors import StudyError

Read = Callable[[str, Any], Any]


def _number(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise StudyError(f"constants: {name} must be a finite number, not negative [ST241]")
    return float(value)


def _part(name: str, value: Any) -> Fraction:
    return Fraction(_number(name, value)).limit_denominator(1 << 20)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise StudyError(f"constants: {name} must be true or false [ST242]")
    return value


def _rule(name: str, value: Any) -> str:
    if value not in ("sgd", "adam"):
        raise StudyError(f"constants: {name} must be one of sgd, adam [ST243]")
    return str(value)


def _delta(name: str, value: Any) -> float:
    if not 0 < _number(name, value) < 1:
        raise StudyError(f"constants: {name} must lie between 0 and 1, both excluded [ST244]")
    return float(value)


KNOWN: dict[str, dict[str, Read]] = {
    "embeddings": {
        "stage": _flag,
        "first_share": _part,
        "share": _part,
        "gradient_clip": _number,
        "margin": _number,
        "contrast": _number,
        "stretch": _number,
    },
    "published": {
        "delta": _delta,
        "alpha": _number,
        "beta": _number,
        "confidence": _number,
        "apart": _flag,
        "rule": _rule,
    },
}
"""The constants of each head that has any, with how each is read."""


def constants(given: Mapping[str, Any] | None, head: str) -> dict[str, Any]:
    """The constants that a user gives for the task of a head, checked one by one."""
    if given is None:
        return {}
    known = KNOWN[head]
    if not isinstance(given, Mapping):
        raise StudyError(f"constants takes a mapping of some of {', '.join(known)}, not {type(given).__name__} [ST245]")
    if unknown := sorted(str(name) for name in set(given) - set(known)):
        raise StudyError(f'constants of head = "{head}" has no {unknown[0]!r}; it has {", ".join(known)} [ST246]')
    return {name: known[name](name, value) for name, value in given.items()}
