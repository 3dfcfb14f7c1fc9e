from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from colonnade.errors import ProtocolError
from colonnade.wire import codec
from colonnade.wire.codec import decode, encode
from colonnade.wire.values import MAGIC, MAX_DEPTH, MAX_FRAME, MAX_VALUES, Reader, Writer
from tests.support.refusals import refused

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 2047), (1 << 2047) - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=40)
)
values = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


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


@given(values)
def test_round_trip(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(values)
def test_a_frame_has_one_form(value: Any) -> None:
    frame = encode(value)
    assert encode(decode(frame)) == frame


@given(st.binary(max_size=200))
def test_garbage_raises_protocol_errors_only(data: bytes) -> None:
    for frame in (data, MAGIC + data):
        with suppress(ProtocolError):
            decode(frame)


@settings(max_examples=300)
@given(values, st.data())
def test_mutated_frames_raise_protocol_errors_only(value: Any, data: st.DataObject) -> None:
    frame = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    start = data.draw(st.integers(0, len(frame)))
    del frame[start : start + data.draw(st.integers(0, 4))]
    with suppress(ProtocolError):
        decode(bytes(frame))


@given(values)
def test_every_cut_and_every_tail_is_refused(value: Any) -> None:
    frame = encode(value)
    for end in range(len(frame)):
        refused(ProtocolError, (), decode, frame[:end])
    refused(ProtocolError, "MS106", decode, frame + b"\0")


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "a"},
        {1, 2},
        object(),
        1 + 2j,
        1 << 2048,
        "\ud800",
        np.array(["text"]),
        np.array([object()]),
        np.array([1 + 2j]),
        np.zeros(2, "f2"),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.ma.masked_array([1, 2], mask=[True, False]),
        np.zeros((1,) * 9),
        np.zeros((0, 1 << 40)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_message_cannot_carry(value: Any) -> None:
    refused(ProtocolError, (), encode, value)


def test_depth_and_count_are_bounded() -> None:
    nested: Any = None
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert decode(encode(nested)) == nested
    refused(ProtocolError, "MS097", encode, [nested])
    refused(ProtocolError, "MS107", decode, MAGIC + b"L\1\0\0\0" * 500 + b"N")
    refused(ProtocolError, (), encode, [None] * (MAX_VALUES + 1))


@pytest.mark.parametrize(
    "body",
    [
        b"L\xff\xff\xff\xff",
        b"M\xff\xff\xff\xff",
        b"B\xff\xff\xff\xff",
        b"S\xff\xff\xff\xffabc",
        b"A\x08\x01" + b"\xff" * 8,
        b"A\x08\x02" + bytes(8) + b"\xff" * 8,
        b"A\x00\x01\x01" + bytes(7) + bytes(3) + b"\x02",
        b"A\x63\x00",
        b"A\x00\x09",
        b"I\x02\x00\x01\x00",
        b"I\x00\x00",
        b"M\x02\0\0\0\x01\0aN\x01\0aN",
        b"S\x01\0\0\0\xff",
        b"?",
        b"",
    ],
)
def test_frames_that_lie(body: bytes) -> None:
    refused(ProtocolError, (), decode, MAGIC + body)


def test_big_endian_and_strided_arrays_arrive_plain() -> None:
    array = np.arange(24, dtype=">f8").reshape(4, 6)[::2, ::3]
    got = decode(encode(array))
    assert got.dtype == np.dtype("<f8")
    assert np.array_equal(got, array)


def test_arrays_are_views_of_the_frame_and_aligned() -> None:
    frame = encode({"odd": b"xyz", "array": np.arange(10.0)})
    got = decode(frame)["array"]
    assert not got.flags.writeable
    assert not got.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1
    assert got.ctypes.data % 8 == np.frombuffer(frame, np.uint8).ctypes.data % 8


def test_large_arrays_are_not_copied_by_the_encoder() -> None:
    array = np.zeros(1 << 16)
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in codec.encode_parts([array]))


def test_numpy_scalars_become_plain_numbers() -> None:
    assert decode(encode([np.int64(3), np.float32(0.5), np.bool_(True)])) == [3, 0.5, True]


messages = st.tuples(st.text(max_size=12), st.dictionaries(st.text(max_size=8), arrays, min_size=1, max_size=2)).map(
    list
)


def plainly(value: Any) -> bytes:
    """The frame without the shorter way that messages with one array take."""
    writer = Writer()
    writer.value(value, 0)
    return b"".join(writer.finish())


def read_plainly(frame: bytes) -> Any:
    reader = Reader(memoryview(frame))
    value = reader.value(0)
    reader.expect_end()
    return value


