"""What lists are matched by: blinded points, tables of keys and values, and a keyed function by transfers."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import EngineError, ProtocolError
from colonnade.mpc import key_value_store, oblivious
from colonnade.mpc.blinding import (
    FIELD,
    ORDER,
    POINT_BYTES,
    BlindingScalar,
    BlindingScalars,
    _for_x25519,
    hash_to_group,
    sodium,
)
from colonnade.mpc.key_value_store import KeyValueStore, build_store, cell_count, to_columns, to_rows
from colonnade.mpc.oblivious import (
    CODE_BITS,
    MESSAGE_BITS,
    MIN_DISTANCE,
    ROW_WORDS,
    PrfKeyHolder,
    PrfQuerier,
    QueryList,
    TransferReceiver,
    TransferSender,
    _field_product,
    golay_word,
    linear_code,
    new_secret,
    piece_sizes,
    unpack_secret,
)
from colonnade.randomness import Stream
from tests.support.errors import raises, refused

ALL = oblivious._ALL


CONTEXT = oblivious.run_context(b"a study", "bank", "shop")


def bits(words):
    return np.unpackbits(np.ascontiguousarray(words, dtype="<u8").view(np.uint8), axis=-1, bitorder="little")


# --- the code


def test_two_words_of_the_inner_code_differ_in_eight_bits_or_more():
    words = [golay_word(symbol) for symbol in range(4096)]
    assert min(word.bit_count() for word in words[1:]) == 8
    assert all(golay_word(a ^ b) == words[a] ^ words[b] for a, b in zip(range(4096), range(4095, -1, -1), strict=True))


def test_the_outer_code_is_a_polynomial_at_different_points(stream):
    """A word of the code is zero at no more than ten of the 26 points, so at least 16 times 8 bits of it are set.

    The polynomial that is zero at nine of them is as bad as it gets: with ten, it would not fit into the 128 bits.
    """
    messages, points, polynomial = stream.uint64((300, 2)), [1], [1]
    for _ in range(25):
        points.append(_field_product(points[-1], 2))
    assert len(set(points)) == 26
    for root in points[:9]:
        shifted, scaled = [0, *polynomial], [*(_field_product(each, root) for each in polynomial), 0]
        polynomial = [a ^ b for a, b in zip(shifted, scaled, strict=True)]
    number = sum(coefficient << 12 * degree for degree, coefficient in enumerate(polynomial))
    messages[-1] = number & (1 << 64) - 1, number >> 64
    messages[:MESSAGE_BITS] = 0
    for place in range(MESSAGE_BITS):
        messages[place, place // 64] = np.uint64(1) << np.uint64(place % 64)
    words = bits(linear_code(ALL)(messages))
    assert not words[:, CODE_BITS:].any()
    symbols = words[:, :CODE_BITS].reshape(len(messages), -1, 24)
    assert (symbols.any(axis=2).sum(axis=1) >= 16).all()
    assert (~symbols[-1].any(axis=1)).tolist() == [True] * 9 + [False] * 17
    assert words.sum(axis=1).min() >= MIN_DISTANCE == 16 * 8
    # The first point is one, where the value is the sum of all coefficients.
    coefficients = np.pad(bits(messages), ((0, 0), (0, 4))).reshape(len(messages), 11, 12)
    sums = (coefficients.sum(axis=1) % 2) @ (1 << np.arange(12))
    assert [golay_word(int(value)) for value in sums] == (symbols[:, 0] @ (1 << np.arange(24))).tolist()


def test_the_code_is_linear_and_a_mask_keeps_some_of_its_bits(stream):
    one, other = stream.uint64((2, 50, 2))
    coder, mask = linear_code(ALL), stream.uint64(ROW_WORDS) & ALL
    np.testing.assert_array_equal(coder(one ^ other), coder(one) ^ coder(other))
    np.testing.assert_array_equal(linear_code(mask)(one), coder(one) & mask)


@pytest.mark.parametrize(("rows", "wide"), [(64, 1), (640, 10), (64 * 300, 2)])
def test_a_matrix_that_is_turned_twice_is_itself_and_columns_that_are_missing_are_zero(stream, rows, wide):
    matrix = stream.uint64((rows, wide))
    columns = to_columns(matrix)
    np.testing.assert_array_equal(bits(columns), bits(matrix).T)
    np.testing.assert_array_equal(to_rows(columns, wide), matrix)
    assert not bits(to_rows(columns, wide + 1))[:, 64 * wide :].any()


# --- transfers of keys


def test_the_chosen_key_arrives_and_no_other():
    chosen = [0, 1, 1, 0, 1]
    choice, offer = TransferReceiver(CONTEXT, chosen, Stream.fresh()), TransferSender(CONTEXT, Stream.fresh())
    pairs, keys = offer.keys(choice.points, "bank"), choice.keys(offer.point, "shop")
    assert keys == [pair[bit] for pair, bit in zip(pairs, chosen, strict=True)]
    assert not set(keys) & {pair[1 - bit] for pair, bit in zip(pairs, chosen, strict=True)}
    assert len({key for pair in pairs for key in pair}) == 10


def test_points_do_not_show_the_choice():
    """Both points of a choice are as good as uniform: neither comes again, and none is a point of the other's."""
    zeros, ones = (TransferReceiver(CONTEXT, [bit] * 40, Stream.fresh()).points.reshape(-1, 32) for bit in (0, 1))
    every = np.vstack([zeros, ones])
    assert len(np.unique(every, axis=0)) == 160
    octets = np.bincount(every[:, :31].ravel(), minlength=256)
    assert octets.max() < 19.4 + 8 * math.sqrt(19.4)


