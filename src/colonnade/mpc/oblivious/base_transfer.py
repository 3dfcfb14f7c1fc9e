"""Transfers of keys: for every bit that one party chooses it gets one of two keys that the other has.

The other does not learn which. The chooser sends two elements of the group for each bit. The one that it chose makes,
together with a hash of the other one, an element whose logarithm it knows. Nobody can know both logarithms, as each
element enters the hash that is added to the other (docs/theory/oblivious-evaluation.md). A context of 32 bytes enters
every hash, so that nothing of one run fits into another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.mpc.blinding import POINT_BYTES, GroupPoints, map_points, random_scalar, sodium
from colonnade.randomness import KEY_BYTES, Stream

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
