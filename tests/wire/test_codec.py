"""What travels: values in frames, messages in bundles, and sealed bytes behind the head of their packet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from colonnade.errors import ProtocolError
from colonnade.wire import Hub, codec, packets as envelope
from colonnade.wire.codec import MAGIC, MAX_DEPTH, MAX_FRAME, MAX_VALUES, FrameReader, FrameWriter, decode, encode
from colonnade.wire.endpoint import TlsSession
from colonnade.wire.hub_connection import _bundle_waiting, _HubCarrier
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.reliable_transport import PacketHead, ReliableTransport
from colonnade.wire.study_sessions import SessionConnection
from tests.support.errors import refused
from tests.support.wires import closed, join, people, says

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
numbers = st.none() | st.booleans() | st.integers(-(1 << 2047), (1 << 2047) - 1) | st.floats()
scalars = numbers | st.text(max_size=20) | st.binary(max_size=40)
values = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.dictionaries(st.text(max_size=8), arrays, min_size=1, max_size=2)
messages = st.tuples(st.text(max_size=12), fields).map(list)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def plainly(value: Any) -> bytes:
    """The frame without the shorter way that messages with one array take."""
    writer = FrameWriter()
    writer.value(value, 0)
    return b"".join(writer.finish())


def read_plainly(frame: bytes) -> Any:
    reader = FrameReader(memoryview(frame))
    value = reader.value(0)
    reader.expect_end()
    return value


@given(values | messages)
def test_a_frame_has_one_form_and_cuts_and_tails_are_refused(value: Any) -> None:
    frame = encode(value)
    assert frame == plainly(value)
    for _ in range(2):  # the second time its head is known
        assert same(decode(frame), value)
    assert encode(decode(frame)) == frame
    for end in range(0, len(frame), 1 + len(frame) // 60):
        refused(ProtocolError, (), decode, frame[:end])
    refused(ProtocolError, "MS106", decode, frame + b"\0")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame in which bytes are changed, left out and added; its whole form was decoded before."""
    frame = bytearray(encode(draw(values | messages)))
    decode(bytes(frame))
    for _ in range(draw(st.integers(1, 4))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    start = draw(st.integers(0, len(frame)))
    del frame[start : start + draw(st.integers(0, 9))]
    return bytes(frame) + draw(st.binary(max_size=2))


@settings(max_examples=300)
@given(damaged() | st.binary(max_size=200) | st.binary(max_size=200).map(MAGIC.__add__))
def test_damage_raises_protocol_errors_only_and_a_known_head_is_trusted_no_further_than_it_goes(frame: bytes) -> None:
    found = []
    for read in (decode, read_plainly, decode):
        try:
            found.append(read(frame))
        except ProtocolError as error:
            found.append(str(error))
    assert same(found[0], found[1])
    assert same(found[1], found[2])


NOT_CARRIED = [
    (1, 2), {1: "a"}, {1, 2}, object(), 1 + 2j, 1 << 2048, "\ud800", np.array(["text"]), np.array([object()]),
    np.array([1 + 2j]), np.zeros(2, "f2"), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "i4")]),
    np.ma.masked_array([1, 2], mask=[True, False]), np.zeros((1,) * 9), np.zeros((0, 1 << 40)),
]  # fmt: skip
LIES = [
    b"L\xff\xff\xff\xff", b"M\xff\xff\xff\xff", b"B\xff\xff\xff\xff", b"S\xff\xff\xff\xffabc",
    b"A\x08\x01" + b"\xff" * 8, b"A\x08\x02" + bytes(8) + b"\xff" * 8,
    b"A\x00\x01\x01" + bytes(7) + bytes(3) + b"\x02", b"A\x63\x00", b"A\x00\x09", b"I\x02\x00\x01\x00", b"I\x00\x00",
    b"M\x02\0\0\0\x01\0aN\x01\0aN", b"S\x01\0\0\0\xff", b"?", b"",
]  # fmt: skip


