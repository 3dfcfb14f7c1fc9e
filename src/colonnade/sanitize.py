"""Text that others wrote, made harmless and short before a person or a log sees it.

Names in a study file, values in a schema, sentences of participants: all of them may hold codes that move the cursor,
turn the direction of writing or start a new line in which something else is claimed.
"""

from __future__ import annotations

import unicodedata

from colonnade.errors import last_code

LONGEST = 1000
"""Characters of one sentence or name that are shown."""
_UNSEEN = "\N{REPLACEMENT CHARACTER}"
_CUT = " [...]"


def sanitize(text: object, longest: int = LONGEST, keep: str = "") -> str:
    """One line of text: what cannot be seen is replaced by a sign, and what is too long is cut, but for its code."""
    whole = str(text)
    shown = replace_invisible(whole[: longest + 1], keep)
    if len(whole) <= longest:
        return shown
    end = _CUT + last_code(whole)
    return shown[: max(0, longest - len(end))] + end


def sanitize_lines(text: str, longest: int = LONGEST) -> str:
    """Text of several lines, each of them made harmless."""
    return "\n".join(sanitize(line, longest) for line in text.split("\n"))


def replace_invisible(text: str, keep: str = "") -> str:
    """The same text with a sign for each character that cannot be seen; those in ``keep`` stay.

    These are control characters, also those that begin an escape code, marks of direction, ends of lines, and halves
    of surrogate pairs, which cannot be written. Spaces of all widths stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else _UNSEEN for c in text)
