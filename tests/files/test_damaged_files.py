"""Damaged files of every kind are refused with their name and a documented error, or they load and can be used."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

import pytest

from colonnade.errors import BudgetError, ColonnadeError, PolicyError

from .subjects import SUBJECTS, Subject

A_FEW, MANY = 6, 2000
LONGEST = 2500
NAMELESS = ("statement", "event")
"""Values that are not read from a file by us: whoever reads the file names it."""


def damage_and_use(subject: Subject, folder: Path, first: int, count: int) -> tuple[int, int]:
    """How many damaged files were refused, and how many could still be used."""
    whole = folder / "whole"
    whole.mkdir(parents=True)
    path = subject.make(whole)
    subject.use(path)
    refused = used = 0
    for number in range(first, first + count):
        place = folder / str(number)
        shutil.copytree(whole, place)
        damaged = place / path.relative_to(whole)
        subject.damage(random.Random(f"{subject.name} {number}"), damaged)  # noqa: S311 - repeatable, nothing secret
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that are absurd
                subject.use(damaged)
            used += 1
        except ColonnadeError as error:
            check_sentence(error, subject, damaged)
            refused += 1
        except Exception as error:
            raise AssertionError(f"{subject.name} {number}: {type(error).__name__} instead of a refusal") from error
        shutil.rmtree(place)
    return refused, used


def check_sentence(error: ColonnadeError, subject: Subject, path: Path) -> None:
    """A file that is damaged is named, or the file that it names; a policy is refused by what it says."""
    said = str(error)
    assert len(said) < LONGEST + len(str(path))
    assert "\n" not in said.rstrip()
    named = any(text in said for text in (path.name, str(path.parent), "/dev/zero"))
    assert named or subject.name in NAMELESS or isinstance(error, PolicyError | BudgetError), said


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_few_damaged_files(subject, tmp_path):
    refused, used = damage_and_use(subject, tmp_path, 0, A_FEW)
    assert refused + used == A_FEW
    assert subject.quiet or refused


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_many_damaged_files(subject, tmp_path):
    refused, used = damage_and_use(subject, tmp_path, A_FEW, MANY)
    assert refused + used == MANY
    assert subject.quiet or refused > MANY / 4
