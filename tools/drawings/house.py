"""The house: every folder of the package, each above what it may import. And the mark of the project."""

from __future__ import annotations

from .canvas import DIM, INK, Box, Sheet, wrapped

GROUND = ("disk", "drawing", "errors", "lazy", "memory", "message_schema", "randomness", "sanitize", "versions")
PILLARS = {
    "tables": "a party's columns become a bounded matrix",
    "wire": "bytes reach the right peer, unread",
    "mpc": "computes on what nobody sees",
    "privacy": "what can be learned, what is left",
}
FLOORS: tuple[dict[str, str], ...] = (
    {"cli": "what a person types"},
    {"console": "what a person sees in the browser"},
    {"federation": "how a federation stays up"},
    {"kinds": "a folder for each kind of study", "study": "what is asked, at what price"},
    {"report": "a finished run", "testing": "for tests only"},
    {"audit": "attacks every promise"},
    {"models": "what all models share; the registry of kinds"},
    {"protocols": "the lintel: who says what to whom"},
    PILLARS,
    dict.fromkeys(GROUND, ""),
)
"""From the roof to the ground; a folder imports from floors below its own alone."""
_LEFT, _RIGHT = 30.0, 490.0
_WALL, _STONE, _LINTEL = "#ffffff", "#e8ecf3", "#d5dff0"


def house() -> Sheet:
    """The picture."""
    names = "; ".join(", ".join(floor) for floor in FLOORS)
    sheet = Sheet("The house: folders of the package, each above what it may import", f"From above: {names}.")
    middle = (_LEFT + _RIGHT) / 2
    sheet.shape([(middle, 14), (_RIGHT + 14, 92), (_LEFT - 14, 92)], _STONE, "#8a93a0")
    (roof,) = FLOORS[0].items()
    sheet.write([roof[0]], Box(middle - 120, 46, middle + 120, 64), bold=True, size=15)
    sheet.write([roof[1]], Box(middle - 120, 68, middle + 120, 88), size=12, ink=DIM)
    y = 96.0
    for floor in FLOORS[1:-2]:
        wide = (_RIGHT - _LEFT) / len(floor)
        for number, (name, words) in enumerate(floor.items()):
            box = Box(_LEFT + wide * number + 2, y, _LEFT + wide * (number + 1) - 2, y + 44)
            sheet.box(box, _LINTEL if name == "protocols" else _WALL, "#8a93a0")
            sheet.write([name], Box(box.left, y + 4, box.right, y + 24), bold=True, size=14)
            sheet.write([words], Box(box.left + 4, y + 24, box.right - 4, y + 44), size=12, ink=DIM)
        y += 48
    y = _pillars(sheet, y)
    ground = Box(_LEFT - 14, y, _RIGHT + 14, y + 66)
    sheet.box(ground, _STONE, "#8a93a0")
    sheet.write(["the ground, for every floor"], Box(ground.left, y + 4, ground.right, y + 22), size=12, ink=DIM)
    lines = wrapped(", ".join(GROUND), 400)
    sheet.write(lines, Box(ground.left, y + 24, ground.right, ground.bottom), ink=INK)
    sheet.write(
        ["Imports point down only. None of the four pillars imports another."],
        Box(8, ground.bottom + 10, 512, ground.bottom + 28),
        size=12,
    )
    sheet.high = ground.bottom + 36
    return sheet


def _pillars(sheet: Sheet, y: float) -> float:
    """Four pillars, each with a capital and a base."""
    wide = (_RIGHT - _LEFT) / len(PILLARS)
    for number, (name, words) in enumerate(PILLARS.items()):
        left, right = _LEFT + wide * number + 2, _LEFT + wide * (number + 1) - 2
        sheet.box(Box(left, y, right, y + 12), _LINTEL, "#8a93a0", round=2)
        sheet.box(Box(left + 4, y + 12, right - 4, y + 132), _WALL, "#8a93a0", round=0)
        sheet.box(Box(left, y + 132, right, y + 144), _LINTEL, "#8a93a0", round=2)
        inner = Box(left + 6, y + 20, right - 6, y + 130)
        sheet.write([name], Box(inner.left, inner.top, inner.right, inner.top + 20), bold=True, size=14)
        lines = wrapped(words, inner.right - inner.left, 12)
        sheet.write(lines, Box(inner.left, inner.top + 24, inner.right, inner.bottom), size=12, ink=DIM)
    return y + 148


def mark() -> str:
    """A temple front in white, for the head of the site."""
    pillars = "".join(f"M{x:g} 9.5h2.4v9h-2.4z" for x in (4, 8.5, 13.1, 17.6))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="#fff"><title>Colonnade</title>'
        f'<path d="M12 2 2 6.5V8h20V6.5z{pillars}M2 20h20v2H2z"/></svg>\n'
    )