def turned(point: bytes) -> bytes:
    """The point and the one of order two together: on the curve, but not in the subgroup of prime order."""
    y = int.from_bytes(point, "little") & (2**255 - 1)
    return (FIELD - y | ((point[31] ^ 0x80) >> 7) << 255).to_bytes(32, "little")


def test_what_is_no_element_of_the_subgroup_is_refused():
    """Points of small order, no points, numbers that stand for smaller ones, and elements beside the subgroup."""
    choice, offer = TransferReceiver(CONTEXT, [0, 1], Stream.fresh()), TransferSender(CONTEXT, Stream.fresh())
    numbers = (0, 1, FIELD - 1, FIELD, FIELD + 1, 2, 2**256 - 1)
    for bad in (*(number.to_bytes(32, "little") for number in numbers), turned(offer.point)):
        refused(ProtocolError, "MS005", "shop", choice.keys, bad, "shop")
        for place in range(2):
            points = choice.points.copy()
            points[1, place] = np.frombuffer(bad, np.uint8)
            refused(ProtocolError, "MS004", "bank", offer.keys, points, "bank")
    assert turned(turned(offer.point)) == offer.point


def test_keys_differ_even_where_both_elements_of_a_pair_give_the_same_one(monkeypatch):
    """If both sums of a pair were one element, the two keys would still be two."""
    one = sodium().crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
    monkeypatch.setattr(oblivious, "_hash_to_point", lambda *_: one)
    twice = np.frombuffer(one + one, np.uint8).reshape(1, 2, 32)
    first, second = TransferSender(CONTEXT, Stream.fresh()).keys(twice, "bank")[0]
    assert first != second


def test_an_element_that_cancels_the_hash_is_refused():
    """The only pair whose product is the neutral element: its key would be known to everybody."""
    other = sodium().crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
    neutral = (1).to_bytes(32, "little")
    known = sodium().crypto_core_ed25519_sub(neutral, oblivious._hash_to_point(CONTEXT, 0, 0, other))
    pair = np.frombuffer(known + other, np.uint8).reshape(1, 2, 32)
    with raises(ProtocolError, "MS004", "bank"):
        TransferSender(CONTEXT, Stream.fresh()).keys(pair, "bank")


