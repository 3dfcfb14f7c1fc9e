"""Bars, signed bars, stacked bars and a heat map as inline SVG; lines are in ``curves``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from colonnade.models.design import owner_of
from colonnade.models.estimates import Estimate
from colonnade.models.pictures.estimated import strongest, unclear
from colonnade.report.canvas import LINE, extent, frame, rect, rule, wrap, write
from colonnade.report.markup import Html, join, tag
from colonnade.report.words import signed

_GAP = 10


@dataclass(frozen=True)
class Bar:
    """A bar with a label; one without a value is hatched and as long as possible."""

    label: str
    value: float | None
    text: str


@dataclass(frozen=True)
class Stack:
    """A bar with a label, made of several pieces; each piece is a colour, a name and a length."""

    label: str
    pieces: Sequence[tuple[int, str, float]]
    text: str


@dataclass(frozen=True)
class Group:
    """Rows of a heat map under one heading."""

    heading: str
    rows: Sequence[tuple[str, Sequence[float]]] = field(default_factory=tuple)


def bars(
    key: str,
    width: int,
    items: Sequence[Bar],
    *,
    title: str,
    description: str,
    high: float | None = None,
    band: tuple[float, str] | None = None,
) -> Html:
    """Horizontal bars from zero; ``band`` is a level, below which all is shaded, and what to write about it."""
    gutter, beside = _gutter([bar.label for bar in items], width)
    right = max((extent(bar.text) for bar in items if bar.value is not None), default=0.0) + _GAP
    most = high or max((bar.value for bar in items if bar.value), default=1.0)
    span = width - gutter - right
    y, body = 6.0, []
    for bar in items:
        label, y = _label(bar.label, gutter if beside else width, y, beside)
        body.append(label)
        if bar.value is None:
            body += [
                rect(gutter, y, span, 18, None, fill=f"url(#{key}-hatch)"),
                _plate(gutter + 8, y, bar.text),
            ]
        else:
            length = span * min(bar.value / most, 1.0)
            body.append(rect(gutter, y, max(length, 1.5), 18, "f0", rx=2))
            body.append(write(gutter + length + 6, y + 14, bar.text, "strong"))
        y += 26 if beside else 30
    behind = [_hatch(key), rule(gutter, 0, gutter, y - 2, "axis") if beside else None]
    if band:
        edge = gutter + span * min(band[0] / most, 1.0)
        behind += [rect(gutter, 0, edge - gutter, y - 2, "band"), rule(edge, 0, edge, y - 2, "edge")]
        for text in wrap(band[1], width - gutter):
            body.append(write(gutter, y + 12, text, "dim tiny"))
            y += LINE
    return frame(key, title, description, width, y, *behind, *body)


def stacks(key: str, width: int, items: Sequence[Stack], *, title: str, description: str) -> Html:
    """Horizontal bars of pieces; a piece with enough room has its name inside."""
    gutter, beside = _gutter([item.label for item in items], width)
    right = max((extent(item.text) for item in items), default=0.0) + _GAP
    most = max((sum(piece[2] for piece in item.pieces) for item in items), default=1.0) or 1.0
    scale = (width - gutter - right) / most
    y, body = 4.0, []
    for item in items:
        label, y = _label(item.label, gutter if beside else width, y, beside)
        body.append(label)
        x = gutter
        for colour, name, length in item.pieces:
            wide = length * scale
            body.append(rect(x, y, wide - (1 if wide > 3 else 0), 20, f"f{colour}"))
            if extent(name) + 8 < wide:
                body.append(write(x + 5, y + 14.5, name, f"on on{colour}"))
            x += wide
        body.append(write(x + 6, y + 15, item.text, "strong"))
        y += 27 if beside else 31
    return frame(key, title, description, width, y, *body)


def heat(
    key: str, width: int, groups: Sequence[Group], columns: Sequence[str], *, title: str, description: str
) -> Html:
    """A table of signed numbers on colours, by group; the larger a number, the stronger its colour.

    An :class:`Estimate` is shown with its deviation where there is room, and grey where it cannot be told from zero.
    """
    names = [name for group in groups for name, _ in group.rows]
    gutter, beside = _gutter(names, width)
    most = max((abs(v) for group in groups for _, row in group.rows for v in row), default=0.0) or 1.0
    step = min((width - gutter) / max(1, len(columns)), 220)
    values = [value for group in groups for _, row in group.rows for value in row]
    shown = with_deviation if all(extent(with_deviation(value)) < step for value in values) else signed
    body, heads = [], [wrap(column, step - 4) for column in columns]
    for k, parts in enumerate(heads):
        body += [write(gutter + (k + 0.5) * step, 16 + LINE * j, part, "mid strong") for j, part in enumerate(parts)]
    y = 7.0 + LINE * max((len(parts) for parts in heads), default=0)
    for group in groups:
        for text in wrap(group.heading, width):
            y += LINE
            body.append(write(0, y, text, "strong"))
        y += 7
        for name, row in group.rows:
            label, y = _label(name, gutter if beside else width, y, beside)
            body.append(label)
            for k, value in enumerate(row):
                x = gutter + k * step
                body.append(rect(x + 1, y, step - 2, 21, "cell", fill_opacity=0.35))
                look = "pos" if value > 0 else "neg"
                if not unclear(value):
                    body.append(rect(x + 1, y, step - 2, 21, look, fill_opacity=0.6 * abs(value) / most))
                body.append(
                    write(x + step / 2, y + 15, shown(value), "mid tiny unclear" if unclear(value) else "mid tiny")
                )
            y += 23 if beside else 27
        y += 8
    return frame(key, title, description, width, y, *body)


def balance(
    key: str, width: int, groups: Sequence[Group], columns: Sequence[str], *, title: str, description: str
) -> Html:
    """One bar for each row, by group: to the right for a positive number, to the left for a negative one.

    An :class:`Estimate` has a line for its interval, and is grey where it cannot be told from zero.
    """
    gutter, beside = _gutter([name for group in groups for name, _ in group.rows], width)
    values = [value for group in groups for _, row in group.rows for value in row[:1]]
    most = max((abs(end) for value in values for end in _ends(value)), default=0.0) or 1.0
    room = max((extent(with_deviation(value)) for value in values), default=0.0) + _GAP
    zero = gutter + (width - gutter) / 2
    scale = max(10.0, zero - gutter - room) / most
    y, body = 0.0, []
    for group in groups:
        for text in wrap(group.heading, width):
            y += LINE
            body.append(write(0, y, text, "strong"))
        y += 7
        top = y
        for name, row in group.rows:
            label, y = _label(name, gutter if beside else width, y, beside)
            length, (low, high) = abs(row[0]) * scale, (scale * end for end in _ends(row[0]))
            left, grey = row[0] < 0, unclear(row[0])
            look = "cell" if grey else "neg" if left else "pos"
            body += [label, rect(zero - length if left else zero, y, max(length, 1.0), 18, look, rx=2)]
            if high > low:
                body += [rule(zero + low, y + 9, zero + high, y + 9, "error")]
                body += [rule(zero + end, y + 5, zero + end, y + 13, "error") for end in (low, high)]
            at = zero + min(low, -length) - 6 if left else zero + max(high, length) + 6
            words = f"{'end ' if left else ''}tiny{' unclear' if grey else ''}"
            body.append(write(at, y + 14, with_deviation(row[0]), words))
            y += 24 if beside else 28
        body.append(rule(zero, top - 2, zero, y - 2, "axis"))
        y += 8
    return frame(key, title, description, width, y, *body)


def _ends(value: float) -> tuple[float, float]:
    """The ends of a number's interval; the number itself if none is known."""
    known = isinstance(value, Estimate) and value.deviation is not None
    return (value.low, value.high) if isinstance(value, Estimate) and known else (value, value)


