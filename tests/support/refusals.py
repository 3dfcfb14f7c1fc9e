"""Calls that are refused, one after the other, where a test lists several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.errors import raises


def refused(said: tuple[Any, ...], call: Callable[..., Any], /, *given: Any, **named: Any) -> None:
    """The call raises this error with this code and names: ``refused((StudyError, "ST104"), model.fit, people)``."""
    with raises(*said):
        call(*given, **named)
