"""The keyed function by transfers: code, bit matrices, transfers of keys, and the whole."""

from __future__ import annotations

import math

import numpy as np
import pytest

from colonnade.errors import ProtocolError
from colonnade.mpc.blinding import FIELD, sodium
from colonnade.mpc.oblivious import function
from colonnade.mpc.oblivious.base import Choice, Offer
from colonnade.mpc.oblivious.code import DISTANCE, MESSAGE, ROW_WORDS, WIDTH, Coder, golay
from colonnade.mpc.oblivious.function import Asker, Holder, Listed, bits_of, new_secret, pieces
from colonnade.mpc.oblivious.matrices import Pieces, columns_of, rows_of
from colonnade.randomness import Stream
from tests.support.errors import raises, refused

ALL = function._ALL


CONTEXT = function.context_of(b"a study", "bank", "shop")


def bits(words):
    return np.unpackbits(np.ascontiguousarray(words, dtype="<u8").view(np.uint8), axis=-1, bitorder="little")


def random_words(stream, *shape):
    return stream.uint64(shape)


# --- the code


def test_two_words_of_the_inner_code_differ_in_eight_bits_or_more():
    words = [golay(symbol) for symbol in range(4096)]
    assert min(word.bit_count() for word in words[1:]) == 8
    assert all(golay(a ^ b) == words[a] ^ words[b] for a, b in zip(range(4096), range(4095, -1, -1), strict=True))


