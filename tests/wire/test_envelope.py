from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st

from colonnade.errors import ProtocolError
from colonnade.wire import Identity, envelope
from colonnade.wire.circle import Connection
from colonnade.wire.hub_carrier import _bundles, _HubCarrier
from colonnade.wire.post import Post
from colonnade.wire.watch import Limits
from tests.support.refusals import refused

packets = st.binary(max_size=40).map(lambda body: envelope.prefix("bank", "shop") + body)


@given(st.lists(packets, min_size=1, max_size=6))
def test_a_bundle_holds_its_messages(messages: list[bytes]) -> None:
    assert list(envelope.unbundle(envelope.bundle(messages))) == messages


def test_one_message_is_not_wrapped() -> None:
    assert envelope.bundle([b"Pabc"]) == b"Pabc"


@given(st.lists(packets, min_size=2, max_size=4), st.data())
def test_a_damaged_bundle_raises_protocol_errors_only(messages: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(envelope.bundle(messages))
    whole[data.draw(st.integers(1, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(ProtocolError):
        for message in envelope.unbundle(bytes(whole[: data.draw(st.integers(0, len(whole)))])):
            envelope.names(message)


@pytest.mark.parametrize("cut", [1, 3, 12])
def test_a_bundle_that_is_cut_short_is_noticed(cut: int) -> None:
    whole = envelope.bundle([b"P" + bytes(20)] * 2)
    refused(ProtocolError, "MS064", list, envelope.unbundle(whole[:-cut]))


MEANINGLESS = {
    "nothing": b"",
    "nothing in a bundle": b"B\0\0\0\0",
    "a bundle in a bundle": envelope.bundle([envelope.bundle([b"P"] * 2)] * 2),
    "a cut bundle": b"B\x05",
    "an envelope without names": b"P",
    "a cut roster": b"H\x02a",
    "an unknown kind": b"Z",
    "a second roster": envelope.roster(envelope.ROSTER, {"shop": 1}),
    "own words": envelope.prefix("bank", "bank") + b"word",
    "words for somebody else": envelope.prefix("shop", "coordinator") + b"word",
}


@pytest.mark.parametrize("message", MEANINGLESS.values(), ids=MEANINGLESS)
def test_what_the_hub_cannot_mean_is_refused_in_its_name(message: bytes) -> None:
    identity, hub = (Identity.create(name) for name in ("bank", "coordinator"))
    carrier = _HubCarrier("127.0.0.1:1", identity, hub.certificate, 1.0, Limits())
    receiver = Mock(spec=Post)
    assert carrier._listen(receiver, SimpleNamespace(roster={}, messages=iter([message]))) is None
    ((error,), _) = receiver.carrier_failed.call_args
    assert isinstance(error, ProtocolError)
    assert str(error).startswith("the hub of coordinator sent something that has no meaning: ")
    receiver.packet.assert_not_called()


@pytest.mark.parametrize("message", [b"", b"Z", b"H", b"R\x02a", b"R\x01a\0"])
def test_a_first_message_that_is_no_roster(message: bytes) -> None:
    refused(ProtocolError, (), envelope.read_first_roster, message)


def _dialled(messages: list[bytes]) -> list[bytes]:
    waiting: SimpleQueue[bytes | None] = SimpleQueue()
    for message in [*messages, None]:
        waiting.put(message)
    bundles = list(_bundles(waiting))
    assert waiting.empty()
    return bundles


def _written_by_the_hub(messages: list[bytes]) -> list[bytes]:
    async def drain() -> list[bytes]:
        connection = Connection("shop", 1)
        for message in messages:
            connection.announce(message)
        return [await connection.get() for _ in range(len(messages)) if connection._waiting]

    return asyncio.run(drain())


@pytest.mark.parametrize("send", [_dialled, _written_by_the_hub])
@given(sizes=st.lists(st.integers(1, 100) | st.integers(1, 2 * envelope.FULL_BUNDLE), max_size=12))
def test_small_messages_leave_together_and_large_ones_alone(
    send: Callable[[list[bytes]], list[bytes]], sizes: list[int]
) -> None:
    messages = [b"P" * size for size in sizes]
    sent = send(messages)
    bundles = [list(envelope.unbundle(whole)) for whole in sent]
    assert [one for bundle in bundles for one in bundle] == messages
    for whole, bundle in zip(sent, bundles, strict=True):
        assert len(bundle) > 1 or any(whole is message for message in messages)  # not copied
        assert len(bundle) == 1 or sum(map(len, bundle)) <= envelope.FULL_BUNDLE
    for bundle, following in pairwise(bundles):
        assert sum(map(len, bundle)) + len(following[0]) > envelope.FULL_BUNDLE
