from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from colonnade.errors import ProtocolError
from colonnade.mpc.blinding import POINT_BYTES, Blind, Blinds, hashed
from colonnade.randomness import Stream
from tests.support.errors import raises

KEYS = [f"person {n}".encode() for n in range(300)]


def test_blinds_commute_and_come_off():
    points = hashed(KEYS)
    a, b, c = Blinds.fresh(len(points), Stream.fresh()), Blind.fresh(Stream.fresh()), Blind.fresh(Stream.fresh())
    both = b.on(a.on(points))
    np.testing.assert_array_equal(both, a.on(b.on(points)))
    np.testing.assert_array_equal(a.inverse().on(both), b.on(points))
    np.testing.assert_array_equal(a.inverse().times(c).on(both), c.on(b.on(points)))
    assert Blinds([]).inverse().on(points[:0]).shape == (0, POINT_BYTES)
    assert not (a.on(points) == points).all(axis=1).any()


def test_every_point_has_a_blind_of_its_own():
    same = np.repeat(hashed(KEYS[:1]), 50, axis=0)
    assert len(np.unique(Blinds.fresh(50, Stream.fresh()).on(same), axis=0)) == 50


def test_hashing_is_a_function_of_the_key_alone_and_separates_keys():
    points = hashed(KEYS)
    np.testing.assert_array_equal(hashed(KEYS[::-1])[::-1], points)
    assert len({point.tobytes() for point in points}) == len(KEYS)
    assert points.shape == (len(KEYS), POINT_BYTES)


def test_hashing_uses_the_one_way_map_of_the_standard():
    """RFC 9496, appendix A.3: the 64 bytes are the SHA-512 of these words."""
    import hashlib

    import rbcl

    words = b"Ristretto is traditionally a short shot of espresso coffee"
    expected = "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"
    assert rbcl.crypto_core_ristretto255_from_hash(hashlib.sha512(words).digest()).hex() == expected


def test_no_keys_are_no_points():
    assert hashed([]).shape == (0, POINT_BYTES)
    assert Blind.fresh(Stream.fresh()).on(hashed([])).shape == (0, POINT_BYTES)


@pytest.mark.parametrize("bad", [bytes(POINT_BYTES), b"\xff" * POINT_BYTES, b"\x01" + bytes(POINT_BYTES - 1)])
def test_what_is_no_element_of_the_group_is_refused(bad):
    """Zero bytes are the neutral element, which would make all tags equal; the others are no encodings at all."""
    points = np.vstack([hashed(KEYS[:3]), np.frombuffer(bad, np.uint8)[None]])
    with raises(ProtocolError, "MS001", "bank"):
        Blind.fresh(Stream.fresh()).on(points, "bank")


def test_a_secret_is_not_shown():
    assert repr(Blind.fresh(Stream.fresh())) == "Blind(...)"
    assert repr(Blinds.fresh(3, Stream.fresh())) == "Blinds(...)"


def test_the_library_is_loaded_only_when_it_is_needed():
    code = "import colonnade, sys; print('rbcl' in sys.modules, 'clkhash' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False False"


def test_nothing_is_left_among_temporary_files(tmp_path):
    """rbcl unpacks libsodium into a temporary file when it is imported, and leaves it there."""
    program = "from colonnade.mpc.blinding import hashed; print(hashed([b'one']).tobytes().hex())"
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1] == hashed([b"one"]).tobytes().hex() + "\n"
    assert list(tmp_path.iterdir()) == []
