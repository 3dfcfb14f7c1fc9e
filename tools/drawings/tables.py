"""Two pictures without arrows between people: who sees what, and how a study goes."""

from __future__ import annotations

from .canvas import DIM, INK, Box, Sheet, wrapped

ROLES = ("owner", "other owner", "coordinator", "analyst", "outsider")
_SEES, _PART, _NONE = "#cfe8d8", "#fdf0c9", "#ffffff"
SEEN: dict[str, tuple[str, ...]] = {
    "the owner's rows": ("all", "-", "-", "-", "-"),
    "the other owner's rows": ("-", "all", "-", "-", "-"),
    "who is common, after an alignment": ("~of its own, which", "~of its own, which", "~how many, not who", "-", "-"),
    "how many rows there are": ("all", "all", "all", "~with noise", "~guessed by sizes"),
    "shares of rows": ("~one, with a seat", "~one, with a seat", "~one, if owners are two", "-", "-"),
    "the noisy sums that are opened": ("all", "all", "all", "~what the model has", "-"),
    "the published model": ("all", "all", "all", "all", "~if it is given out"),
    "sizes and times of messages": ("~its own", "~its own", "all", "-", "~on lines it can tap"),
}
"""By thing, what each role sees: all of it, a part (~ and which), or nothing (-)."""
COURSE: tuple[tuple[str, str], ...] = (
    ("study file", "Says who takes part, what is computed and at which epsilon. Everybody has the same one."),
    ("checks", "Each party checks it against its schema, policy and ledger, and reserves its price."),
    ("align", "Whom do all parties hold? If too few, the study ends, and reservations are released."),
    ("compute", "Shares of rows leave each party: from here on the price is spent. Seats compute on what nobody sees."),
    ("noise", "Each owner adds its own share of the noise, also on shares."),
    ("open", "The noisy result is opened, and nothing else is."),
    ("report, ledger", "Everybody has the model and the table of observers. Each party's ledger says what was spent."),
)
_EDGE = 12.0


def seen() -> Sheet:
    """Who sees what, where a committee computes and everybody follows the protocol."""
    told = "; ".join(
        f"{thing}: " + ", ".join(f"{role} {_said(what)[1]}" for role, what in zip(ROLES, cells, strict=True))
        for thing, cells in SEEN.items()
    )
    sheet = Sheet("Who sees what, where a committee makes one release and members are known", f"{told}.")
    wide = (sheet.wide - 2 * _EDGE) / len(ROLES)
    y = _EDGE
    for number, role in enumerate(ROLES):
        box = Box(_EDGE + wide * number + 1, y, _EDGE + wide * (number + 1) - 1, y + 28)
        sheet.box(box, "#e8ecf3")
        sheet.write([role], Box(box.left, y + 6, box.right, box.bottom), size=12.5, bold=True)
    y += 34
    for thing, cells in SEEN.items():
        sheet.write([thing], Box(_EDGE + 2, y + 2, sheet.wide - _EDGE, y + 22), bold=True, left=True)
        y += 22
        lines = [wrapped(_said(what)[1], wide - 12, 12) for what in cells]
        high = 10 + 16 * max(len(found) for found in lines)
        for number, found in enumerate(lines):
            box = Box(_EDGE + wide * number + 1, y, _EDGE + wide * (number + 1) - 1, y + high)
            sheet.box(box, _said(cells[number])[0])
            top = y + (high - 16 * len(found)) / 2
            ink = DIM if cells[number] == "-" else INK
            sheet.write(found, Box(box.left, top, box.right, box.bottom), size=12, ink=ink)
        y += high + 6
    foot = (
        "Nobody pools more seats than the threshold. A prediction is opened to one party alone, and weights of glm "
        "stay at home. An outsider is somebody who takes no part."
    )
    y = _foot(sheet, foot, y + 2)
    sheet.high = y + 8
    return sheet


def course() -> Sheet:
    """How a study goes, from its file to the ledger."""
    sheet = Sheet("How a study goes", " ".join(f"{name}: {words}" for name, words in COURSE))
    y, name_room = _EDGE, 130.0
    for number, (name, words) in enumerate(COURSE):
        lines = wrapped(words, sheet.wide - 2 * _EDGE - name_room - 16)
        high = max(16 + 17 * len(lines), 40)
        box = Box(_EDGE, y, sheet.wide - _EDGE, y + high)
        sheet.box(box)
        tab = Box(box.left, y, box.left + name_room, box.bottom)
        sheet.box(tab, "#e8ecf3")
        sheet.write([name], Box(tab.left, y + (high - 17) / 2, tab.right, tab.bottom), bold=True)
        top = y + (high - 17 * len(lines)) / 2
        sheet.write(lines, Box(tab.right + 8, top, box.right - 8, box.bottom), left=True)
        y = box.bottom
        if number + 1 < len(COURSE):
            x = tab.middle
            sheet.line(x, y, x, y + 12, ink="#1f5fa8", thick=2)
            sheet.shape([(x, y + 18), (x - 6, y + 9), (x + 6, y + 9)], "#1f5fa8")
            y += 18
    sheet.high = y + _EDGE
    return sheet


def _said(what: str) -> tuple[str, str]:
    """The colour of a cell, and its words."""
    if what == "-":
        return _NONE, "nothing"
    return (_PART, what[1:]) if what.startswith("~") else (_SEES, "sees it" if what == "all" else what)


def _foot(sheet: Sheet, words: str, y: float) -> float:
    lines = wrapped(words, sheet.wide - 2 * _EDGE - 4, 12)
    sheet.write(lines, Box(_EDGE + 2, y, sheet.wide - _EDGE, y + 16 * len(lines)), size=12, ink=DIM, left=True)
    return y + 16 * len(lines)