@pytest.mark.parametrize(
    ("run", "asker", "holder"),
    [
        (b"another", "bank", "shop"),
        (b"a study", "shop", "bank"),
        (b"a study", "bank", "inn"),
        (b"a", " studybank", "shop"),
    ],
)
def test_two_contexts_have_no_key_and_no_value_in_common(run, asker, holder):
    """Whoever passes messages on between two runs gets keys and values that belong to neither."""
    other = oblivious.run_context(run, asker, holder)
    assert len(other) == 32
    choice, offer = TransferReceiver(other, [0, 1], Stream.fresh()), TransferSender(CONTEXT, Stream.fresh())
    pairs, keys = offer.keys(choice.points, "bank"), choice.keys(offer.point, "shop")
    assert not set(keys) & {key for pair in pairs for key in pair}
    hashes, rows = oblivious.hash_keys(people(1, 2), bytes(32)), np.zeros((2, ROW_WORDS), dtype=np.uint64)
    values = [oblivious._prf_values(context, hashes, rows) for context in (CONTEXT, other)]
    assert (values[0] != values[1]).all()
    np.testing.assert_array_equal(values[0], oblivious._prf_values(CONTEXT, hashes, rows))


# --- the function


class Transferred:
    """Keys of transfers as if they had been transferred."""

    def __init__(self):
        self.secret = new_secret(Stream.fresh())
        drawn = Stream.fresh()
        self.pairs = [(drawn.bytes(32), drawn.bytes(32)) for _ in range(CODE_BITS)]
        self.keys = [pair[bit] for pair, bit in zip(self.pairs, unpack_secret(self.secret).tolist(), strict=True)]

    def sides(self, keys):
        """Both sides, the list, and what the asker sends of it."""
        listed = QueryList(keys, Stream.fresh())
        asker = PrfQuerier(listed, self.pairs, CONTEXT, Stream.fresh())
        sent = [asker.mask_piece(piece) for piece in listed.coded_pieces()] + [asker.mask_last_piece()]
        assert [piece.shape for piece in sent] == [(CODE_BITS, count) for count in piece_sizes(len(keys))]
        return asker, PrfKeyHolder(len(keys), self.secret, self.keys, listed.salt, listed.seed, CONTEXT), listed, sent

    def run(self, keys):
        asker, holder, listed, sent = self.sides(keys)
        for piece in sent:
            holder.receive_piece(piece)
        return asker, holder, listed


def people(*numbers):
    return [f"person {number}".encode() for number in numbers]


def challenge():
    return Stream.fresh().bytes(oblivious.CHALLENGES * oblivious.CHALLENGE_BYTES)


def valued(values):
    return [value.tobytes() for piece in values for value in piece]


@pytest.mark.parametrize(("size", "piece"), [(0, None), (1, None), (5, None), (700, None), (300, 3)])
def test_both_sides_find_the_same_values_at_keys_of_the_list_and_nowhere_else(monkeypatch, size, piece):
    """Pieces do not matter."""
    if piece is not None:
        monkeypatch.setattr(oblivious, "PIECE", piece)
        monkeypatch.setattr(oblivious, "_KEYS_AT_ONCE", 7)
        assert len(piece_sizes(size)) == 4
    asker, holder, _ = Transferred().run(people(*range(size)))
    asked = challenge()
    holder.check(asked, *asker.sums(asked), "bank")
    secrets = (
        asker,
        holder,
        QueryList([], Stream.fresh()),
        BlindingScalar.generate(Stream.fresh()),
        BlindingScalars.generate(3, Stream.fresh()),
    )
    assert all(repr(one) == object.__repr__(one) for one in secrets)  # which shows nothing that they hold
    ours, theirs = valued(asker.values()), valued(holder.values(people(*range(size + 50))))
    assert ours == theirs[:size]
    assert len(set(theirs)) == size + 50


