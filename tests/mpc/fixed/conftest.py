from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from colonnade.mpc import PRIMES
from colonnade.mpc.common import CommonKeys
from colonnade.mpc.fixed.binary import BitHand

from ..conftest import make


@pytest.fixture(scope="session")
def seats(in_threads: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program at every seat, with its hand for bits; it may look at ``hand.links``."""

    def run(size: int, threshold: int, program: Callable[[BitHand], Any]) -> dict[str, Any]:
        committee = make(size, threshold, PRIMES[:1])

        def bind(name: str) -> Callable[..., Any]:
            def play(links: Any) -> Any:
                hand = BitHand(name, committee, links, CommonKeys.agree(name, committee, links))
                for link in links.values():
                    link.sent.clear()
                hand.links = links
                return program(hand)

            return play

        return in_threads({name: bind(name) for name in committee.seats})

    return run