def test_what_a_message_cannot_carry_and_frames_that_lie() -> None:
    for value in NOT_CARRIED:
        refused(ProtocolError, (), encode, value)
    for body in LIES:
        refused(ProtocolError, (), decode, MAGIC + body)
    nested: Any = None
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert decode(encode(nested)) == nested
    refused(ProtocolError, "MS097", encode, [nested])
    refused(ProtocolError, "MS107", decode, MAGIC + b"L\1\0\0\0" * 500 + b"N")
    refused(ProtocolError, (), encode, [None] * (MAX_VALUES + 1))
    assert decode(encode([np.int64(3), np.float32(0.5), np.bool_(True)])) == [3, 0.5, True]


def test_arrays_are_aligned_views_of_the_frame_and_large_ones_are_not_copied() -> None:
    frame = encode({"odd": b"xyz", "array": np.arange(10.0)})
    got = decode(frame)["array"]
    assert (got.flags.writeable, got.flags.owndata) == (False, False)
    assert got.ctypes.data % 8 == np.frombuffer(frame, np.uint8).ctypes.data % 8
    array = np.zeros(1 << 16)
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in codec.encode_parts([array]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">i4", "<f8", "?"])
@pytest.mark.parametrize("count", [3, 2000])
def test_arrays_that_lie_otherwise_in_memory(order: Any, dtype: str, count: int) -> None:
    array = np.asarray(np.arange(4 * count).reshape(4, count) % 2, dtype=dtype, order=order)
    for part in (array, array[::2], array[:, 1::2].T):
        for value in (["block", {"words": part}], [part]):
            assert encode(value) == plainly(value)
        got = decode(encode(["block", {"words": part}]))[1]["words"]
        assert np.array_equal(got, part)
        assert (got.flags.writeable, got.dtype) == (False, np.dtype(dtype.replace(">", "<")))


