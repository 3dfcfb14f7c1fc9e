"""A sheet on which boxes, lines and words are put; it knows how wide words are at most, and becomes an SVG file.

The sheet has a light ground of its own, so that a drawing looks the same on light and dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

WIDE = 520
SIZE = 13
LINE = 17
INK, DIM, PAPER, FRAME = "#1b1f24", "#555d66", "#ffffff", "#c9ced6"
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif"
_NARROW, _BROAD = frozenset("iljtfrI.,:;'|!()[]- "), frozenset("mwMW%")


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Halfway between left and right."""
        return (self.left + self.right) / 2

    def holds(self, other: Box) -> bool:
        """Whether the other lies within."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom

    def meets(self, other: Box) -> bool:
        """Whether the two have a part in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def width(words: str, size: float = SIZE, *, bold: bool = False) -> float:
    """How wide words are at most, in any common font without serifs."""
    parts = (0.42 if c in _NARROW else 1.0 if c in _BROAD else 0.78 if c.isupper() else 0.64 for c in words)
    return size * sum(parts) * (1.17 if bold else 1.0)


def wrapped(words: str, room: float, size: float = SIZE, *, bold: bool = False) -> list[str]:
    """Words in as many lines as they need."""
    lines: list[str] = []
    for word in words.split():
        if lines and width(f"{lines[-1]} {word}", size, bold=bold) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass
class Sheet:
    """What has been drawn so far; ``words`` are the places of all words, each with the box that they belong to."""

    title: str
    describes: str
    wide: float = WIDE
    high: float = 0
    marks: list[str] = field(default_factory=list)
    words: list[tuple[str, Box, Box]] = field(default_factory=list)

    def box(self, box: Box, fill: str = PAPER, line: str = FRAME, *, round: float = 4, dash: str = "") -> None:
        """A rectangle with a frame."""
        across, down = box.right - box.left, box.bottom - box.top
        self.marks.append(
            f'<rect x="{box.left:g}" y="{box.top:g}" width="{across:g}" height="{down:g}" rx="{round:g}" '
            f'fill="{fill}" stroke="{line}"{_dashed(dash)}/>'
        )

    def line(self, *ends: float, ink: str = FRAME, thick: float = 1, dash: str = "") -> None:
        """A straight line, from x and y to x and y."""
        x, y, to_x, to_y = ends
        self.marks.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{ink}" '
            f'stroke-width="{thick:g}"{_dashed(dash)}/>'
        )

    def shape(self, points: list[tuple[float, float]], fill: str, line: str = "none") -> None:
        """A filled shape with straight sides."""
        corners = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.marks.append(f'<polygon points="{corners}" fill="{fill}" stroke="{line}"/>')

    def dot(self, x: float, y: float, ink: str) -> None:
        """A small dot."""
        self.marks.append(f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{ink}"/>')

    def write(
        self,
        lines: list[str],
        within: Box,
        *,
        size: float = SIZE,
        ink: str = INK,
        bold: bool = False,
        left: bool = False,
    ) -> None:
        """Lines of words from the top of a box, in its middle or from its left."""
        for number, line in enumerate(lines):
            wide, top = width(line, size, bold=bold), within.top + number * (size + 4)
            start = within.left if left else within.middle - wide / 2
            self.words.append((line, Box(start, top, start + wide, top + size + 3), within))
            anchor, x = ("start", start) if left else ("middle", within.middle)
            weight = ' font-weight="600"' if bold else ""
            self.marks.append(
                f'<text x="{x:g}" y="{top + size - 1:g}" font-size="{size:g}" text-anchor="{anchor}" '
                f'fill="{ink}"{weight}>{escape(line)}</text>'
            )

    def svg(self) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" '
            f'width="{self.wide:g}" height="{self.high:g}" viewBox="0 0 {self.wide:g} {self.high:g}" '
            f'font-family="{FONT}">'
        )
        ground = f'<rect width="{self.wide:g}" height="{self.high:g}" rx="8" fill="#f7f8fa"/>'
        told = f'<title id="title">{escape(self.title)}</title>\n<desc id="desc">{escape(self.describes)}</desc>'
        return "\n".join((head, told, ground, *self.marks, "</svg>", ""))


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""
