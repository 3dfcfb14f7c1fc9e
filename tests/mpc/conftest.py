from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem


def make(size: int, threshold: int, primes: Sequence[int] = PRIMES[:2]) -> Committee:
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(primes))


@pytest.fixture(scope="session")
def play(in_threads: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program a participant, each with its hand in the committee."""

    def run(committee: Committee, programs: Mapping[str, Callable[[Hand], Any]]) -> dict[str, Any]:
        def bind(name: str) -> Callable[..., Any]:
            return lambda links: programs[name](Hand(name, committee, links))

        return in_threads({name: bind(name) for name in programs})

    return run
