"""The page on encoders names every kind, every option and every default that a specification has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from colonnade.kinds.split import encoders

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "encoders.md"
ROWS = {
    found[1]: found[2]
    for found in re.finditer(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", PAGE.read_text("utf-8"), re.MULTILINE)
}


def test_every_kind_is_there() -> None:
    assert set(ROWS) == set(encoders.KINDS)


@pytest.mark.parametrize("kind", sorted(encoders._BUILT))
def test_every_option_is_there_with_its_default(kind: str) -> None:
    options = encoders._BUILT[kind][1]
    said = dict(re.findall(r"`(\w+)`([^`]*)", ROWS[kind]))
    assert set(said) == {each.name for each in fields(options)}
    for each in fields(options):
        if isinstance(each.default, tuple):
            expected = " and ".join(map(str, each.default)) or ("none" if each.name == "hidden" else "")
        else:
            expected = "" if each.default is None else f"{each.default}".lower().removesuffix(".0")
        assert said[each.name].strip(" ,").startswith(expected), each.name