def test_an_asker_that_guesses_keys_does_not_find_values_even_with_its_own_rows():
    """At a key that is not on its list, the asker's own rows give another value than the holder's."""
    asker, holder, listed = Transferred().run(people(*range(200)))
    others = people(*range(1000, 1400))
    hashes = oblivious.hash_keys(others, listed.salt)
    rows = asker._mask_rows()[: listed.cells]
    found = oblivious.KeyValueLookup(rows, listed.seed)(hashes[:, :2])
    wrong = oblivious._prf_values(CONTEXT, hashes, found)
    # With all of the secret but one column at which a word of the code has a bit, it is still wrong.
    missed = oblivious.KeyValueLookup(listed.rows[: listed.cells], listed.seed)(hashes[:, :2]) ^ hashes[:, 2:]
    weights = bits(linear_code(ALL)(missed)).sum(axis=1)
    assert weights.min() >= MIN_DISTANCE, "at least 128 bits of the secret decide the value"
    theirs = set(valued(holder.values(others)))
    assert not theirs & {value.tobytes() for value in wrong}


@pytest.mark.parametrize(
    ("column", "columns", "hides", "listed"),
    [(1 << 17, 0, 0, 0), (0, 1 << 63, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)],
    ids=["a bit of a column", "a bit of all columns but ten", "what hides", "what is listed"],
)
def test_what_is_no_list_is_refused(column, columns, hides, listed):
    transferred = Transferred()
    asker, holder, _, pieces_sent = transferred.sides(people(*range(100)))
    taken = np.flatnonzero(unpack_secret(transferred.secret))
    sent, asked = np.hstack(pieces_sent), challenge()
    sent[taken[5], 1] ^= np.uint64(column)
    sent[10:, 2] ^= np.uint64(columns)
    holder.receive_piece(sent)
    hiding, sums = asker.sums(asked)
    hiding[3, 7] ^= np.uint64(hides)
    sums[MESSAGE_BITS - 1, 0] ^= np.uint64(listed)
    refused(ProtocolError, "MS006", "bank", holder.check, asked, hiding, sums, "bank")


def test_an_asker_learns_no_bit_of_the_secret_without_risking_to_be_found_out():
    """A row that is off the code by one bit passes exactly if the holder's secret does not take that bit."""
    for place, bit in product(range(3), (0, 1)):
        transferred, asked = Transferred(), challenge()
        asker, holder, _, sent = transferred.sides(people(*range(20)))
        column = np.flatnonzero(unpack_secret(transferred.secret) == bit)[place]
        sent[0][column, 0] ^= np.uint64(2)
        holder.receive_piece(np.hstack(sent))
        told = asked, *asker.sums(asked), "bank"
        if bit:
            refused(ProtocolError, "MS006", holder.check, *told)
        else:
            holder.check(*told)


def test_sums_tell_nothing_about_the_list():
    """Two holders under one challenge: sums have no veil in common."""
    asked, shown = challenge(), []
    listed = QueryList(people(*range(50)), Stream.fresh())
    for _ in range(2):
        asker = PrfQuerier(listed, Transferred().pairs, CONTEXT, Stream.fresh())
        for piece in listed.coded_pieces():
            asker.mask_piece(piece)
        asker.mask_last_piece()
        shown.append(asker.sums(asked)[1])
    difference = bits(shown[0] ^ shown[1])
    assert abs(difference.mean() - 0.5) < 8 * 0.5 / math.sqrt(difference.size)


