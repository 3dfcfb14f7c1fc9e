from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colonnade.models import registry


@pytest.fixture
def new_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes a module ``new_kinds`` that can be imported; afterwards the list of kinds is as before."""

    def write(text: str) -> Path:
        (tmp_path / "new_kinds.py").write_text(text)
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "new_kinds", raising=False)
    registry.rows()
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    yield write
    sys.modules.pop("new_kinds", None)
    registry._installed.cache_clear()
