"""The keyed function: a holder has its key, an asker gets its values for a list that the holder never sees.

The asker lays its list out as a store of 128-bit cells, in which every key finds a hash of itself. It sends the store's
cells as words of a code, hidden so that the holder gets, for every bit of the code, either what hides it or what hides
it with the bit added. Which of the two is the holder's secret. At a key of the list both sides then find the same row;
at any other the rows differ by a word of the code, of which the asker does not know what the secret takes
(docs/theory/oblivious-evaluation.md).

Before the holder uses what it got, the asker shows sums of rows that the holder asked for, so that a list is a store
of code words and nothing else; rows that nobody looks at hide the sums.

A function belongs to a context: a run, who asks and who holds. Nobody can pass messages on between two runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from colonnade.errors import ProtocolError
from colonnade.mpc.digests import digests
from colonnade.mpc.keyvalue import WORDS, Answers, Words, cells_for, stored
from colonnade.mpc.oblivious.code import ROW_WORDS, WIDTH, Coder
from colonnade.mpc.oblivious.matrices import Bits, Pieces, columns_of, rows_of
from colonnade.randomness import Stream, new_key

CHALLENGES = 4
CHALLENGE_BYTES = 16
SUMS = 2 * CHALLENGES
"""Words of 64 sums that are asked for; as many rows hide them."""
PIECE = 1 << 9
"""Words of a column that are sent at a time."""
VALUE_WORDS = 2 * WORDS
"""A value of the function, in words of 64 bits."""
_AT_ONCE = 1 << 12
_NONCE = bytes(12)
_ALL = np.array([(1 << 64) - 1] * (WIDTH // 64) + [(1 << WIDTH % 64) - 1], dtype=np.uint64)


def pieces(size: int) -> list[int]:
    """How many words of each column every piece has, for a list of so many keys; the last one hides the sums."""
    words = -(-cells_for(size) // 64)
    return [*(min(PIECE, words - start) for start in range(0, words, PIECE)), SUMS]


class Listed:
    """The asker's list, as it is laid out for any number of holders."""

    def __init__(self, keys: Sequence[bytes], stream: Stream) -> None:
        self.salt = new_key()
        self.hashes = hashed(keys, self.salt)
        store = stored(self.hashes[:, :WORDS], self.hashes[:, WORDS:], stream)
        self.seed, self.cells = store.seed, len(store.cells)
        self.rows = stream.uint64((64 * sum(pieces(len(keys))[:-1]), WORDS))
        self.rows[: self.cells] = store.cells

    def pieces(self) -> Iterator[Bits]:
        """The columns of the list as words of the code, some words of each at a time."""
        for start in range(0, len(self.rows), 64 * PIECE):
            yield _coded(self.rows[start : start + 64 * PIECE])


class Asker:
    """Whoever asks one holder for the values of a list; ``keys`` are both keys of every transfer."""

    def __init__(self, listed: Listed, keys: Sequence[tuple[bytes, bytes]], context: bytes, stream: Stream) -> None:
        self._listed, self._context = listed, context
        self._keys = [first for first, _ in keys]
        self._streams = [(Stream(first), Stream(second)) for first, second in keys]
        # Of its own for every holder: two who compare the same list under two challenges must not see a difference.
        self._veil = stream.uint64((64 * SUMS, WORDS))

    def hidden(self, piece: Bits) -> Bits:
        """The next piece of the list as the holder is sent it."""
        sent, count = piece.copy(), piece.shape[1]
        for column, (first, second) in enumerate(self._streams):
            sent[column] ^= first.uint64(count)
            sent[column] ^= second.uint64(count)
        return sent

    def last(self) -> Bits:
        """The last piece: rows that hide the sums, and that nobody looks up."""
        return self.hidden(_coded(self._veil))

    def sums(self, challenge: bytes) -> tuple[Bits, Bits]:
        """The sums of rows that the holder asks for: of what hides the list, and of the list itself."""
        words = len(self._listed.rows) // 64 + SUMS
        listed = zip(columns_of(self._listed.rows), columns_of(self._veil), strict=True)
        return (
            _summed((Stream(key).uint64(words) for key in self._keys), challenge),
            _summed((np.concatenate(both) for both in listed), challenge),
        )

    def values(self) -> Iterator[Words]:
        """The values for the list, some keys at a time; what hid the list is forgotten."""
        rows, hashes = self._hiding()[: self._listed.cells], self._listed.hashes
        del self._keys, self._streams
        found = Answers(rows, self._listed.seed)
        for start in range(0, len(hashes), _AT_ONCE):
            part = hashes[start : start + _AT_ONCE]
            yield _values(self._context, part, found(part[:, :WORDS]))

    def _hiding(self) -> Bits:
        """The rows that hide the list: drawn again, since they take five times as much memory as the list does."""
        streams, words = [Stream(key) for key in self._keys], len(self._listed.rows) // 64
        found = np.empty((64 * words, ROW_WORDS), dtype=np.uint64)
        for start in range(0, words, PIECE):
            count = min(PIECE, words - start)
            piece = np.array([stream.uint64(count) for stream in streams])
            found[64 * start : 64 * (start + count)] = rows_of(piece, ROW_WORDS)
        return found


