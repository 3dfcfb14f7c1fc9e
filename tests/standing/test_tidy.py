"""What a study leaves in a standing process is gone after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.standing import keeper as keepers
from colonnade.standing.desk import Running
from colonnade.tidy import settle, tidy
from tests.support.ports import free_port

from .club import club


class Link:
    """Refers to itself, as a connection does that has ended."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Nothing is collected but by what is tested."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("by_hand")
def test_circles_go_after_a_study_in_a_process_that_has_settled() -> None:
    gc.unfreeze()
    early = weakref.ref(Link())
    tidy()
    assert early() is not None, "a look takes long as long as nothing is left out of it"
    settle()
    assert early() is None
    held = gc.get_freeze_count()
    assert held > 1000
    late = [weakref.ref(Link()) for _ in range(10)]
    tidy()
    assert not any(each() for each in late)
    assert len(gc.get_objects()) < held


def test_a_hub_tidies_once_after_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circle = club(tmp_path, f"127.0.0.1:{free_port()}")
    circle.keys["coordinator"].save(tmp_path)
    circle.members.path.write_text(circle.members.path.read_text() + "\n[hub]\n")
    keeper: Any = keepers.Keeper(circle.members.path)
    done: list[str] = []
    monkeypatch.setattr(keepers, "tidy", lambda: done.append("tidy"))
    monkeypatch.setattr(keeper, "_report", lambda *_: None)
    monkeypatch.setattr(keeper, "_count", lambda: None)
    monkeypatch.setattr(keeper.desk, "study", lambda *_: {"state": "running"})
    keeper.hub = SimpleNamespace(close=lambda *_: None)
    keeper._turn()
    assert not done
    child = SimpleNamespace(poll=lambda: 1)
    keeper._children["study.1"] = Running("study", 1, (), stopping=False, reported=True), child
    keeper._turn()
    keeper._turn()
    assert done == ["tidy"]