@given(messages)
def test_messages_with_one_array_have_the_same_form(value: Any) -> None:
    frame = encode(value)
    assert frame == plainly(value)
    for _ in range(2):  # the second time its head is known
        assert same(decode(frame), value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">i4", "<f8", "?"])
@pytest.mark.parametrize("count", [3, 2000])
def test_arrays_that_lie_otherwise_in_memory(order: Any, dtype: str, count: int) -> None:
    array = np.asarray(np.arange(4 * count).reshape(4, count) % 2, dtype=dtype, order=order)
    for part in (array, array[::2], array[:, 1::2].T):
        value = ["block", {"words": part}]
        assert encode(value) == plainly(value)
        got = decode(encode(value))[1]["words"]
        assert np.array_equal(got, part)
        assert not got.flags.writeable


@settings(max_examples=300)
@given(messages, st.data())
def test_a_known_head_is_trusted_no_further_than_it_goes(value: Any, data: st.DataObject) -> None:
    frame = bytearray(encode(value))
    decode(bytes(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    start = data.draw(st.integers(0, len(frame)))
    del frame[start : start + data.draw(st.integers(0, 9))]
    damaged = bytes(frame) + data.draw(st.binary(max_size=2))
    found = []
    for read in (decode, read_plainly, decode):
        try:
            found.append(read(damaged))
        except ProtocolError as error:
            found.append(str(error))
    assert same(found[0], found[1])
    assert same(found[1], found[2])


def test_few_heads_are_remembered() -> None:
    for size in range(2000):
        decode(encode(["x", {"words": np.zeros(size, np.uint8)}]))
    assert len(codec._HEADS) <= 256


def test_a_message_that_is_too_large_is_refused_by_its_size() -> None:
    array = np.broadcast_to(np.zeros(1), MAX_FRAME // 8 + 1)
    refused(ProtocolError, "MS120", encode, ["x", {"words": array}])
    refused(ProtocolError, "MS061", codec._one_array, "x", "words", np.empty(MAX_FRAME, np.uint8))


def test_a_single_array_is_passed_on_as_a_frame_would_carry_it() -> None:
    for dtype in ("<i4", "<u4", "<u8", "<f8", "<i1"):
        for shape in ((0,), (3,), (2, 5), (2, 0, 4)):
            array = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
            single = codec.single("opening", {"words": array})
            frame = codec.encode(["opening", {"words": array}])
            assert single.size == len(frame)
            kind, fields = codec.decode(frame)
            assert (single.kind, single.name, kind) == ("opening", "words", "opening")
            found = fields["words"]
            assert (single.array.dtype, single.array.shape) == (found.dtype, found.shape)
            assert np.array_equal(single.array, found)
            assert not single.array.flags.writeable
            assert not np.shares_memory(single.array, array)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"a": 1},
        {"a": [np.arange(3)]},
        {"a": np.array([True])},
        {"a": np.array(["x"], dtype=object)},
        {"a": np.arange(6).reshape(2, 3).T},
        {"a": np.arange(3), "b": np.arange(3)},
        {"a": np.arange(3, dtype=">i4")},
    ],
)
def test_all_other_messages_go_through_a_frame(fields: dict[str, Any]) -> None:
    assert codec.single("kind", fields) is None


def test_an_array_that_no_frame_holds_is_refused_between_threads_too() -> None:
    head = len(codec.encode(["kind", {"a": np.empty(0, dtype=np.uint8)}]))
    for beyond in (1, 8):
        array = np.empty(MAX_FRAME - head + beyond, dtype=np.uint8)  # memory that nobody touches
        assert codec.single("kind", {"a": array}) is None
        refused(ProtocolError, "MS061", codec.encode_parts, ["kind", {"a": array}])
    assert codec._size_of("kind", "a", np.dtype(np.uint8), (MAX_FRAME - head,)) == MAX_FRAME


def test_the_size_of_a_message_is_not_taken_from_another_one() -> None:
    arrays: list[Any] = [
        np.zeros(4, dtype) for dtype in ("<i8", ">i8", "<f8", "<i4", "?", "<u8", "<M8[s]", "O", "S8", "V8", "<c16")
    ]
    for _ in range(2):  # the second time from memory
        for array in (*arrays, *(one.reshape(2, 2) for one in arrays), np.zeros(())):
            single = codec.single("kind", {"a": array})
            if single is not None:
                assert array.dtype in codec.DTYPE_CODES
                assert single.size == len(codec.encode(["kind", {"a": array}]))
            else:
                assert codec.DTYPE_CODES.get(array.dtype, 0) == 0