def with_deviation(value: float) -> str:
    """A signed number with its deviation, if that is known."""
    deviation = value.deviation if isinstance(value, Estimate) else None
    return signed(value) + (f" ± {deviation:.2f}" if deviation is not None else "")


def _gutter(labels: Sequence[str], width: int) -> tuple[float, bool]:
    """The width for labels, and whether they stand beside the bars; long ones stand above and need none."""
    need = max((extent(label) for label in labels), default=0.0) + 14
    return (need, True) if need <= 0.42 * width else (0.0, False)


def _label(text: str, room: float, y: float, beside: bool) -> tuple[Html, float]:
    """A label, and the height at which its bar begins."""
    if beside:
        return write(room - _GAP, y + 15, text, "end"), y
    parts = wrap(text, room)
    return join(*(write(0, y + 13 + LINE * k, part) for k, part in enumerate(parts))), y + LINE * len(parts) + 2


def _plate(x: float, y: float, text: str) -> Html:
    return join(rect(x, y + 1, extent(text) + 12, 16, "plate", rx=3), write(x + 6, y + 14, text, "tiny strong"))


def _hatch(key: str) -> Html:
    stroke = tag("path", d="M0 0V7", class_="hatch")
    pattern = tag(
        "pattern",
        stroke,
        id=f"{key}-hatch",
        width=7,
        height=7,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return tag("defs", pattern)


def grouped(
    names: Sequence[str], rows: Sequence[Sequence[float]], owners: Sequence[str], most: int
) -> tuple[list[Group], int]:
    """The ``most`` columns with the largest numbers, grouped by party, and how many they are.

    First come those that are surely large: an :class:`Estimate` counts as much as the end of its interval next to zero.
    """
    order = strongest(rows, most)
    members: dict[str, list[tuple[str, Sequence[float]]]] = {}
    for k in order:
        owner, column = owner_of(names[k], owners)
        members.setdefault(owner or "", []).append((column, [row[k] for row in rows]))
    ranked = [name for name in owners if name in members] + [name for name in members if name not in owners]
    return [Group(name or "columns", members[name]) for name in ranked], len(order)


def _said(value: float) -> str:
    return with_deviation(value) + (" (not told from zero)" if unclear(value) else "")


def spoken(groups: Sequence[Group]) -> str:
    """The groups as text, for a screen reader."""
    return "; ".join(
        f"{group.heading}, {name}: {', '.join(map(_said, row))}" for group in groups for name, row in group.rows
    )