class Holder:
    """Whoever has the key of the function: the secret bits, and what it was sent for a list of ``size`` keys."""

    def __init__(self, size: int, secret: Bits, keys: Sequence[bytes], salt: bytes, seed: int, context: bytes) -> None:
        self._context = context
        self._secret, self._salt, self._seed = secret, salt, seed
        self._streams = [Stream(key) for key in keys]
        self._taken = Pieces(sum(pieces(size)), ROW_WORDS)
        self._cells = cells_for(size)
        self._mask = np.where(bits_of(secret), np.uint64((1 << 64) - 1), np.uint64(0))

    def take(self, sent: Bits) -> None:
        """Keep a piece of what the asker sends."""
        own = self._taken.more(*sent.shape)
        np.bitwise_and(sent, self._mask[:, None], out=own)
        for column, stream in enumerate(self._streams):
            own[column] ^= stream.uint64(sent.shape[1])

    def check(self, challenge: bytes, hiding: Bits, listed: Bits, source: str) -> None:
        """Refuse what is not a store of code words; ``hiding`` and ``listed`` are the sums that the asker shows."""
        coded = _coded(rows_of(listed, WORDS))
        if not np.array_equal(_summed(self._taken.columns(WIDTH), challenge), hiding ^ (coded & self._mask[:, None])):
            raise ProtocolError(
                f"{source} sent 'sums' that do not fit what it sent before, so it asked for no list [MS006]"
            )

    @staticmethod
    def blocks(count: int) -> int:
        """In how many blocks the values of so many keys come."""
        return -(-count // _AT_ONCE)

    def hashes(self, keys: Sequence[bytes], start: int, count: int) -> list[Words]:
        """The hashes of some blocks of keys, which depend on the asker's salt alone."""
        firsts = range(start * _AT_ONCE, len(keys), _AT_ONCE)[:count]
        return [hashed(keys[first : first + _AT_ONCE], self._salt) for first in firsts]

    def values(self, keys: Sequence[bytes], ahead: Sequence[Words] = ()) -> Iterator[Words]:
        """The values for any keys, some at a time; the secret is used for these and forgotten.

        ``ahead`` are hashes of the first blocks of these keys.
        """
        rows = self._taken.rows()[: self._cells]
        del self._taken
        coder, answers = Coder(self._secret), Answers(rows, self._seed)
        for block in range(self.blocks(len(keys))):
            hashes = ahead[block] if block < len(ahead) else self.hashes(keys, block, 1)[0]
            found = answers(hashes[:, :WORDS])
            found ^= coder(hashes[:, WORDS:])
            yield _values(self._context, hashes, found)


def context_of(run: bytes, asker: str, holder: str) -> bytes:
    """32 bytes that name a run and the two; ``run`` is what its participants have agreed on and no other run has."""
    parts = (run, asker.encode(), holder.encode())
    said = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return hashlib.blake2b(said, digest_size=32, person=b"colonnade ot 1").digest()


def new_secret(stream: Stream) -> Bits:
    """Secret bits of a holder, one for each bit of a code word."""
    return stream.uint64(ROW_WORDS) & _ALL


def bits_of(secret: Bits) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bits by themselves."""
    return np.unpackbits(secret.astype("<u8").view(np.uint8), bitorder="little")[:WIDTH]


def hashed(keys: Sequence[bytes], salt: bytes) -> Words:
    """256 bits for each key: where it is looked up, and what is found there."""
    begun = hashlib.blake2b(digest_size=8 * VALUE_WORDS, key=salt)
    return digests(begun, keys)


def _coded(rows: Bits) -> Bits:
    """The columns of the code words of some rows."""
    return columns_of(Coder(_ALL)(rows))[:WIDTH]


def _values(context: bytes, hashes: Words, rows: Bits) -> Words:
    """The function's values: hashes of a key's hash and its row, others for every context."""
    half = len(context) // 2
    begun = hashlib.blake2b(digest_size=8 * VALUE_WORDS, salt=context[:half], person=context[half:])
    joined = np.hstack([hashes, rows]).astype("<u8", copy=False)
    size, flat = joined.shape[1] * 8, joined.tobytes()
    return digests(begun, [flat[at : at + size] for at in range(0, len(flat), size)])


def _summed(columns: Iterable[Bits], challenge: bytes) -> Bits:
    """For every column 512 sums of its bits: polynomials over the field of 2^128 elements, and a row that hides each.

    The authentication of GCM is such a polynomial, whose coefficients are the data, and which the processor computes.
    Its key is public here. It adds something that depends on the length alone and is taken off.
    """
    keys = [challenge[start : start + CHALLENGE_BYTES] for start in range(0, len(challenge), CHALLENGE_BYTES)]
    ciphers, tags, veils, data = [AESGCM(key) for key in keys], list[bytes](), list[Bits](), b""
    for column in columns:
        data = column[:-SUMS].astype("<u8", copy=False).tobytes()
        tags += [cipher.encrypt(_NONCE, b"", data) for cipher in ciphers]
        veils.append(column[-SUMS:])
    added = b"".join(cipher.encrypt(_NONCE, b"", bytes(len(data))) for cipher in ciphers)
    sums = np.frombuffer(b"".join(tags), dtype="<u8").reshape(-1, SUMS)
    hidden: Bits = np.array(veils, dtype="<u8") ^ sums ^ np.frombuffer(added, dtype="<u8")
    return hidden