def test_the_sums_are_polynomials_of_the_standard_field(stream):
    """Against a product in the field of 2^128 elements that is written out, with GCM's order of bits."""

    def times(a, b):
        found = 0
        for place in range(127, -1, -1):
            found ^= a * (b >> place & 1)
            a = a >> 1 ^ (a & 1) * (0xE1 << 120)
        return found

    columns, asked = stream.uint64((3, 5 + oblivious.SUMS)), challenge()
    found = oblivious._sum_columns(columns, asked)
    for index in range(oblivious.CHALLENGES):
        cipher = Cipher(algorithms.AES(asked[16 * index : 16 * index + 16]), modes.CTR(bytes(16))).encryptor()
        point = int.from_bytes(cipher.update(bytes(16)), "big")
        for column, sums in zip(columns, found, strict=True):
            data, value = column[: -oblivious.SUMS].astype("<u8").tobytes(), 0
            for start in range(0, len(data), 16):
                value = times(value ^ int.from_bytes(data[start : start + 16].ljust(16, b"\0"), "big"), point)
            value = times(value, point)  # the block of lengths, which is taken off
            veil = column[-oblivious.SUMS :][2 * index : 2 * index + 2].astype("<u8").tobytes()
            expected = value ^ int.from_bytes(veil, "big")
            assert sums[2 * index : 2 * index + 2].astype("<u8").tobytes() == expected.to_bytes(16, "big")


# --- tables of keys and values


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 3000))
def test_every_key_gets_its_value(count):
    stream = Stream.fresh()
    keys, values = stream.uint64((count, 2)), stream.uint64((count, 2))
    store = build_store(keys, values, stream)
    np.testing.assert_array_equal(store[keys], values)
    assert not (store[stream.uint64((50, 2))] == 0).all(axis=1).any()


def test_keys_that_are_never_alone_in_a_cell_are_solved_for(monkeypatch):
    monkeypatch.setattr(key_value_store, "_SLACK", 1.05)
    monkeypatch.setattr(key_value_store, "_SPARE", 0)
    stream = Stream.fresh()
    keys, values = stream.uint64((500, 2)), stream.uint64((500, 2))
    store = build_store(keys, values, stream)
    _, core = key_value_store._peel(key_value_store._cell_places(keys, store.seed, len(store.cells)), len(store.cells))
    assert len(core) > 100, "this is about the core"
    np.testing.assert_array_equal(store[keys], values)


def test_the_table_does_not_tell_which_keys_it_holds(stream):
    """With random values all cells are uniform bits, and so are the answers for keys that are not there.

    The seed is drawn before keys are looked at: one that was chosen because it suits the keys would tell about them.
    """
    keys, others = stream.uint64((2000, 2)), stream.uint64((2000, 2))
    store = build_store(keys, stream.uint64((2000, 2)), stream)
    for words in (store.cells, store[others]):
        octets = np.ascontiguousarray(words).view(np.uint8).ravel()
        assert stats.chisquare(np.bincount(octets, minlength=256)).pvalue > 1e-9
    seeds = {build_store(some, keys[:100], Stream(b"s" * 32)).seed for some in (keys[:100], others[:100])}
    assert len(seeds) == 1


def test_tables_of_another_shape_and_equal_keys_are_refused(stream):
    for shape in ((64, 2), (65, 2), (67, 3), (67,)):
        refused(ProtocolError, "MS*", KeyValueStore, 1, np.zeros(shape, dtype=np.uint64))
    keys = np.repeat(stream.uint64((5, 2)), 2, axis=0)
    refused(ValueError, "VA102", build_store, keys, keys, stream)


def test_a_layer_of_keys_is_alone_in_its_cells_and_no_key_is_removed_twice(stream):
    keys = stream.uint64((3000, 2))
    size = cell_count(len(keys))
    places = key_value_store._cell_places(keys, 7, size)
    layers, core = key_value_store._peel(places, size)
    left = np.ones(len(keys), dtype=bool)
    for layer, own in layers:
        assert len(np.unique(layer)) == len(layer) == len(np.unique(own))
        held = np.bincount(places[left].ravel(), minlength=size)
        assert (held[own] == 1).all()
        assert (places[layer] == own[:, None]).any(axis=1).all()
        left[layer] = False
    assert np.array_equal(np.flatnonzero(left), core)
    assert not len(core)


# --- blinded points


KEYS = [f"person {n}".encode() for n in range(300)]


