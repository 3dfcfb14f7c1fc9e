"""Who sends what to whom: a flow is a list of arrows and notes, drawn from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .canvas import DIM, FRAME, INK, LINE, SIZE, Box, Sheet, width, wrapped

GROUND = "#f7f8fa"
LOOK = {
    "shares": ("#1f5fa8", "7 4", "shares: up to the threshold they say nothing"),
    "noisy": ("#1d7a46", "", "numbers with noise, and what follows from them"),
    "masked": ("#6b3fa0", "9 3 2 3", "under keys or masks that its reader lacks"),
    "plain": ("#a84a1f", "2 3", "read as it is by whom the arrow points to"),
}
"""Of each kind of message its colour, its dashes and what it is."""
EDGE = 12.0


@dataclass(frozen=True)
class Arrow:
    """A message. Several who send and several who receive send to each other."""

    kind: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class Note:
    """What somebody does alone."""

    who: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class Loop:
    """Steps that are repeated, or taken in some studies only."""

    words: str
    steps: tuple[Arrow | Note, ...]


@dataclass(frozen=True)
class Flow:
    """A picture: who takes part, each with a word about its role, and what happens."""

    name: str
    title: str
    cast: tuple[tuple[str, str], ...]
    steps: tuple[Arrow | Note | Loop, ...]

    @property
    def arrows(self) -> list[Arrow]:
        """All arrows, those of loops too."""
        flat = [inner for step in self.steps for inner in (step.steps if isinstance(step, Loop) else (step,))]
        return [step for step in flat if isinstance(step, Arrow)]


class Drawn:
    """A flow on a sheet."""

    def __init__(self, flow: Flow) -> None:
        told = "; ".join(f"{_named(a.sources)} to {_named(a.targets)}: {a.words}" for a in flow.arrows)
        self.sheet = Sheet(flow.title, f"{told}.")
        lane = (self.sheet.wide - 2 * EDGE) / len(flow.cast)
        self.place = {name: EDGE + lane * (number + 0.5) for number, (name, _) in enumerate(flow.cast)}
        self.y = EDGE
        for name, role in flow.cast:
            x = self.place[name]
            head = Box(x - lane / 2 + 2, self.y, x + lane / 2 - 2, self.y + 42)
            self.sheet.box(head, "#e8ecf3")
            self.sheet.write([name], Box(head.left, head.top + 3, head.right, head.bottom), bold=True)
            self.sheet.write([role], Box(head.left, head.top + 22, head.right, head.bottom), size=12, ink=DIM)
        self.y += 42
        before, start = len(self.sheet.marks), self.y
        for step in flow.steps:
            self._loop(step) if isinstance(step, Loop) else self._step(step)
        self.y += 12
        after, self.sheet.marks = self.sheet.marks[before:], self.sheet.marks[:before]
        for x in self.place.values():  # below all else
            self.sheet.line(x, start, x, self.y)
        self.sheet.marks += after
        self._legend(dict.fromkeys(arrow.kind for arrow in flow.arrows))
        self.sheet.high = self.y + EDGE

    def _step(self, step: Arrow | Note, inset: float = 0) -> None:
        self._arrow(step, inset) if isinstance(step, Arrow) else self._note(step, inset)

    def _loop(self, loop: Loop) -> None:
        top, mark = self.y + 10, len(self.sheet.marks)
        room = self.sheet.wide - 2 * EDGE - 16
        lines = wrapped(loop.words, room, 12, bold=True)
        self.y = top + 6
        self._lines(lines, EDGE + 8, EDGE + 8 + max(width(x, 12, bold=True) for x in lines), size=12, bold=True)
        for step in loop.steps:
            self._step(step, 8)
        self.y += 8
        frame = Sheet("", "")
        frame.box(Box(EDGE - 4, top, self.sheet.wide - EDGE + 4, self.y), "none", "#8a93a0", dash="4 3")
        self.sheet.marks[mark:mark] = frame.marks
        self.y += 2

    def _note(self, note: Note, inset: float) -> None:
        """A box over whoever does it, wider where the words need it."""
        places = [self.place[name] for name in note.who]
        left, right = min(places) - 44, max(places) + 44
        lines = wrapped(note.words, max(right - left, 190) - 16)
        wide = max(max(width(line) for line in lines) + 16, right - left)
        middle = self._within((left + right) / 2, wide, inset)
        box = Box(middle - wide / 2, self.y + 10, middle + wide / 2, self.y + 18 + LINE * len(lines))
        self.sheet.box(box, "#fdf6dc", "#d9c987")
        self.sheet.write(lines, Box(box.left, box.top + 4, box.right, box.bottom))
        self.y = box.bottom

    def _arrow(self, arrow: Arrow, inset: float) -> None:
        ink, dash, _ = LOOK[arrow.kind]
        sources, targets = ([self.place[name] for name in names] for names in (arrow.sources, arrow.targets))
        ends = [*sources, *targets]
        lines = wrapped(arrow.words, self.sheet.wide - 2 * EDGE - 2 * inset - 8)
        wide = max(width(line) for line in lines)
        middle = self._within((min(ends) + max(ends)) / 2, wide + 6, inset)
        self.y += 9
        self._lines(lines, middle - wide / 2, middle + wide / 2)
        self.y += 6
        self.sheet.line(min(ends), self.y, max(ends), self.y, ink=ink, thick=2, dash=dash)
        for x in sources:
            if x not in targets:
                self.sheet.dot(x, self.y, ink)
        for x in targets:
            for side in (1, -1):  # 1: it comes from the left
                if any((x - source) * side > 0 for source in sources):
                    tip = [(x, self.y), (x - 9 * side, self.y - 5), (x - 9 * side, self.y + 5)]
                    self.sheet.shape(tip, ink)
        self.y += 5

    def _lines(self, lines: list[str], left: float, right: float, *, size: float = SIZE, bold: bool = False) -> None:
        """Words on the ground of the sheet, so that lifelines do not cross them."""
        box = Box(left - 3, self.y, right + 3, self.y + LINE * len(lines))
        self.sheet.box(box, GROUND, "none")
        self.sheet.write(lines, box, size=size, bold=bold)
        self.y = box.bottom

    def _within(self, middle: float, wide: float, inset: float) -> float:
        least = EDGE + inset + wide / 2
        return min(max(middle, least), self.sheet.wide - least)

    def _legend(self, kinds: Sequence[str] | dict[str, None]) -> None:
        self.y += 6
        self.sheet.line(EDGE, self.y, self.sheet.wide - EDGE, self.y, ink=FRAME)
        self.y += 6
        for kind in kinds:
            ink, dash, words = LOOK[kind]
            self.sheet.line(EDGE, self.y + 9, EDGE + 34, self.y + 9, ink=ink, thick=2, dash=dash)
            self._left(words, EDGE + 42)
        self._left("Between owners all is sealed: the coordinator relays it unread.", EDGE)

    def _left(self, words: str, left: float) -> None:
        room = self.sheet.wide - EDGE - left
        lines = wrapped(words, room, 12)
        box = Box(left, self.y, self.sheet.wide - EDGE, self.y + LINE * len(lines))
        self.sheet.write(lines, box, size=12, ink=INK, left=True)
        self.y = box.bottom + 1


def _named(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
