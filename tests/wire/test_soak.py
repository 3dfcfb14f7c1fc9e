"""A hub hardly grows with the rooms that it has had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "hub_rooms.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no other system tells descriptors of a process so")
@pytest.mark.timeout(3600)
def test_two_thousand_rooms_leave_nothing_behind() -> None:
    done = subprocess.run([sys.executable, PROGRAM, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    last = found["figures"][-1]
    assert (last["after"], last["rooms"]) == (2000, 0)
    for key, most in (("descriptors", 1), ("threads", 2), ("tasks", 1), ("memory", 5), ("used", 2), ("blocks", 10)):
        slope, error = found["growth"][key]
        assert slope - 5 * error <= most, f"{key} grows by {slope:.2f} in 1,000 rooms"
    assert last["memory"] < found["figures"][10]["memory"] + 15
