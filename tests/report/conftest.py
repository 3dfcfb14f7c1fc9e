"""Fixtures of the pages of reports."""

from __future__ import annotations

import pytest

from tests.support import reports


@pytest.fixture(scope="session")
def statement():
    return reports.make_statement()


@pytest.fixture(scope="session")
def model():
    return reports.make_model()


@pytest.fixture
def run():
    return reports.make_run()


@pytest.fixture
def evaluation():
    return reports.make_evaluation()
