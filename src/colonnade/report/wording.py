"""Numbers and lists as text, and the words of a page that lead to the glossary."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from colonnade.drawing.canvas import Html, join, tag
from colonnade.privacy.noise_laws import drawn_laws
from colonnade.privacy.statement import format_rounded_up

NO_PROMISE = "no promise"
_MOST_NAMES = 6
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


def join_names(names: Sequence[object]) -> str:
    """Names as ``bank, shop and clinic``; a long list ends in ``and 3 more``."""
    words = [str(name) for name in names]
    if len(words) > _MOST_NAMES:
        words = [*words[: _MOST_NAMES - 1], f"{len(words) - _MOST_NAMES + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def count_noun(count: int, one: str, many: str = "") -> str:
    """``1 column``, ``24 columns``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def epsilon(value: float, digits: int = 3) -> str:
    """Epsilon rounded up; words that say that nothing is promised where it is infinite."""
    return NO_PROMISE if math.isinf(value) else format_rounded_up(value, digits)


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


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


_GENERAL = {
    "adaptive": "A noise, or a batch, that follows from what was opened before.",
    "agreement": "The squared correlation of one party's scores with what its columns really add; 1 is perfect.",
    "alignment": "Finding the people whom all parties hold, by keys that nobody else can read.",
    "alternating": "The parties fit their weights in turns, each to what the others leave.",
    "analyst": "Whoever reads the published result and nothing else.",
    "clipped": "Cut to its public bound, so that no one person can move a sum by more.",
    "committee": "The participants who hold shares; none of them sees what is shared.",
    "coordinator": "Relays sealed messages between the parties and publishes the result; it holds no columns.",
    "delta": "A small chance that is added to what epsilon allows.",
    "digest": "A short number that changes with every letter of a study; equal digests mean equal studies.",
    "embedding": "A few numbers that stand for a party's columns of one person, computed by its encoder.",
    "encoded column": "A column as the computation sees it: a number between public bounds, or one for each category.",
    "encoder": "The function by which a party turns its columns into an embedding.",
    "epsilon": "How well an observer can tell two tables apart that differ in one person; smaller is safer.",
    "even shares": "The variance of each component if the bounds' variance were spread evenly over all of them.",
    "functional": "One release of noisy sums with Laplace noise, from which a regression follows; it needs no delta.",
    "gamma": "The scale of the grid of whole numbers that cells are rounded to before anything is shared.",
    "gaussian-transfer": "The theorem that accounts for whole-number noise as for a Gaussian, with the error counted.",
    "gradient": "The direction in which weights must change to fit better.",
    "intercept": "The score of somebody whose encoded columns are all zero.",
    "if owners keep their bounds": "As proven, against owners that deal no number beyond its bounds; nobody checks it.",
    "joint table": "All parties' columns of the common people, side by side; it exists nowhere, only as shares.",
    "ledger": "A party's own record of everything its people were exposed to, over all studies.",
    "marginal": "How often each value, or each combination of values, of a few columns occurs.",
    "mixture": "A table described as several groups of people, each with its own simple law.",
    "moments-sensitivity": "The theorem that bounds how far one person moves the sums of products of columns.",
    "noisy count": "The number of people with noise added, since the number itself is about people.",
    "one-shot": "One release of noisy sums, from which a regression follows without asking again.",
    "pool": "Put together everything that several observers see.",
    "proven": "A theorem of the theory pages covers exactly what the program does.",
    "replacing-and-groups": "The theorem that replacing a person costs at most removing one and adding one.",
    "ridge": "A number that pulls coefficients towards zero, so that noise cannot make them large.",
    "round": "A wait for a message after having sent one; it costs at least the time to a peer and back.",
    "sealed": "Encrypted from participant to participant, so that the coordinator relays what it cannot read.",
    "shares": "Random-looking parts of a number; with too few of them nobody learns anything about it.",
    "sqm": "Many rounds of noisy gradients on random batches, by which a logistic regression learns.",
    "stretch": "A factor that undoes what the ridge shrank predictions by, between 1 and 2.",
    "subspace-iteration": "The theorem that products with few directions, asked in rounds, cost one release.",
    "threshold": "How many members of the committee may pool their shares and still learn nothing from them.",
    "total variation": "The largest difference in how likely anything is under two laws; 0 is the same law.",
}
WORDS: dict[str, str] = dict(sorted([*_GENERAL.items(), *(each for law in drawn_laws() for each in law.glossary)]))
"""Each word, and its line; those about noise are their laws'."""

_SILENT = ("svg", "a", "h1", "h2", "h3", "code", "pre", "nav", "title", "style")
_TAGS = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</*([^\s>/]*)")


def link_terms(parts: Sequence[Html]) -> tuple[list[Html], Html | None]:
    """The parts of a page with the first occurrence of each word linked, and a section that explains these words."""
    found: dict[str, str] = {}
    done = [Html(_link_terms(part, found)) for part in parts]
    if not found:
        return done, None
    lines = [join(tag("dt", word, id=_anchor(word)), tag("dd", WORDS[word])) for word in sorted(found)]
    return done, join(tag("h2", "Words"), tag("dl", *lines, class_="facts"))


def _link_terms(text: str, found: dict[str, str]) -> str:
    depth, pieces = 0, []
    for piece in _TAGS.split(text):
        if piece.startswith("<"):
            if (name := _NAME.match(piece)) and name[1] in _SILENT:
                depth += -1 if piece.startswith("</") else 1
        elif not depth:
            piece = _PATTERN.sub(lambda match: _link(match, found), piece)
        pieces.append(piece)
    return "".join(pieces)


def _link(match: re.Match[str], found: dict[str, str]) -> str:
    word = _WORD_OF[match[0].lower()]
    if word in found:
        return match[0]
    found[word] = match[0]
    return f'<a class="word" href="#{_anchor(word)}">{match[0]}</a>'


def _anchor(word: str) -> str:
    return f"word-{word.replace(' ', '-')}"


def _write_definition(word: str) -> list[str]:
    """The ways in which a word is written on a page."""
    plural = [f"{word}s"] if not word.endswith("s") and "-" not in word else []
    return [word, *plural, *([word.replace("-", " ")] if "-" in word else [])]


_WORD_OF = {way: word for word in WORDS for way in _write_definition(word)}
_PATTERN = re.compile(
    r"(?<![\w-])(" + "|".join(sorted(map(re.escape, _WORD_OF), key=len, reverse=True)) + r")(?![\w-])", re.IGNORECASE
)
