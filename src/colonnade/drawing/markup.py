"""HTML as values: all text is escaped when it is put into an element, so it cannot become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from colonnade.sanitize import replace_invisible, sanitize

_LONGEST = 4000
_VOID = frozenset({"meta", "wbr"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Markup that shows any text."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(sanitize(text, _LONGEST, keep="\n\r\t")))


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """One element; ``class_`` and ``data_label`` become class and data-label, an attribute of ``None`` is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*inside)}</{name}>")


def join(*parts: object, between: str = "") -> Html:
    """Several parts as one piece of markup; parts that are ``None`` are left out."""
    return Html(between.join(escape(part) for part in parts if part is not None))


def breakable(text: str, after: str = "/+") -> Html:
    """A long name, which a browser may break after any of these characters."""
    return join(*re.split(f"(?<=[{after}])", text), between=tag("wbr"))


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    numeric: Iterable[int] = (),
    marks: Sequence[str] = (),
    look: str | None = None,
) -> Html:
    """A table whose first column names the row; on a phone each row becomes a card (roles keep it a table).

    ``numeric`` columns are set to the right; ``marks`` are classes of the rows, in their order.
    """
    right = frozenset(numeric)
    head = [_cell("th", "columnheader", text, k in right, scope="col") for k, text in enumerate(heads)]
    body = []
    for index, row in enumerate(rows):
        first = _cell("th", "rowheader", row[0], False, scope="row")
        rest = [_cell("td", "cell", cell, k in right, data_label=str(heads[k])) for k, cell in enumerate(row) if k]
        mark = marks[index] if index < len(marks) and marks[index] else None
        body.append(tag("tr", first, *rest, role="row", class_=mark))
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_=look,
    )


def named_values(pairs: Iterable[tuple[str, object]]) -> Html | None:
    """A list of names, each with its value; one without a value is left out, and None is returned where all are."""
    listed = [join(tag("dt", name), tag("dd", value)) for name, value in pairs if value not in (None, "")]
    return tag("dl", *listed, class_="facts") if listed else None


def _cell(name: str, role: str, inside: object, right: bool, **more: object) -> Html:
    return tag(name, inside, role=role, class_="n" if right else None, **more)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{round(value, 2):g}"
    if isinstance(value, Html):
        return value
    return html.escape(replace_invisible(str(value), keep="\n\r\t"))  # not cut: it may be the path of a curve
