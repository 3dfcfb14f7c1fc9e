"""The suite's own randomness: the same in every run, different for every participant, fresh where nobody tests."""

from __future__ import annotations

import subprocess
import sys
import threading

from colonnade.randomness import Stream, new_key

KEYS = "from colonnade.randomness import new_key; print(new_key().hex())"


def keys_of(*names: str) -> dict[str, list[bytes]]:
    """The next two keys of threads with these names, which start in this order."""
    drawn: dict[str, list[bytes]] = {}

    def take_part() -> None:
        drawn[threading.current_thread().name] = [new_key(), new_key()]

    threads = [threading.Thread(target=take_part, name=name) for name in names]
    for thread in threads:
        thread.start()
        thread.join()
    return drawn


def test_keys_are_those_of_every_other_run():
    assert new_key().hex()[:16] == "2bd4de2bb1d85abc"
    assert Stream.fresh().bytes(32) != Stream.fresh().bytes(32)


def test_participants_draw_their_own():
    found = keys_of("bank", "shop")
    assert len({*found["bank"], *found["shop"]}) == 4
    assert found["bank"][0].hex()[:16] == "9e37a58f2ba5878d"


def test_whoever_comes_first():
    found = keys_of("shop", "bank")
    assert found["bank"][0].hex()[:16] == "b5560543035a716c"


def test_the_operating_system_is_asked_where_nobody_tests():
    told = [subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout != told[1].stdout