def test_the_outer_code_is_a_polynomial_at_different_points(stream):
    """A word of the code is zero at no more than ten of the 26 points, so at least 16 times 8 bits of it are set."""
    messages = random_words(stream, 300, 2)
    messages[:MESSAGE] = 0
    for place in range(MESSAGE):
        messages[place, place // 64] = np.uint64(1) << np.uint64(place % 64)
    words = bits(Coder(ALL)(messages))
    assert not words[:, WIDTH:].any()
    symbols = words[:, :WIDTH].reshape(len(messages), -1, 24)
    assert (symbols.any(axis=2).sum(axis=1) >= 16).all()
    assert words.sum(axis=1).min() >= DISTANCE == 16 * 8
    # The first point is one, where the value is the sum of all coefficients.
    coefficients = np.pad(bits(messages), ((0, 0), (0, 4))).reshape(len(messages), 11, 12)
    sums = (coefficients.sum(axis=1) % 2) @ (1 << np.arange(12))
    assert [golay(int(value)) for value in sums] == (symbols[:, 0] @ (1 << np.arange(24))).tolist()


def test_words_with_few_symbols_are_as_heavy_as_the_bound_says():
    """The polynomial that is zero at ten of the points is as bad as it gets: 16 symbols are left."""
    from colonnade.mpc.oblivious.code import _product

    points = [1]
    for _ in range(25):
        points.append(_product(points[-1], 2))
    assert len(set(points)) == 26
    polynomial = [1]
    for root in points[:9]:  # nine roots: the highest coefficient would not fit into the 128 bits with ten
        shifted, scaled = [0, *polynomial], [*(_product(each, root) for each in polynomial), 0]
        polynomial = [a ^ b for a, b in zip(shifted, scaled, strict=True)]
    number = sum(coefficient << 12 * degree for degree, coefficient in enumerate(polynomial))
    message = np.array([[number & (1 << 64) - 1, number >> 64]], dtype=np.uint64)
    symbols = bits(Coder(ALL)(message))[0, :WIDTH].reshape(26, 24)
    assert (~symbols.any(axis=1)).tolist() == [True] * 9 + [False] * 17
    assert symbols.sum() >= DISTANCE


def test_the_code_is_linear_and_a_mask_keeps_some_of_its_bits(stream):
    one, other = random_words(stream, 50, 2), random_words(stream, 50, 2)
    coder, mask = Coder(ALL), random_words(stream, ROW_WORDS) & ALL
    np.testing.assert_array_equal(coder(one ^ other), coder(one) ^ coder(other))
    np.testing.assert_array_equal(Coder(mask)(one), coder(one) & mask)


@pytest.mark.parametrize(("rows", "wide"), [(64, 1), (640, 10), (64 * 300, 2)])
def test_a_matrix_that_is_turned_twice_is_itself(stream, rows, wide):
    matrix = random_words(stream, rows, wide)
    columns = columns_of(matrix)
    np.testing.assert_array_equal(bits(columns), bits(matrix).T)
    np.testing.assert_array_equal(rows_of(columns, wide), matrix)


@pytest.mark.parametrize("sizes", [[7], [3, 3, 1], [300, 2]])
def test_a_matrix_that_comes_in_pieces_is_turned_where_it_lies(stream, sizes):
    columns, start = random_words(stream, 70, sum(sizes)), 0
    matrix = Pieces(sum(sizes), 2)
    held = matrix._held
    held[:] = random_words(stream, len(held))  # as memory that was used before
    for size in sizes:
        matrix.more(70, size)[:] = columns[:, start : start + size]
        start += size
    np.testing.assert_array_equal(list(matrix.columns(70)), columns)
    found = matrix.rows()
    np.testing.assert_array_equal(found, rows_of(columns, 2))
    assert np.shares_memory(found, held)


# --- transfers of keys


def test_the_chosen_key_arrives_and_no_other():
    chosen = [0, 1, 1, 0, 1]
    choice, offer = Choice(CONTEXT, chosen, Stream.fresh()), Offer(CONTEXT, Stream.fresh())
    pairs, keys = offer.keys(choice.points, "bank"), choice.keys(offer.point, "shop")
    assert keys == [pair[bit] for pair, bit in zip(pairs, chosen, strict=True)]
    assert not set(keys) & {pair[1 - bit] for pair, bit in zip(pairs, chosen, strict=True)}
    assert len({key for pair in pairs for key in pair}) == 10
    assert "..." in repr(choice) + repr(offer)


def test_points_do_not_show_the_choice():
    """Both points of a choice are as good as uniform: neither comes again, and none is a point of the other's."""
    zeros, ones = (Choice(CONTEXT, [bit] * 40, Stream.fresh()).points.reshape(-1, 32) for bit in (0, 1))
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
    choice, offer = Choice(CONTEXT, [0, 1], Stream.fresh()), Offer(CONTEXT, Stream.fresh())
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
    from colonnade.mpc.oblivious import base

    one = sodium().crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
    monkeypatch.setattr(base, "_hashed", lambda *_: one)
    twice = np.frombuffer(one + one, np.uint8).reshape(1, 2, 32)
    first, second = Offer(CONTEXT, Stream.fresh()).keys(twice, "bank")[0]
    assert first != second


def test_an_element_that_cancels_the_hash_is_refused():
    """The only pair whose product is the neutral element: its key would be known to everybody."""
    from colonnade.mpc.oblivious.base import _hashed

    other = sodium().crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
    neutral = (1).to_bytes(32, "little")
    known = sodium().crypto_core_ed25519_sub(neutral, _hashed(CONTEXT, 0, 0, other))
    pair = np.frombuffer(known + other, np.uint8).reshape(1, 2, 32)
    with raises(ProtocolError, "MS004", "bank"):
        Offer(CONTEXT, Stream.fresh()).keys(pair, "bank")


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
    other = function.context_of(run, asker, holder)
    assert len(other) == 32
    choice, offer = Choice(other, [0, 1], Stream.fresh()), Offer(CONTEXT, Stream.fresh())
    pairs, keys = offer.keys(choice.points, "bank"), choice.keys(offer.point, "shop")
    assert not set(keys) & {key for pair in pairs for key in pair}
    hashes, rows = function.hashed(people(1, 2), bytes(32)), np.zeros((2, ROW_WORDS), dtype=np.uint64)
    values = [function._values(context, hashes, rows) for context in (CONTEXT, other)]
    assert (values[0] != values[1]).all()
    np.testing.assert_array_equal(values[0], function._values(CONTEXT, hashes, rows))


# --- the function


class Transferred:
    """Keys of transfers as if they had been transferred."""

    def __init__(self):
        self.secret = new_secret(Stream.fresh())
        drawn = Stream.fresh()
        self.pairs = [(drawn.bytes(32), drawn.bytes(32)) for _ in range(WIDTH)]
        self.keys = [pair[bit] for pair, bit in zip(self.pairs, bits_of(self.secret).tolist(), strict=True)]

    def sides(self, keys):
        """Both sides, the list, and what the asker sends of it."""
        listed = Listed(keys, Stream.fresh())
        asker = Asker(listed, self.pairs, CONTEXT, Stream.fresh())
        sent = [asker.hidden(piece) for piece in listed.pieces()] + [asker.last()]
        assert [piece.shape for piece in sent] == [(WIDTH, count) for count in pieces(len(keys))]
        return asker, Holder(len(keys), self.secret, self.keys, listed.salt, listed.seed, CONTEXT), listed, sent

    def run(self, keys):
        asker, holder, listed, sent = self.sides(keys)
        for piece in sent:
            holder.take(piece)
        return asker, holder, listed


def people(*numbers):
    return [f"person {number}".encode() for number in numbers]


def challenge():
    return Stream.fresh().bytes(function.CHALLENGES * function.CHALLENGE_BYTES)


def valued(values):
    return [value.tobytes() for piece in values for value in piece]


@pytest.mark.parametrize(("size", "piece"), [(0, None), (1, None), (5, None), (700, None), (300, 3)])
def test_both_sides_find_the_same_values_at_keys_of_the_list_and_nowhere_else(monkeypatch, size, piece):
    """Pieces do not matter."""
    if piece is not None:
        monkeypatch.setattr(function, "PIECE", piece)
        monkeypatch.setattr(function, "_AT_ONCE", 7)
        assert len(pieces(size)) == 4
    asker, holder, _ = Transferred().run(people(*range(size)))
    asked = challenge()
    holder.check(asked, *asker.sums(asked), "bank")
    ours, theirs = valued(asker.values()), valued(holder.values(people(*range(size + 50))))
    assert ours == theirs[:size]
    assert len(set(theirs)) == size + 50


def test_an_asker_that_guesses_keys_does_not_find_values_even_with_its_own_rows():
    """At a key that is not on its list, the asker's own rows give another value than the holder's."""
    asker, holder, listed = Transferred().run(people(*range(200)))
    others = people(*range(1000, 1400))
    hashes = function.hashed(others, listed.salt)
    rows = asker._hiding()[: listed.cells]
    found = function.Answers(rows, listed.seed)(hashes[:, :2])
    wrong = function._values(CONTEXT, hashes, found)
    # With all of the secret but one column at which a word of the code has a bit, it is still wrong.
    missed = function.Answers(listed.rows[: listed.cells], listed.seed)(hashes[:, :2]) ^ hashes[:, 2:]
    weights = bits(Coder(ALL)(missed)).sum(axis=1)
    assert weights.min() >= DISTANCE, "at least 128 bits of the secret decide the value"
    theirs = set(valued(holder.values(others)))
    assert not theirs & {value.tobytes() for value in wrong}


def test_what_is_sent_is_new_every_time_and_does_not_depend_on_the_list():
    sent = []
    for keys in (people(*range(100)), people(*range(100)), people(*range(500, 600))):
        sent.append(np.hstack(Transferred().sides(keys)[-1]))
    assert len({piece.shape for piece in sent}) == 1
    words = [set(piece.ravel().tolist()) for piece in sent]
    assert not words[0] & (words[1] | words[2])
    deviation = 0.5 / math.sqrt(sent[0].size * 64)
    assert all(abs(bits(piece).mean() - 0.5) < 8 * deviation for piece in sent)


@pytest.mark.parametrize(
    "spoilt", ["a bit of a column", "a bit of all columns but ten", "what hides", "what is listed"]
)
def test_what_is_no_list_is_refused(spoilt):
    transferred = Transferred()
    asker, holder, _, pieces_sent = transferred.sides(people(*range(100)))
    taken = np.flatnonzero(bits_of(transferred.secret))
    sent, asked = np.hstack(pieces_sent), challenge()
    if spoilt == "a bit of a column":
        sent[taken[5], 1] ^= np.uint64(1 << 17)
    if spoilt == "a bit of all columns but ten":
        sent[10:, 2] ^= np.uint64(1 << 63)
    holder.take(sent)
    hiding, sums = asker.sums(asked)
    if spoilt == "what hides":
        hiding[3, 7] ^= np.uint64(1)
    if spoilt == "what is listed":
        sums[MESSAGE - 1, 0] ^= np.uint64(1)
    refused(ProtocolError, "MS006", "bank", holder.check, asked, hiding, sums, "bank")


def test_an_asker_learns_no_bit_of_the_secret_without_risking_to_be_found_out():
    """A row that is off the code by one bit passes exactly if the holder's secret does not take that bit."""
    ends = {0: set(), 1: set()}
    for column in range(24):
        transferred, asked = Transferred(), challenge()
        asker, holder, _, sent = transferred.sides(people(*range(20)))
        sent[0][column, 0] ^= np.uint64(2)
        holder.take(np.hstack(sent))
        found = ends[int(bits_of(transferred.secret)[column])]
        try:
            holder.check(asked, *asker.sums(asked), "bank")
            found.add("passed")
        except ProtocolError:
            found.add("found")
    assert ends == {0: {"passed"}, 1: {"found"}}


def test_sums_tell_nothing_about_the_list_and_secrets_are_not_printed():
    """Two holders under one challenge: sums have no veil in common."""
    asked, shown = challenge(), []
    listed = Listed(people(*range(50)), Stream.fresh())
    for _ in range(2):
        asker = Asker(listed, Transferred().pairs, CONTEXT, Stream.fresh())
        for piece in listed.pieces():
            asker.hidden(piece)
        asker.last()
        shown.append(asker.sums(asked)[1])
    difference = bits(shown[0] ^ shown[1])
    assert abs(difference.mean() - 0.5) < 8 * 0.5 / math.sqrt(difference.size)
    sides = Transferred().sides(people(1))[:3]
    assert [repr(each) for each in sides] == ["Asker(...)", "Holder(...)", "Listed(...)"]


def test_the_sums_are_polynomials_of_the_standard_field(stream):
    """Against a product in the field of 2^128 elements that is written out, with GCM's order of bits."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    def product(a, b):
        found = 0
        for place in range(127, -1, -1):
            found ^= a * (b >> place & 1)
            a = a >> 1 ^ (a & 1) * (0xE1 << 120)
        return found

    columns, asked = random_words(stream, 3, 5 + function.SUMS), challenge()
    found = function._summed(columns, asked)
    for index in range(function.CHALLENGES):
        cipher = Cipher(algorithms.AES(asked[16 * index : 16 * index + 16]), modes.CTR(bytes(16))).encryptor()
        point = int.from_bytes(cipher.update(bytes(16)), "big")
        for column, sums in zip(columns, found, strict=True):
            data, value = column[: -function.SUMS].astype("<u8").tobytes(), 0
            for start in range(0, len(data), 16):
                value = product(value ^ int.from_bytes(data[start : start + 16].ljust(16, b"\0"), "big"), point)
            value = product(value, point)  # the block of lengths, which is taken off
            veil = column[-function.SUMS :][2 * index : 2 * index + 2].astype("<u8").tobytes()
            expected = value ^ int.from_bytes(veil, "big")
            assert sums[2 * index : 2 * index + 2].astype("<u8").tobytes() == expected.to_bytes(16, "big")
