"""Whether there were enough people for a result that says more than the noise, from public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.report.markup import Html, join, tag
from colonnade.report.words import mapping, number


def enough_people(run: Mapping[str, Any]) -> Html | None:
    """The forecast of a run, and a warning where there were too few people; None where the record has none."""
    found = mapping(run.get("forecast"))
    error, enough, rows, people = (number(found.get(key)) for key in ("error", "enough", "rows", "people"))
    if not found or enough is None:
        return None
    least = "" if people is None else f" An error of {enough:g} takes about {people:,.0f} people."
    if error is None or rows is None:
        said = f"How many people there were is not said here.{least}"
    else:
        said = f"With {rows:,.0f} people noise alone is expected to move {found.get('of')} by about {error:.2g}.{least}"
    lines = [tag("h2", "Were there enough people?"), tag("p", said)]
    if found.get("too_few") is True:
        cure = "Take the figures below as mostly noise; more people, or a larger epsilon, would change that."
        lines.append(tag("p", tag("strong", "There were too few people. "), cure, class_="note"))
    note = "The forecast follows from the study alone; it is rough, and no data was looked at."
    return join(*lines, tag("p", note, class_="soft small"))
