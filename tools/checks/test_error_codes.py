"""Every sentence of an error has a code of its own, and one page lists all of them as they stand in the source."""

from __future__ import annotations

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
