"""Numbers and lists as text, and reading of a record in which anything may be missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from colonnade.privacy.rows import rounded_up

NO_PROMISE = "no promise"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STEPS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def number(value: object) -> float | None:
    """The value as a float; None where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def listed(names: Sequence[object], most: int = 6) -> str:
    """Names as ``bank, shop and clinic``; a long list ends in ``and 3 more``."""
    words = [str(name) for name in names]
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def counted(count: int, one: str, many: str = "") -> str:
    """``1 column``, ``24 columns``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def epsilon(value: float, digits: int = 3) -> str:
    """Epsilon rounded up; words that say that nothing is promised where it is infinite."""
    return NO_PROMISE if math.isinf(value) else rounded_up(value, digits)


def times(value: float) -> str:
    """The factor e^epsilon, rounded up."""
    if value > 20:
        return "more than a hundred million"
    digits = Decimal(math.exp(value)).quantize(Decimal("0.1"), rounding=ROUND_CEILING)
    return f"{digits:,}"


def power(value: float) -> str:
    """A small probability exactly as it was given: ``10⁻⁵``, ``2.5·10⁻⁶``."""
    exact = Decimal(repr(float(value))).normalize()
    size = exact.adjusted()
    if size >= -2:
        return f"{exact:f}"
    front = exact.scaleb(-size).normalize()
    ten = "10" + str(size).translate(_RAISED)
    return ten if front == 1 else f"{front:f}·{ten}"


def seconds(value: float) -> str:
    """``3.4 s``, ``12 ms``, ``2 min 5 s``, ``1 h 12 min``."""
    whole = round(value)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60} s"
    for unit, size in _STEPS:
        if value >= size:
            shown = value / size
            return f"{shown:.0f} {unit}" if unit != "s" and shown >= 9.95 else f"{_short(shown)} {unit}"
    return "0 s"


def size(value: float) -> str:
    """Bytes in decimal units: ``1.2 MB``."""
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * step:
            return f"{_short(value / step)} {unit}"
    return f"{value:.0f} B"


def percent(part: float, digits: int = 1) -> str:
    """A number from 0 to 1 as a percentage."""
    return f"{100 * part:.{digits}f} %"


def signed(value: float) -> str:
    """A number with its sign and two digits; the minus is as wide as the plus."""
    text = f"{abs(value):.2f}"
    return text if text == "0.00" else ("+" if value > 0 else "\N{MINUS SIGN}") + text


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
