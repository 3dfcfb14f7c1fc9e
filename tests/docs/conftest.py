from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import copy_example


@pytest.fixture
def example(tmp_path: Path) -> tuple[Path, int]:
    return copy_example(tmp_path / "three-organisations")
