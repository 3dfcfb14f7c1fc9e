"""Parameters of a synthesizer as somebody gave them: what cannot be, and what belongs to another method, is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.synthesis import mixing
from colonnade.kinds.synthesis.intervals import FEWEST
from colonnade.models.parameters import check_whole
from colonnade.privacy.noise_laws import NORMAL_LAWS
from colonnade.tables.bins import MAX_BINS

FEWEST_TABLES = FEWEST + 1
MOST_ROWS, MOST_TABLES = 2**24, 100
_LIMITS = {
    "components": 2000,
    "size": MOST_ROWS,
    "tables": MOST_TABLES,
    "rows_at_most": 2**40,
    "rows": 2**40,
    "iterations": 10**6,
    "even_bins": MAX_BINS,
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "method": ("marginals", "mixture"),
    "noise": NORMAL_LAWS,
    "start": ("none", "marginals"),
    "inference": ("expectation", "variational"),
    "sampling": ("poisson", "disjoint"),
    "clipping": ("local", "joint"),
}
_STEPS = ("batch", "sampling", "clip", "clipping", "learning_rate")
_ALONE = {
    "marginals": ("even_bins", "tables"),
    "mixture": ("rows", "start", "inference", "iterations", "families", *_STEPS),
}
"""Parameters that belong to one method alone."""
_ASKED = ("label", "focus")
"""Parameters that say which marginals are to be exact, also where a mixture starts from them."""


def check_given(given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Raise an error about the first parameter that cannot be, or that its method does not have.

    ``usual`` are the defaults; where one is given, it counts as left out.
    """
    for name, known in _CHOICES.items():
        if given[name] not in known:
            raise StudyError(f"{name} must be one of {', '.join(map(repr, known))}, not {given[name]!r} [ST348]")
    said = {name for name, value in given.items() if _is_said(value, usual[name])}
    other = "mixture" if given["method"] == "marginals" else "marginals"
    _refuse(said, _ALONE[other], f'method = "{other}"')
    if given["method"] == "mixture" and given["start"] == "none":
        _refuse(said, _ASKED, 'method = "marginals" or start = "marginals"')
    if given["inference"] == "expectation":
        _refuse(said, _STEPS, 'inference = "variational"')
    if given["tables"] != 1:
        _refuse(said, ("size",), "tables = 1")
    for name, most in _LIMITS.items():
        if given[name] is not None:
            check_whole(name, given[name], 2 if name == "even_bins" else 1, most)
    if 1 < given["tables"] < FEWEST_TABLES:
        raise StudyError(f"tables must be 1, or at least {FEWEST_TABLES} for intervals, not {given['tables']} [ST349]")
    _check_focus(given["focus"])
    _check_mixture(given)


def _is_said(value: Any, usual: Any) -> bool:
    """Whether a parameter says something; an empty list or mapping says nothing, whatever the default is."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str) and not len(value):
        return False
    return bool(value != usual)


def _check_focus(focus: Any) -> None:
    if isinstance(focus, str) or not isinstance(focus, Sequence):
        raise StudyError(
            f'focus must be a list of pairs such as [["bank.income", "clinic.bmi"]], not {focus!r} [ST350]'
        )
    for pair in focus:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise StudyError(
                f'focus lists pairs of columns such as ["bank.income", "clinic.bmi"], not {pair!r} [ST351]'
            )


def _check_mixture(given: Mapping[str, Any]) -> None:
    if given["method"] != "mixture":
        return
    if given["rows"] is None:
        raise StudyError('method = "mixture" needs rows, about how many people there are; it is public [ST353]')
    if given["batch"] is not None:
        check_whole("batch", given["batch"], 1, int(given["rows"]))
    for name in ("clip", "learning_rate"):
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < math.inf):
            raise StudyError(f"{name} must be a positive number, not {value!r} [ST354]")
    families = given["families"]
    if families is not None and not isinstance(families, Mapping):
        raise StudyError(f'families must be a mapping such as {{"bank.age": "gaussian"}}, not {families!r} [ST355]')


def _refuse(said: set[str], names: Sequence[str], where: str) -> None:
    if found := [name for name in names if name in said]:
        verb, it = ("is", "it") if len(found) == 1 else ("are", "them")
        raise StudyError(f"{', '.join(found)} {verb} for {where} alone; leave {it} out [ST356]")


def settings_of(given: Mapping[str, Any]) -> mixing.Settings:
    """How a mixture is learned, by these parameters and the usual ones."""
    rows, inference = int(given["rows"]), given["inference"]
    return mixing.Settings(
        rows=rows,
        components=int(given["components"] or mixing.COMPONENTS),
        inference=inference,
        rounds=int(given["iterations"] or mixing.ROUNDS[inference]),
        batch=int(given["batch"] or min(mixing.BATCH, rows)),
        sampling=given["sampling"],
        clip=float(given["clip"] or mixing.CLIP),
        clipping=given["clipping"],
        learning_rate=float(given["learning_rate"] or mixing.LEARNING_RATE),
        families=dict(given["families"] or {}),
        law=given["noise"],
        rows_at_most=int(given["rows_at_most"]),
    )