def test_blinds_commute_and_come_off():
    points = hash_to_group(KEYS)
    a, b, c = (
        BlindingScalars.generate(len(points), Stream.fresh()),
        BlindingScalar.generate(Stream.fresh()),
        BlindingScalar.generate(Stream.fresh()),
    )
    both = b.multiply(a.multiply(points))
    np.testing.assert_array_equal(both, a.multiply(b.multiply(points)))
    np.testing.assert_array_equal(a.inverse().multiply(both), b.multiply(points))
    np.testing.assert_array_equal(a.inverse().compose(c).multiply(both), c.multiply(b.multiply(points)))
    assert BlindingScalars([]).inverse().multiply(points[:0]).shape == (0, POINT_BYTES)
    assert not (a.multiply(points) == points).all(axis=1).any()
    same = np.repeat(points[:1], len(points), axis=0)
    assert len(np.unique(a.multiply(same), axis=0)) == len(points), "every point has a blind of its own"


def test_hashing_is_a_function_of_the_key_alone_and_separates_keys():
    points = hash_to_group(KEYS)
    np.testing.assert_array_equal(hash_to_group(KEYS[::-1])[::-1], points)
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
    for point in hash_to_group(KEYS[:20]):
        u = int.from_bytes(point.tobytes(), "little")
        assert on_curve(u)
        assert vanishes(u, ORDER)
        assert not vanishes(u, 8)


def test_products_are_those_of_the_standard():
    """RFC 7748, section 5.2; the number is written down as X25519 takes it."""
    scalar = bytes.fromhex("a046e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449a44")
    u = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    product = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    number = int.from_bytes(scalar, "little") % ORDER
    for form in (number, ORDER - number):
        blind = BlindingScalar(form.to_bytes(32, "little"))
        assert blind.multiply(np.frombuffer(u, np.uint8)[None]).tobytes().hex() == product


@given(st.integers(2**129, ORDER - 2**129))
def test_every_scalar_has_a_form_that_the_library_takes_as_it_is(scalar):
    form = int.from_bytes(_for_x25519(scalar.to_bytes(32, "little")), "little")
    assert form % 8 == 0
    assert 2**254 <= form < 2**255
    assert form % ORDER in (scalar, ORDER - scalar)


def test_what_a_peer_adds_of_small_order_is_cleared():
    """1/u belongs to the same point, but for one of order two: neither the product nor the scalar's remainder tells."""
    points = hash_to_group(KEYS[:5])
    turned = [pow(int.from_bytes(point.tobytes(), "little"), -1, FIELD).to_bytes(32, "little") for point in points]
    blind = BlindingScalar.generate(Stream.fresh())
    np.testing.assert_array_equal(
        blind.multiply(np.frombuffer(b"".join(turned), np.uint8).reshape(5, 32)), blind.multiply(points)
    )


EIGHTH = 325606250916557431795983626356110631294008115727848805560023387167927233504
OTHER_EIGHTH = 39382357235489614581723060781553021112529911719440698176882885853963445705823


@pytest.mark.parametrize(
    "bad", [0, 1, FIELD - 1, 2, EIGHTH, OTHER_EIGHTH, FIELD, FIELD + 1, FIELD + 9, 2**255 + 9, 2**256 - 1]
)
def test_what_is_no_element_of_the_group_is_refused(bad):
    """Points of small order, which would make all tags equal, of the twist, and numbers that stand for smaller ones."""
    points = np.vstack([hash_to_group(KEYS[:3]), np.frombuffer(bad.to_bytes(32, "little"), np.uint8)[None]])
    with raises(ProtocolError, "MS001", "bank"):
        BlindingScalar.generate(Stream.fresh()).multiply(points, "bank")


def test_a_library_that_takes_points_outside_the_group_is_not_used(monkeypatch):
    monkeypatch.setattr("nacl.bindings.crypto_core_ed25519_is_valid_point", lambda point: True)
    with raises(EngineError, "EN030", "PyNaCl 1.6.2"):
        sodium.__wrapped__()
