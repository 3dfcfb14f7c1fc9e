from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from colonnade.cli.lean import keep_memory
{first}
for number in range(30):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.zeros(1 << 18) + 1 for _ in range(3)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(first: str) -> int:
    """How often a process touches fresh pages while it makes and drops arrays of 2 MB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_a_process_of_ours_keeps_the_memory_of_arrays_it_dropped() -> None:
    without = faults("")
    if without < 5000:
        pytest.skip("this system gives fresh memory out in larger pieces than pages, or does not count them")
    assert faults("keep_memory()") < without / 10