def test_few_heads_are_remembered_and_what_is_too_large_is_refused_by_its_size() -> None:
    for size in range(2000):
        decode(encode(["x", {"words": np.zeros(size, np.uint8)}]))
    assert len(codec._HEADS) <= 256
    array = np.broadcast_to(np.zeros(1), MAX_FRAME // 8 + 1)
    refused(ProtocolError, "MS120", encode, ["x", {"words": array}])
    refused(ProtocolError, "MS061", codec._encode_array, "x", "words", np.empty(MAX_FRAME, np.uint8))
    head = len(codec.encode(["kind", {"a": np.empty(0, dtype=np.uint8)}]))
    for beyond in (1, 8):
        array = np.empty(MAX_FRAME - head + beyond, dtype=np.uint8)  # memory that nobody touches
        refused(ProtocolError, "MS061", codec.encode_parts, ["kind", {"a": array}])


# --- messages in bundles


packets = st.binary(max_size=40).map(lambda body: envelope.envelope_prefix("bank", "shop") + body)


@given(st.lists(packets, min_size=1, max_size=6), st.data())
def test_a_bundle_holds_its_messages_and_damage_raises_protocol_errors_only(
    messages: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(envelope.bundle(messages))
    assert list(envelope.unbundle(bytes(whole))) == messages
    whole[data.draw(st.integers(1, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(ProtocolError):
        for message in envelope.unbundle(bytes(whole[: data.draw(st.integers(0, len(whole)))])):
            envelope.read_names(message)


MEANINGLESS = {
    "nothing": b"",
    "nothing in a bundle": b"B\0\0\0\0",
    "a bundle in a bundle": envelope.bundle([envelope.bundle([b"P"] * 2)] * 2),
    "a cut bundle": b"B\x05",
    "an envelope without names": b"P",
    "a cut roster": b"H\x02a",
    "an unknown kind": b"Z",
    "a second roster": envelope.pack_roster(envelope.ROSTER, {"shop": 1}),
    "own words": envelope.envelope_prefix("bank", "bank") + b"word",
    "words for somebody else": envelope.envelope_prefix("shop", "coordinator") + b"word",
}


@pytest.mark.parametrize("message", MEANINGLESS.values(), ids=MEANINGLESS)
def test_what_the_hub_cannot_mean_is_refused_in_its_name(message: bytes) -> None:
    carrier = _HubCarrier("127.0.0.1:1", people().bank, people().hub, 1.0, WireLimits())
    receiver = Mock(spec=ReliableTransport)
    assert carrier._listen(receiver, SimpleNamespace(roster={}, messages=iter([message]))) is None
    ((error,), _) = receiver.carrier_failed.call_args
    assert isinstance(error, ProtocolError)
    assert str(error).startswith("the hub of coordinator sent something that has no meaning: ")
    receiver.packet.assert_not_called()
    if message[:1] != bytes((envelope.ROSTER,)):
        refused(ProtocolError, (), envelope.read_first_roster, message)


def _dialled(messages: list[bytes]) -> list[bytes]:
    waiting: SimpleQueue[bytes | None] = SimpleQueue()
    for message in [*messages, None]:
        waiting.put(message)
    bundles = list(_bundle_waiting(waiting))
    assert waiting.empty()
    return bundles


def _written_by_the_hub(messages: list[bytes]) -> list[bytes]:
    async def drain() -> list[bytes]:
        connection = SessionConnection("shop", 1)
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


# --- a packet's head stands before its sealed bytes, whatever else TLS or another thread has to say


HEAD = b"a head that is not sealed"


@pytest.fixture
def sessions(people: Any) -> tuple[TlsSession, TlsSession]:
    here, there = (
        TlsSession(people.bank, people.shop.certificate),
        TlsSession(people.shop, people.bank.certificate),
    )
    while not (here.ready and there.ready):
        for one, other in ((here, there), (there, here)):
            one.advance()
            other.feed(memoryview(one.drain()))
    return here, there


def unsealed(session: TlsSession, packet: bytes, size: int) -> bytes:
    """What is behind the head of a packet."""
    assert packet.startswith(HEAD)
    target = bytearray(size)
    session.feed(memoryview(packet[len(HEAD) :]))
    assert session.unseal(memoryview(target)) == size
    return bytes(target)


def test_a_head_is_followed_by_the_sealed_bytes(sessions: tuple[TlsSession, TlsSession]) -> None:
    here, there = sessions
    for size in (1, 1 << 14, (1 << 14) + 1, 300_000):
        said = np.random.default_rng(size).bytes(size)
        for _ in range(2):
            assert unsealed(there, here.seal([said[:1], memoryview(said)[1:]], HEAD), size) == said
        assert here.drain() == b""
    here._tls.write(b"first ")  # as an answer of TLS itself would wait there
    assert unsealed(there, here.seal([b"second"], HEAD), 12) == b"first second"
    here.feed(memoryview(bytes(100)))
    refused(ProtocolError, (), here.unseal, memoryview(bytearray(10)))
    refused(ProtocolError, (), here.seal, [b"word"], HEAD)
    alert = here.drain()
    assert alert
    assert HEAD not in alert, "a session that failed keeps no head"


def test_a_piece_that_another_overtook_gets_the_next_number(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, shop = join(hub, "bank"), join(hub, "shop")
    says(bank, shop)
    post, heads = bank._post, list[PacketHead]()
    head = post.head

    def overtaken(name: str) -> PacketHead:
        heads.append(head(name))
        post.dispatch(name, b"")
        return heads[-1]

    monkeypatch.setattr(post, "head", overtaken)
    words: Any = np.random.default_rng(0).integers(0, 2**32, 1_000_000, dtype=np.uint32)
    for _ in range(2):
        bank.channel("shop").send("words", words=words)
        assert np.array_equal(shop.channel("bank").recv("words")["words"], words)
    assert len(heads) >= 2
    says(shop, bank)
    closed(bank, shop)
