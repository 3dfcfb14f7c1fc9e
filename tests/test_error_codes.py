"""Errors carry their codes, and keep them wherever their sentences go."""

from __future__ import annotations

import pytest

from colonnade import errors
from colonnade.cli.output import report_error
from colonnade.disk.reading import shorten
from colonnade.sanitize import sanitize


def test_an_error_has_its_code_at_the_end_and_knows_it() -> None:
    error = errors.StudyError("the study is wrong [ST104]")
    assert (str(error), error.code) == ("the study is wrong [ST104]", "ST104")
    assert errors.StudyError("bare").code is None
    assert errors.StudyError().code is None


def test_of_several_codes_the_first_is_kept() -> None:
    inner = errors.DataError("bank.csv: no rows [DA001]")
    assert str(errors.StudyError(f"bank: {inner} [ST002]")) == "bank: bank.csv: no rows [DA001]"
    assert str(errors.StudyError(f"{inner}; nothing was sent [ST002]")) == "bank.csv: no rows; nothing was sent [DA001]"
    assert str(errors.StudyError(f"{inner}; nothing was sent")) == "bank.csv: no rows; nothing was sent [DA001]"
    assert str(type(inner)(*inner.args)) == str(inner)


def test_brackets_that_are_no_code_stay() -> None:
    said = "add [align], [XY123] or [ST1234] to x[ST104]"
    assert str(errors.StudyError(said)) == said
    assert errors.without_code(f"{said} [ST104]") == said


@pytest.mark.parametrize("length", [990, 1000, 5000])
def test_a_sentence_that_is_cut_keeps_its_code(length: int) -> None:
    said = "x" * length + " [ST104]"
    assert shorten(said).endswith("x [ST104]" if len(said) <= 1000 else "x... [ST104]")
    assert sanitize(said).endswith("x [ST104]" if len(said) <= 1000 else "x [...] [ST104]")
    assert len(sanitize(said)) <= 1000


def test_peers_are_told_no_code_of_what_is_not_public() -> None:
    assert errors.DataError("a cell is wrong [DA001]").for_peers == errors.CANNOT_GO_ON
    assert errors.code_of(errors.CANNOT_GO_ON) is None
    assert errors.code_of(errors.NO_PART) is None
    assert errors.ProtocolError("a message is wrong [MS001]").for_peers.endswith("[MS001]")


def test_a_command_ends_its_sentence_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(errors.StudyError("the study is wrong [ST104]")) == 13
    assert capsys.readouterr().err == "colonnade: the study is wrong [ST104]\n"
    for error, word in ((errors.Interrupted(), "interrupted"), (ZeroDivisionError("data"), "ZeroDivisionError")):
        report_error(error)
        said = capsys.readouterr().err
        assert word in said
        assert errors.code_of(said) is not None
