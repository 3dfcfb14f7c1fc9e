"""Colours and words that all pictures share; the colours are those of the report's style sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from colonnade.harmless import harmless

SMALL = 8.5
"""The size of notes and of texts beside bars, in points."""
_WORDS = 34


@dataclass(frozen=True)
class Look:
    """The colours of a picture, on light or on dark ground."""

    ink: str
    soft: str
    grid: str
    grey: str
    warn: str
    positive: str
    negative: str
    series: tuple[str, ...]


LIGHT = Look(
    ink="#1b1f24",
    soft="#555d66",
    grid="#e7e4de",
    grey="#c9c6c0",
    warn="#8a3b00",
    positive="#0072b2",
    negative="#d55e00",
    series=("#0072b2", "#d55e00", "#009e73", "#b4588f", "#e69f00", "#56b4e9", "#7a6a00", "#9aa0a6"),
)
DARK = Look(
    ink="#e8eaed",
    soft="#a9b1ba",
    grid="#2a3038",
    grey="#4a525c",
    warn="#f5b27f",
    positive="#56b4e9",
    negative="#f0813a",
    series=("#56b4e9", "#f0813a", "#2fbf95", "#dd8fbd", "#f0b429", "#3a86c8", "#b9a93a", "#7d858d"),
)


class Panel(Protocol):
    """One set of axes, as plain values."""

    @property
    def size(self) -> tuple[float, float]:
        """How wide and how tall it would like to be, in inches."""

    def draw(self, ax: Any, look: Look) -> None:
        """Draw it on these axes."""


@dataclass(frozen=True)
class Sheet:
    """The panels of a picture, so many beside each other, and a note below them all."""

    panels: Sequence[Panel]
    across: int = 1
    note: str = ""


def said(text: object, longest: int = 200) -> str:
    """Text that others may have written, as matplotlib shows it: no control codes, and a dollar is a dollar."""
    return harmless(text, longest).replace("$", r"\$")


def wrapped(text: str, width: int, most: int = 4) -> str:
    """The same in lines; what is longer than ``most`` of them is cut."""
    lines = textwrap.wrap(harmless(text), width, max_lines=most, placeholder=" ...")
    return "\n".join(map(said, lines))


def label(text: str) -> str:
    """The name of a bar or cell, in at most two lines."""
    return wrapped(text, _WORDS, 2)


def finish(ax: Any, look: Look, title: str, axis: str = "", note: str = "", *, width: float = 6.4) -> None:
    """What all panels end with: title, axis and note, and no more lines than needed."""
    ax.set_title(said(title), loc="left", fontsize=11, fontweight="bold", color=look.ink)
    below = [wrapped(text, max(24, round(13 * width))) for text in (axis, note) if text]
    ax.set_xlabel("\n".join(below), fontsize=SMALL, color=look.soft)
    ax.xaxis.label.set_horizontalalignment("left")
    ax.xaxis.label.set_x(0.0)
    ax.tick_params(colors=look.soft, labelcolor=look.ink, labelsize=9, length=3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(look.soft)
