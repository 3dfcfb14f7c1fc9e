from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.wire import envelope
from colonnade.wire.dial import _bundles

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
    with pytest.raises(ProtocolError, match="malformed"):
        list(envelope.unbundle(whole[:-cut]))


@given(st.lists(st.integers(1, envelope.FULL_BUNDLE), max_size=12))
def test_what_waits_leaves_in_order_and_in_bundles_that_are_not_too_large(sizes: list[int]) -> None:
    waiting: SimpleQueue[bytes | None] = SimpleQueue()
    messages = [b"P" * size for size in sizes]
    for message in [*messages, None]:
        waiting.put(message)
    bundles = list(_bundles(waiting))
    assert [one for bundle in bundles for one in envelope.unbundle(bundle)] == messages
    assert all(len(bundle) < 3 * envelope.FULL_BUNDLE for bundle in bundles)
    assert waiting.empty()
