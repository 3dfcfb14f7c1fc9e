"""What the suite says of itself, and how a part of it is chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import summary
from tools import only


def report(name: str, seconds: float = 0.0, said: object = None) -> SimpleNamespace:
    return SimpleNamespace(nodeid=name, duration=seconds, longrepr=said)


def test_times_are_told_in_four_lines() -> None:
    ran = [report(f"tests/kinds/glm/test_glm.py::test_{number}", number) for number in range(30)]
    first, folders, slowest, tests = summary.times([*ran, report("tests/wire/test_hub.py::test_hub", 100.0)])
    assert first.startswith("31 tests took 535 s")
    assert folders == "kinds/glm 435 s, wire 100 s"
    assert slowest == "the slowest 20 took 480 s:"
    assert tests.startswith("wire/test_hub.py::test_hub 100.0 s, kinds/glm/test_glm.py::test_29 29.0 s")


def test_what_was_left_out_is_told_once_with_the_command_that_installs_it() -> None:
    missing = ("tests/x.py", 1, "Skipped: could not import 'ray.util': No module named 'ray'")
    skipped = [report("a", said=missing), report("b", said=missing), report("c", said=("", 2, "Skipped: no data"))]
    assert summary.left_out(skipped) == ["2 left out: no ray: make system installs it", "1 left out: no data"]


def test_a_part_of_the_suite_is_the_folder_and_what_depends_on_it() -> None:
    chosen = {path.relative_to(only.TESTS).as_posix() for path in only.chosen("pca")}
    assert {"kinds/pca", "kinds/split"} <= chosen  # split networks find their directions with it
    assert "kinds/glm" not in chosen
    assert {"tables", "kinds/tables", "kinds/synthesis"} <= {
        path.relative_to(only.TESTS).as_posix() for path in only.chosen("tables")
    }
    with pytest.raises(SystemExit, match="give one of glm, pca"):
        only.chosen("dance")
