"""The oblivious pseudorandom function: a holder has the key, a querier gets values for its own list.

The holder never sees the list. The querier lays it out as a store of 128-bit cells, in which every key finds a hash
of itself. It sends the store's cells as words of a code, hidden so that the holder gets, for every bit of the code,
either what hides it or what hides it with the bit added. Which of the two is the holder's secret. At a key of the
list both sides then find the same row; at any other the rows differ by a word of the code, of which the querier does
not know what the secret takes (docs/theory/oblivious-evaluation.md).

What hides the list comes from transfers of keys: for every bit that one party chooses it gets one of two keys that the
other has, and the other does not learn which. The chooser sends two elements of the group for each bit. The one that it
chose makes, together with a hash of the other one, an element whose logarithm it knows. Nobody can know both
logarithms, as each element enters the hash that is added to the other.

Before the holder uses what it got, the querier shows sums of rows that the holder asked for, so that a list is a
store of code words and nothing else; rows that nobody looks at hide the sums.

Transfers and functions belong to a context of 32 bytes: a run, who asks and who holds. It enters every hash, so nobody
can pass messages on between two runs.

The code is linear: 128 bits become 624, and any two words of it differ in at least 128 places. It is a Reed-Solomon
code over the field of 4096 elements, of which 26 values of a polynomial of degree 10 at most are taken, and each
value of 12 bits is written as 24 bits of Golay's code. Two polynomials differ at 16 of the points or more, and two of
Golay's words in 8 bits or more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc.blinding import POINT_BYTES, GroupPoints, map_points, random_scalar, sodium
from colonnade.mpc.key_value_store import (
    WORDS,
    BitRows,
    ColumnBuffer,
    KeyValueLookup,
    Words,
    XorTables,
    build_store,
    cell_count,
    to_columns,
    to_rows,
)
from colonnade.randomness import KEY_BYTES, Stream, new_key

_DOMAIN = b"colonnade transfers of keys, version 2:"


class TransferSender:
    """One side: it has two keys for every choice of the other."""

    def __init__(self, context: bytes, stream: Stream) -> None:
        self._context = context
        self._scalar = random_scalar(stream)
        self.point: bytes = sodium().crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def keys(self, choices: GroupPoints, source: str) -> list[tuple[bytes, bytes]]:
        """Both keys for each choice; an error names ``source`` if something is not a pair of elements."""
        sent = [point.tobytes() for point in choices.reshape(-1, POINT_BYTES)]

        def key(number: int) -> bytes:
            _check_point(sent[number])
            place, index = divmod(number, 2)
            hashed = _hash_to_point(self._context, place, index, sent[number ^ 1])
            joined = sodium().crypto_core_ed25519_add(sent[number], hashed)
            pair = sent[2 * place] + sent[2 * place + 1]
            product = sodium().crypto_scalarmult_ed25519_noclamp(self._scalar, joined)
            return _derive_key(self._context, place, index, pair, self.point, product)

        try:
            found = [key.tobytes() for key in map_points(key, range(len(sent)))]
        except RuntimeError:
            raise ProtocolError(
                f"{source} sent something else than elements of the group in 'choices' [MS004]"
            ) from None
        return list(zip(found[::2], found[1::2], strict=True))


class TransferReceiver:
    """The other side: it chose a bit for each key."""

    def __init__(self, context: bytes, bits: Sequence[int], stream: Stream) -> None:
        library = sodium()
        self._context, self._bits = context, list(bits)
        self._scalars = [random_scalar(stream) for _ in bits]
        # Uniform elements, as the chosen ones are: one from a hash would be told from them.
        others = map_points(library.crypto_scalarmult_ed25519_base_noclamp, [random_scalar(stream) for _ in bits])

        def own(place: int) -> bytes:
            known = library.crypto_scalarmult_ed25519_base_noclamp(self._scalars[place])
            hashed = _hash_to_point(context, place, bits[place], others[place].tobytes())
            point: bytes = library.crypto_core_ed25519_sub(known, hashed)
            return point

        places, chosen = np.arange(len(bits)), np.asarray(bits)
        self.points = np.empty((len(bits), 2, POINT_BYTES), dtype=np.uint8)
        self.points[places, chosen] = map_points(own, range(len(bits)))
        self.points[places, 1 - chosen] = others

    def keys(self, offered: bytes, source: str) -> list[bytes]:
        """The chosen keys, from the element that the other side offers."""
        product = sodium().crypto_scalarmult_ed25519_noclamp

        def key(place: int) -> bytes:
            pair = self.points[place].tobytes()
            shared = product(self._scalars[place], offered)
            return _derive_key(self._context, place, self._bits[place], pair, offered, shared)

        try:
            _check_point(offered)
            return [key.tobytes() for key in map_points(key, range(len(self._scalars)))]
        except RuntimeError:
            raise ProtocolError(
                f"{source} sent something else than an element of the group in 'offer' [MS005]"
            ) from None


def _hash_to_point(context: bytes, place: int, index: int, point: bytes) -> bytes:
    """An element of the group whose logarithm nobody knows; another for every context, place, index and point."""
    said = _DOMAIN + b"point" + context + place.to_bytes(4, "little") + bytes([index]) + point
    drawn, library = hashlib.sha512(said).digest(), sodium()
    first, second = (library.crypto_core_ed25519_from_uniform(half) for half in (drawn[:32], drawn[32:]))
    element: bytes = library.crypto_core_ed25519_add(first, second)  # one of them alone would not be uniform
    return element


def _derive_key(context: bytes, place: int, index: int, pair: bytes, offered: bytes, product: bytes) -> bytes:
    """One of the two keys of a place; both elements and the index are in it, so that two keys are never one."""
    said = _DOMAIN + b"key" + context + place.to_bytes(4, "little") + bytes([index]) + pair + offered + product
    return hashlib.blake2b(said, digest_size=KEY_BYTES).digest()


def _check_point(point: bytes) -> None:
    """Refuse what is no element of the subgroup of prime order: the library does not look for that before it adds."""
    if not sodium().crypto_core_ed25519_is_valid_point(point):
        raise RuntimeError("not an element of the group")


_AT_ONCE = 1 << 12  # digests that are objects by themselves, which take several times as much memory


def batch_digests(begun: hashlib.blake2b, pieces: Sequence[bytes]) -> NDArray[np.uint64]:
    """For each piece the digest of what was begun and the piece, in words of 64 bits.

    To copy what was begun is faster than to begin anew: a key is hashed once.
    """
    copy, found = begun.copy, np.empty((len(pieces), begun.digest_size // 8), dtype="<u8")
    for start in range(0, len(pieces), _AT_ONCE):
        some = []
        for piece in pieces[start : start + _AT_ONCE]:
            state = copy()
            state.update(piece)
            some.append(state.digest())
        found[start : start + len(some)] = np.frombuffer(b"".join(some), dtype="<u8").reshape(len(some), -1)
    return found


MESSAGE_BITS, CODE_BITS, MIN_DISTANCE = 128, 624, 128
ROW_WORDS = 10
"""Words of 64 bits that hold a word of the code; the last 16 bits are zero."""

_FIELD = 0b1000001010011  # x^12 + x^6 + x^4 + x + 1, which is primitive
_GOLAY = 0b110001110101  # divides x^23 + 1
_SYMBOL, _POINTS = 12, CODE_BITS // 24


def linear_code(mask: BitRows) -> XorTables:
    """Encodes rows of two words, and keeps only those bits of code words that a mask has."""
    return XorTables(_generator_matrix() & mask)


@cache
def _generator_matrix() -> BitRows:
    """The code word of each message that has a single bit."""
    found = np.zeros((MESSAGE_BITS, ROW_WORDS), dtype=np.uint64)
    # The points are the first powers of x, which differ, so the powers of the points are powers of x as well.
    powers = list(
        accumulate(range(_POINTS * -(-MESSAGE_BITS // _SYMBOL)), lambda power, _: _field_product(power, 2), initial=1)
    )
    for bit in range(MESSAGE_BITS):
        degree, coefficient = bit // _SYMBOL, 1 << bit % _SYMBOL
        values = [_field_product(powers[place * degree], coefficient) for place in range(_POINTS)]
        word = sum(golay_word(value) << 2 * _SYMBOL * place for place, value in enumerate(values))
        found[bit] = [word >> 64 * index & (1 << 64) - 1 for index in range(ROW_WORDS)]
    return found


def golay_word(symbol: int) -> int:
    """Golay's word of 24 bits for a symbol of 12: a product of polynomials over bits, and its parity."""
    word = 0
    for bit in range(_SYMBOL):
        word ^= (_GOLAY << bit) * (symbol >> bit & 1)
    return word | (word.bit_count() & 1) << 23


