"""Pictures: what the packages hold, line by line, and how it is cut between two parties."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import DatasetError
from research.datasets import load_halves, picture_files
from tests.support.errors import raises


def _png(pixels: np.ndarray, kinds: list[int]) -> bytes:
    """A PNG whose lines are filtered as asked; the filters are those of the format's specification."""
    height, width, _ = pixels.shape
    lines = pixels.reshape(height, -1).astype(int)
    coded = b""
    for row, kind in enumerate(kinds):
        line, above = lines[row], lines[row - 1] if row else np.zeros_like(lines[0])
        left, corner = (np.concatenate([np.zeros(3, int), other[:-3]]) for other in (line, above))
        ends = np.stack([left, above, corner])
        nearest = np.abs(left + above - corner - ends).argmin(axis=0)
        guess = [0 * line, left, above, (left + above) // 2, np.take_along_axis(ends, nearest[None], 0)[0]][kind]
        coded += bytes([kind]) + ((line - guess) % 256).astype(np.uint8).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(coded)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def test_every_filter_of_a_png_is_undone() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (10, 7, 3)).astype(np.uint8)
    data = _png(pixels, [4, 1, 2, 3, 4, 0, 4, 3, 1, 2])
    assert np.array_equal(picture_files.png(data, 10), pixels)
    assert np.array_equal(picture_files.png(data, 4), pixels[:4])
    with raises(ValueError, "VA274"):
        picture_files.png(data, 11)


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return path


def test_pictures_come_out_of_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits, labels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([7, 1], dtype=np.uint8)
    idx = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + digits.tobytes(), b"\0\0\x08\x01\0\0\0\x02\x07\x01"
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = {f"data/{name}": body for name, body in zip(names, idx * 2, strict=True)}
    found = picture_files.mnist([_archive(tmp_path / "m.tgz", files)])
    for part in ("train", "test"):
        assert np.array_equal(found[f"x_{part}"], digits)
        assert np.array_equal(found[f"y_{part}"], labels)
    monkeypatch.setattr(picture_files, "_CIFAR_TRAIN", 2)
    monkeypatch.setattr(picture_files, "_CIFAR_TEST", 1)
    pixels = np.random.default_rng(2).integers(0, 256, (3, 1024, 3)).astype(np.uint8)
    png, told = _png(pixels, [0, 4, 3]), json.dumps([3, 8, 5]).encode()
    files = {"data_batch_1.png": png, "test_batch.png": png, "train_lables.json": told, "test_lables.json": told}
    colours = picture_files.cifar([_archive(tmp_path / "c.tgz", files)])
    assert np.array_equal(colours["x_train"], pixels[:2].reshape(2, 32, 32, 3))
    assert colours["y_train"].tolist() == [3, 8]
    assert colours["x_test"].shape == (1, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "parties", "shape"),
    [("mnist", ["left", "right"], (28, 14)), ("cifar-10", ["upper", "lower"], (16, 32, 3))],
)
def test_two_parties_hold_a_half_each(name: str, parties: list[str], shape: tuple[int, ...], data_dir: Path) -> None:
    train, test = load_halves(name, folder=data_dir, rows=300)
    assert list(train.parts) == parties
    for halves in (train, test):
        assert all(halves.shapes[party] == shape for party in parties)
        assert all(part.shape == (300, np.prod(shape)) for part in halves.parts.values())
        assert sorted(set(halves.labels.tolist())) == list(range(10))
    assert max(part.max() for part in train.parts.values()) == 1
    few = train.take(slice(5, 9))
    assert np.array_equal(few.parts[parties[1]], train.parts[parties[1]][5:9])
    with raises(DatasetError, "DS014", "mnist", "cifar-10"):
        load_halves("nus-wide", folder=data_dir)
