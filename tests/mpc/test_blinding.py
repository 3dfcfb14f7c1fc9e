from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from colonnade.errors import ProtocolError
from colonnade.mpc.blinding import FIELD, ORDER, POINT_BYTES, Blind, Blinds, _for_x25519, hashed
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


def on_curve(u: int) -> bool:
    """Whether there is a point of the curve with this coordinate, and not one of its twist."""
    return pow(u**3 + 486662 * u**2 + u, (FIELD - 1) // 2, FIELD) in (0, 1)


def vanishes(u: int, scalar: int) -> bool:
    """Whether this multiple of a point is the neutral element: Montgomery's ladder (RFC 7748), in the clear."""
    x, z, x_next, z_next = 1, 0, u, 1
    for place in reversed(range(scalar.bit_length())):
        bit = scalar >> place & 1
        if bit:
            x, z, x_next, z_next = x_next, z_next, x, z
        sums, differences = (x + z) % FIELD, (x - z) % FIELD
        crossed, other = sums * (x_next - z_next) % FIELD, differences * (x_next + z_next) % FIELD
        x_next, z_next = (crossed + other) ** 2 % FIELD, u * (crossed - other) ** 2 % FIELD
        e = sums**2 - differences**2
        x, z = sums**2 * differences**2 % FIELD, e * (sums**2 + 121665 * e) % FIELD
        if bit:
            x, z, x_next, z_next = x_next, z_next, x, z
    return z == 0


def test_hashes_are_on_the_curve_and_in_the_subgroup_of_prime_order():
    for point in hashed(KEYS[:20]):
        u = int.from_bytes(point.tobytes(), "little")
        assert on_curve(u)
        assert vanishes(u, ORDER)
        assert not vanishes(u, 8)
    assert not on_curve(2)
    assert not vanishes(9, ORDER - 1)


def test_products_are_those_of_the_standard():
    """RFC 7748, section 5.2; the number is written down as X25519 takes it."""
    scalar = bytes.fromhex("a046e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449a44")
    u = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    product = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    number = int.from_bytes(scalar, "little") % ORDER
    for form in (number, ORDER - number):
        blind = Blind(form.to_bytes(32, "little"))
        assert blind.on(np.frombuffer(u, np.uint8)[None]).tobytes().hex() == product


@given(st.integers(2**129, ORDER - 2**129))
def test_every_scalar_has_a_form_that_the_library_takes_as_it_is(scalar):
    form = int.from_bytes(_for_x25519(scalar.to_bytes(32, "little")), "little")
    assert form % 8 == 0
    assert 2**254 <= form < 2**255
    assert form % ORDER in (scalar, ORDER - scalar)


def test_what_a_peer_adds_of_small_order_is_cleared():
    """1/u belongs to the same point, but for one of order two: neither the product nor the scalar's remainder tells."""
    points = hashed(KEYS[:5])
    turned = [pow(int.from_bytes(point.tobytes(), "little"), -1, FIELD).to_bytes(32, "little") for point in points]
    blind = Blind.fresh(Stream.fresh())
    np.testing.assert_array_equal(blind.on(np.frombuffer(b"".join(turned), np.uint8).reshape(5, 32)), blind.on(points))


EIGHTH = 325606250916557431795983626356110631294008115727848805560023387167927233504
OTHER_EIGHTH = 39382357235489614581723060781553021112529911719440698176882885853963445705823


@pytest.mark.parametrize(
    "bad", [0, 1, FIELD - 1, EIGHTH, OTHER_EIGHTH, FIELD, FIELD + 1, FIELD + 9, 2**255 + 9, 2**256 - 1]
)
def test_what_is_no_element_of_the_group_is_refused(bad):
    """Points of small order, which would make all tags equal, and numbers that stand for smaller ones."""
    points = np.vstack([hashed(KEYS[:3]), np.frombuffer(bad.to_bytes(32, "little"), np.uint8)[None]])
    with raises(ProtocolError, "MS001", "bank"):
        Blind.fresh(Stream.fresh()).on(points, "bank")
