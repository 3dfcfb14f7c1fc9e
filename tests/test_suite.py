"""What the suite promises: the same randomness in every run, no bad luck, and a word about what it did."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

from colonnade.randomness import Stream, new_key
from tests.conftest import _left_out, _times
from tests.support.repeatable import SEED

KEYS = "from colonnade.randomness import new_key; print(new_key().hex())"


def test_keys_are_those_of_every_other_run_and_participants_draw_their_own():
    drawn: dict[str, bytes] = {}

    def take_part() -> None:
        drawn[threading.current_thread().name] = new_key()

    for name in ("shop", "bank"):
        thread = threading.Thread(target=take_part, name=name)
        thread.start()
        thread.join()
    pinned = (new_key().hex()[:16], drawn["bank"].hex()[:16]) == ("2fa390acc4847949", "68fc93f5658686ad")
    assert pinned != bool(SEED), "other keys where a seed is given, and there alone"
    assert drawn["bank"] != drawn["shop"]
    assert Stream.fresh().bytes(32) != Stream.fresh().bytes(32)


def test_the_operating_system_is_asked_where_nobody_tests():
    told = [subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout != told[1].stdout


def report(name: str, seconds: float = 0.0, said: object = None) -> SimpleNamespace:
    return SimpleNamespace(nodeid=name, duration=seconds, longrepr=said)


def test_times_are_told_in_four_lines() -> None:
    ran = [report(f"tests/kinds/glm/test_glm.py::test_{number}", number) for number in range(30)]
    first, folders, slowest, tests = _times([*ran, report("tests/wire/test_hub.py::test_hub", 100.0)])
    assert first.startswith("31 tests took 535 s")
    assert folders == "kinds/glm 435 s, wire 100 s"
    assert slowest == "the slowest 20 took 480 s:"
    assert tests.startswith("wire/test_hub.py::test_hub 100.0 s, kinds/glm/test_glm.py::test_29 29.0 s")


def test_what_was_left_out_is_told_once_with_the_command_that_installs_it() -> None:
    missing = ("tests/x.py", 1, "Skipped: could not import 'ray.util': No module named 'ray'")
    skipped = [report("a", said=missing), report("b", said=missing), report("c", said=("", 2, "Skipped: no data"))]
    assert _left_out(skipped) == ["2 left out: no ray: make system installs it", "1 left out: no data"]
