"""A stream is one sequence of bytes, however it is read."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from colonnade.randomness import Stream
from tests.support.errors import refused


def test_bytes_written_into_an_array_are_the_next_ones(stream: Stream) -> None:
    key = stream.bytes(32)
    whole, parts, read = Stream(key).bytes(3_000_000), Stream(key), 0
    for count in (1, 6, 8192, 8193, 5, 16_384, 40_000, 3, 1_200_000, 0, 7):
        for kind in ("<u2", "<i8"):
            out = np.empty(count // np.dtype(kind).itemsize, kind)
            parts.into(out)
            assert out.tobytes() == whole[read : read + out.nbytes]
            read += out.nbytes
        assert parts.bytes(5) == whole[read : read + 5]
        read += 5

    for count in (1, 7, 1000, 2048, 2049, 5000):  # small reads from the beginning
        small = Stream(key)
        assert b"".join(small.bytes(count) for _ in range(40)) == Stream(key).bytes(40 * count)
    with pytest.raises(ValueError, match="contiguous"):
        stream.into(np.empty(10, "<u2")[::2])


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_stream_is_neither_copied_nor_sent(stream: Stream, taken: Callable[[object], object]) -> None:
    before = stream.bytes(8)
    refused(TypeError, "VA156", taken, stream)
    assert stream.bytes(8) != before
