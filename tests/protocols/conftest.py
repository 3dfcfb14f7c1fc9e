"""Fixtures for tests of protocols; what they share besides is in kit.py."""

from __future__ import annotations

import pytest

from . import kit


@pytest.fixture
def nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding without coins."""
    kit.nearest(monkeypatch)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocols without noise and without the coins of rounding, so that the sums can be compared."""
    kit.nearest(monkeypatch)
    kit.no_noise(monkeypatch)