def _field_product(left: int, right: int) -> int:
    """A product in the field of 4096 elements."""
    found = 0
    for bit in reversed(range(_SYMBOL)):
        found <<= 1
        found ^= _FIELD * (found >> _SYMBOL)
        found ^= left * (right >> bit & 1)
    return found


CHALLENGES = 4
CHALLENGE_BYTES = 16
SUMS = 2 * CHALLENGES
"""Words of 64 sums that are asked for; as many rows hide them."""
PIECE = 1 << 9
"""Words of a column that are sent at a time."""
VALUE_WORDS = 2 * WORDS
"""A value of the function, in words of 64 bits."""
_KEYS_AT_ONCE = 1 << 12
_NONCE = bytes(12)
_ALL = np.array([(1 << 64) - 1] * (CODE_BITS // 64) + [(1 << CODE_BITS % 64) - 1], dtype=np.uint64)


def piece_sizes(size: int) -> list[int]:
    """How many words of each column every piece has, for a list of so many keys; the last one hides the sums."""
    words = -(-cell_count(size) // 64)
    return [*(min(PIECE, words - start) for start in range(0, words, PIECE)), SUMS]


class QueryList:
    """The asker's list, as it is laid out for any number of holders."""

    def __init__(self, keys: Sequence[bytes], stream: Stream) -> None:
        self.salt = new_key()
        self.hashes = hash_keys(keys, self.salt)
        store = build_store(self.hashes[:, :WORDS], self.hashes[:, WORDS:], stream)
        self.seed, self.cells = store.seed, len(store.cells)
        self.rows = stream.uint64((64 * sum(piece_sizes(len(keys))[:-1]), WORDS))
        self.rows[: self.cells] = store.cells

    def coded_pieces(self) -> Iterator[BitRows]:
        """The columns of the list as words of the code, some words of each at a time."""
        for start in range(0, len(self.rows), 64 * PIECE):
            yield _encode_columns(self.rows[start : start + 64 * PIECE])


class PrfQuerier:
    """Whoever asks one holder for the values of a list; ``keys`` are both keys of every transfer."""

    def __init__(self, listed: QueryList, keys: Sequence[tuple[bytes, bytes]], context: bytes, stream: Stream) -> None:
        self._listed, self._context = listed, context
        self._keys = [first for first, _ in keys]
        self._streams = [(Stream(first), Stream(second)) for first, second in keys]
        # Of its own for every holder: two who compare the same list under two challenges must not see a difference.
        self._veil = stream.uint64((64 * SUMS, WORDS))

    def mask_piece(self, piece: BitRows) -> BitRows:
        """The next piece of the list as the holder is sent it."""
        sent, count = piece.copy(), piece.shape[1]
        for column, (first, second) in enumerate(self._streams):
            sent[column] ^= first.uint64(count)
            sent[column] ^= second.uint64(count)
        return sent

    def mask_last_piece(self) -> BitRows:
        """The last piece: rows that hide the sums, and that nobody looks up."""
        return self.mask_piece(_encode_columns(self._veil))

    def sums(self, challenge: bytes) -> tuple[BitRows, BitRows]:
        """The sums of rows that the holder asks for: of what hides the list, and of the list itself."""
        words = len(self._listed.rows) // 64 + SUMS
        listed = zip(to_columns(self._listed.rows), to_columns(self._veil), strict=True)
        return (
            _sum_columns((Stream(key).uint64(words) for key in self._keys), challenge),
            _sum_columns((np.concatenate(both) for both in listed), challenge),
        )

    def values(self) -> Iterator[Words]:
        """The values for the list, some keys at a time; what hid the list is forgotten."""
        rows, hashes = self._mask_rows()[: self._listed.cells], self._listed.hashes
        del self._keys, self._streams
        found = KeyValueLookup(rows, self._listed.seed)
        for start in range(0, len(hashes), _KEYS_AT_ONCE):
            part = hashes[start : start + _KEYS_AT_ONCE]
            yield _prf_values(self._context, part, found(part[:, :WORDS]))

    def _mask_rows(self) -> BitRows:
        """The rows that hide the list: drawn again, since they take five times as much memory as the list does."""
        streams, words = [Stream(key) for key in self._keys], len(self._listed.rows) // 64
        found = np.empty((64 * words, ROW_WORDS), dtype=np.uint64)
        for start in range(0, words, PIECE):
            count = min(PIECE, words - start)
            piece = np.array([stream.uint64(count) for stream in streams])
            found[64 * start : 64 * (start + count)] = to_rows(piece, ROW_WORDS)
        return found


class PrfKeyHolder:
    """Whoever has the key of the function: the secret bits, and what it was sent for a list of ``size`` keys."""

    def __init__(
        self, size: int, secret: BitRows, keys: Sequence[bytes], salt: bytes, seed: int, context: bytes
    ) -> None:
        self._context = context
        self._secret, self._salt, self._seed = secret, salt, seed
        self._streams = [Stream(key) for key in keys]
        self._taken = ColumnBuffer(sum(piece_sizes(size)), ROW_WORDS)
        self._cells = cell_count(size)
        self._mask = np.where(unpack_secret(secret), np.uint64((1 << 64) - 1), np.uint64(0))

    def receive_piece(self, sent: BitRows) -> None:
        """Keep a piece of what the asker sends."""
        own = self._taken.allocate(*sent.shape)
        np.bitwise_and(sent, self._mask[:, None], out=own)
        for column, stream in enumerate(self._streams):
            own[column] ^= stream.uint64(sent.shape[1])

    def check(self, challenge: bytes, hiding: BitRows, listed: BitRows, source: str) -> None:
        """Refuse what is not a store of code words; ``hiding`` and ``listed`` are the sums that the asker shows."""
        coded = _encode_columns(to_rows(listed, WORDS))
        if not np.array_equal(
            _sum_columns(self._taken.columns(CODE_BITS), challenge), hiding ^ (coded & self._mask[:, None])
        ):
            raise ProtocolError(
                f"{source} sent 'sums' that do not fit what it sent before, so it asked for no list [MS006]"
            )

    @staticmethod
    def blocks(count: int) -> int:
        """In how many blocks the values of so many keys come."""
        return -(-count // _KEYS_AT_ONCE)

    def hashes(self, keys: Sequence[bytes], start: int, count: int) -> list[Words]:
        """The hashes of some blocks of keys, which depend on the asker's salt alone."""
        firsts = range(start * _KEYS_AT_ONCE, len(keys), _KEYS_AT_ONCE)[:count]
        return [hash_keys(keys[first : first + _KEYS_AT_ONCE], self._salt) for first in firsts]

    def values(self, keys: Sequence[bytes], ahead: Sequence[Words] = ()) -> Iterator[Words]:
        """The values for any keys, some at a time; the secret is used for these and forgotten.

        ``ahead`` are hashes of the first blocks of these keys.
        """
        rows = self._taken.rows()[: self._cells]
        del self._taken
        coder, answers = linear_code(self._secret), KeyValueLookup(rows, self._seed)
        for block in range(self.blocks(len(keys))):
            hashes = ahead[block] if block < len(ahead) else self.hashes(keys, block, 1)[0]
            found = answers(hashes[:, :WORDS])
            found ^= coder(hashes[:, WORDS:])
            yield _prf_values(self._context, hashes, found)


def run_context(run: bytes, asker: str, holder: str) -> bytes:
    """32 bytes that name a run and the two; ``run`` is what its participants have agreed on and no other run has."""
    parts = (run, asker.encode(), holder.encode())
    said = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return hashlib.blake2b(said, digest_size=32, person=b"colonnade ot 1").digest()


def new_secret(stream: Stream) -> BitRows:
    """Secret bits of a holder, one for each bit of a code word."""
    return stream.uint64(ROW_WORDS) & _ALL


def unpack_secret(secret: BitRows) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bits by themselves."""
    return np.unpackbits(secret.astype("<u8").view(np.uint8), bitorder="little")[:CODE_BITS]


def hash_keys(keys: Sequence[bytes], salt: bytes) -> Words:
    """256 bits for each key: where it is looked up, and what is found there."""
    begun = hashlib.blake2b(digest_size=8 * VALUE_WORDS, key=salt)
    return batch_digests(begun, keys)


def _encode_columns(rows: BitRows) -> BitRows:
    """The columns of the code words of some rows."""
    return to_columns(linear_code(_ALL)(rows))[:CODE_BITS]


def _prf_values(context: bytes, hashes: Words, rows: BitRows) -> Words:
    """The function's values: hashes of a key's hash and its row, others for every context."""
    half = len(context) // 2
    begun = hashlib.blake2b(digest_size=8 * VALUE_WORDS, salt=context[:half], person=context[half:])
    joined = np.hstack([hashes, rows]).astype("<u8", copy=False)
    size, flat = joined.shape[1] * 8, joined.tobytes()
    return batch_digests(begun, [flat[at : at + size] for at in range(0, len(flat), size)])


def _sum_columns(columns: Iterable[BitRows], challenge: bytes) -> BitRows:
    """For every column 512 sums of its bits: polynomials over the field of 2^128 elements, and a row that hides each.

    The authentication of GCM is such a polynomial, whose coefficients are the data, and which the processor computes.
    Its key is public here. It adds something that depends on the length alone and is taken off.
    """
    keys = [challenge[start : start + CHALLENGE_BYTES] for start in range(0, len(challenge), CHALLENGE_BYTES)]
    ciphers, tags, veils, data = [AESGCM(key) for key in keys], list[bytes](), list[BitRows](), b""
    for column in columns:
        data = column[:-SUMS].astype("<u8", copy=False).tobytes()
        tags += [cipher.encrypt(_NONCE, b"", data) for cipher in ciphers]
        veils.append(column[-SUMS:])
    added = b"".join(cipher.encrypt(_NONCE, b"", bytes(len(data))) for cipher in ciphers)
    sums = np.frombuffer(b"".join(tags), dtype="<u8").reshape(-1, SUMS)
    hidden: BitRows = np.array(veils, dtype="<u8") ^ sums ^ np.frombuffer(added, dtype="<u8")
    return hidden
