"""A packet's head stands before its sealed bytes, whatever else TLS or another thread has to say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.errors import ProtocolError
from colonnade.wire import Identity
from colonnade.wire.post import Head
from colonnade.wire.tls import TlsSession
from tests.support.refusals import refused
from tests.wire.switchboard import Switchboard

HEAD = b"a head that is not sealed"
SIZES = (1, 1 << 14, (1 << 14) + 1, 300_000)


@pytest.fixture(scope="module")
def people() -> tuple[Identity, Identity]:
    return Identity.create("bank"), Identity.create("shop")


@pytest.fixture
def sessions(people: tuple[Identity, Identity]) -> tuple[TlsSession, TlsSession]:
    bank, shop = people
    here, there = TlsSession(bank, shop.certificate), TlsSession(shop, bank.certificate)
    while not (here.ready and there.ready):
        here.advance()
        there.feed(memoryview(here.drain()))
        there.advance()
        here.feed(memoryview(there.drain()))
    return here, there


def _unsealed(session: TlsSession, sealed: bytes, size: int) -> bytes:
    target = bytearray(size)
    session.feed(memoryview(sealed))
    assert session.unseal_into(memoryview(target)) == size
    return bytes(target)


@pytest.mark.parametrize("size", SIZES)
def test_a_head_is_followed_by_the_sealed_bytes(sessions: tuple[TlsSession, TlsSession], size: int) -> None:
    here, there = sessions
    said = np.random.default_rng(size).bytes(size)
    for _ in range(2):
        packet = here.seal([said[:1], memoryview(said)[1:]], HEAD)
        assert packet.startswith(HEAD)
        assert _unsealed(there, packet[len(HEAD) :], size) == said
    assert here.drain() == b""


def test_what_tls_had_to_say_before_comes_after_the_head(sessions: tuple[TlsSession, TlsSession]) -> None:
    here, there = sessions
    here._tls.write(b"first ")  # as an answer of TLS itself would wait there
    packet = here.seal([b"second"], HEAD)
    assert packet.startswith(HEAD)
    assert _unsealed(there, packet[len(HEAD) :], 12) == b"first second"


def test_a_session_that_failed_keeps_no_head(sessions: tuple[TlsSession, TlsSession]) -> None:
    here, _ = sessions
    here.feed(memoryview(bytes(100)))
    refused(ProtocolError, (), here.unseal_into, memoryview(bytearray(10)))
    refused(ProtocolError, (), here.seal, [b"word"], HEAD)
    alert = here.drain()
    assert alert
    assert HEAD not in alert


def test_a_piece_that_another_overtook_gets_the_next_number(
    people: tuple[Identity, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Switchboard(identity.certificate for identity in people)
    bank, shop = map(board.endpoint, people)
    with bank, shop:
        bank.wait_for_peers(timeout=60)
        shop.wait_for_peers(timeout=60)
        post, asked = bank._post, 0
        head = post.head

        def overtaken(name: str) -> Head:
            nonlocal asked
            asked += 1
            found = head(name)
            post.dispatch(name, b"")
            return found

        monkeypatch.setattr(post, "head", overtaken)
        words: Any = np.random.default_rng(0).integers(0, 2**32, 1_000_000, dtype=np.uint32)
        for _ in range(2):
            bank.channel("shop").send("words", words=words)
            assert np.array_equal(shop.channel("bank").recv("words")["words"], words)
        assert asked >= 2
        shop.channel("bank").send("word")
        assert bank.channel("shop").recv("word") == {}
