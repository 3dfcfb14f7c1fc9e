"""Every sentence of an error has a code of its own, and one page lists all of them as they stand in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colonnade import errors
from tools import error_codes

WITHOUT = {
    "AssertionError",  # what cannot happen
    "AttributeError",  # as Python itself says it
    "ConnectionError",
    "ModuleNotFoundError",
    "OSError",
    "RuntimeError",
    "TimeoutError",
    "TimeoutExpired",
    "UnpicklingError",
}
"""Classes whose errors are caught where they are due, and shown to nobody."""


def test_a_code_stands_once() -> None:
    assert not error_codes.problems(error_codes.collected())


def test_no_error_is_made_from_a_literal_without_a_code() -> None:
    assert not error_codes.uncoded()
    assert error_codes.raised_without_letters() == WITHOUT


def test_the_page_is_as_the_source() -> None:
    found = error_codes.collected()
    there = error_codes.PAGE.read_text(encoding="utf-8")
    gone = error_codes.listed_codes() - {one.code for one in found}
    assert gone <= error_codes.retired_codes(), f"{gone} are gone: {error_codes.COMMAND} retires them"
    assert there == error_codes.page(found, error_codes.retired_codes()), f"run {error_codes.COMMAND}"


def test_the_letters_are_those_that_errors_know() -> None:
    assert set(error_codes.CLASSES) == set(errors.PREFIXES)
    named = {name for names in error_codes.CLASSES.values() for name in names.split(", ")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert {kind.__name__ for kind in kinds if issubclass(kind, errors.ColonnadeError)} <= named


def test_a_new_sentence_gets_the_next_number_and_one_that_is_gone_is_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, page = tmp_path / "src", tmp_path / "page.md"
    source.mkdir()
    module = source / "one.py"
    for name, value in {"ROOT": tmp_path, "SOURCES": (source,), "PAGE": page}.items():
        monkeypatch.setattr(error_codes, name, value)
    monkeypatch.setattr("sys.argv", ["error_codes", "--write"])

    module.write_text('raise StudyError(f"{self.path} is wrong [ST000]")\nraise StudyError("so it is [ST000]")\n')
    assert error_codes.main() == 0
    assert re.findall(r"\[(ST\d+)\]", module.read_text()) == ["ST001", "ST002"]
    assert "| `ST001` | `{path} is wrong` |" in page.read_text()

    module.write_text('raise StudyError(f"{self.path} is wrong [ST001]")\n')
    assert error_codes.main() == 0
    assert error_codes.retired_codes() == {"ST002"}

    module.write_text('raise StudyError("new [ST000]")\nraise StudyError("more [ST001]")\n')
    assert error_codes.main() == 0
    assert re.findall(r"\[(ST\d+)\]", module.read_text()) == ["ST003", "ST001"]

    for wrong in ('StudyError("bare")', 'StudyError("other [DA001]")', 'StudyError("again [ST002]")'):
        module.write_text(f"raise {wrong}\n")
        assert error_codes.main() == 1
