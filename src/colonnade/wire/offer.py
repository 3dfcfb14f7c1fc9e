"""How two participants come to a direct connection: an offer inside their sealed session, and a short greeting.

Each tells the other, inside the session that is sealed end to end, where it listens and a secret for that peer alone.
Whoever dials proves that it knows the secret before the listener says a word; the listener proves the same in its
answer. So only the two ends of the sealed session, which know each other's pinned keys, can be the ends of the
connection: a relay can neither make up an address nor answer at one. No certificate of a stranger is ever parsed.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from colonnade.errors import ProtocolError

_SECRET_BYTES, _LONGEST_ADDRESS = 32, 255
OFFER_BYTES = _SECRET_BYTES + 1 + _LONGEST_ADDRESS
"""All offers are equally long, so that a relay does not see whether one has an address."""
_MAGIC = b"colonnade link 1"
_NAME_BYTES, _NONCE_BYTES, _PROOF_BYTES = 16, 16, 32
GREETING_BYTES = len(_MAGIC) + _NAME_BYTES + _NONCE_BYTES + _PROOF_BYTES
ANSWER_BYTES = _NONCE_BYTES + _PROOF_BYTES
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
HOST = rf"\[[0-9A-Fa-f:.]{{2,45}}\]|{_LABEL}(?:\.{_LABEL})*"
"""A pattern of names and addresses; no part of a name is empty or longer than 63 letters."""
_ADDRESS = re.compile(rf"(?:{HOST}):([1-9][0-9]{{0,4}})")


class StrangerError(ProtocolError):
    """Whoever is at the other end does not know the secret."""


class Keys(NamedTuple):
    """The keys of one connection: for what one sends, and for what one receives."""

    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return "Keys(...)"


@dataclass(frozen=True)
class Offer:
    """Where a participant listens for one peer, and what that peer must know; without an address it only dials."""

    secret: bytes = field(repr=False)
    address: str = ""

    @classmethod
    def fresh(cls, address: str = "") -> Offer:
        """An offer with a new secret."""
        return cls(os.urandom(_SECRET_BYTES), address)

    @classmethod
    def read(cls, raw: bytes, peer: str) -> Offer:
        """The offer in these bytes, which came from this peer."""
        size = raw[_SECRET_BYTES] if len(raw) == OFFER_BYTES else -1
        secret, text = raw[:_SECRET_BYTES], raw[_SECRET_BYTES + 1 :]
        if size < 0 or any(text[size:]) or (size and not is_address(text[:size].decode("ascii", "replace"))):
            raise ProtocolError(f"{peer} says that it listens at something that is no address [MS078]")
        return cls(secret, text[:size].decode("ascii"))

    def to_bytes(self) -> bytes:
        """The offer as bytes, always equally many."""
        text = self.address.encode("ascii")
        return (self.secret + bytes((len(text),)) + text).ljust(OFFER_BYTES, b"\0")

    @property
    def name(self) -> bytes:
        """By what a listener finds the offer again."""
        return self._hash(b"name")[:_NAME_BYTES]

    def greeting(self, nonce: bytes) -> bytes:
        """What whoever dials says first."""
        return b"".join((_MAGIC, self.name, nonce, self._hash(b"dials", nonce)))

    def answer(self, theirs: bytes, nonce: bytes) -> bytes:
        """What the listener answers to a greeting that proved to know the secret."""
        return nonce + self._hash(b"listens", theirs, nonce)

    def check_greeting(self, greeting: bytes) -> bytes:
        """The nonce of a greeting; an error unless it proves to know the secret."""
        nonce = greeting[-_NONCE_BYTES - _PROOF_BYTES : -_PROOF_BYTES]
        if not hmac.compare_digest(greeting, self.greeting(nonce)):
            raise StrangerError("whoever dialled does not know the secret [MS079]")
        return nonce

    def check_answer(self, answer: bytes, own: bytes) -> bytes:
        """The nonce of an answer; an error unless it proves to know the secret."""
        nonce = answer[:_NONCE_BYTES]
        if not hmac.compare_digest(answer, self.answer(own, nonce)):
            raise StrangerError("whoever listens there is not who offered it [MS080]")
        return nonce

    def keys(self, dialled: bytes, listened: bytes, *, dials: bool) -> Keys:
        """The keys of the connection that began with these two nonces."""
        there = self._hash(b"from the one that dials", dialled, listened)
        back = self._hash(b"from the one that listens", dialled, listened)
        return Keys(there, back) if dials else Keys(back, there)

    def _hash(self, *parts: bytes) -> bytes:
        return hmac.digest(self.secret, b"\0".join((_MAGIC, *parts)), "sha256")


def name_in(greeting: bytes) -> bytes:
    """The name of the offer that a greeting means; an error if it is no greeting."""
    if not greeting.startswith(_MAGIC):
        raise StrangerError("whoever dialled said something else than a greeting [MS081]")
    return greeting[len(_MAGIC) : len(_MAGIC) + _NAME_BYTES]


def fresh_nonce() -> bytes:
    """A nonce that nobody has used."""
    return os.urandom(_NONCE_BYTES)


def is_address(text: str) -> bool:
    """Whether a text is ``host:port``, and fits into an offer."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and len(text) <= _LONGEST_ADDRESS and int(found[1]) < 1 << 16


def read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes, all of them before the deadline; an OSError otherwise."""
    data = b""
    while len(data) < size:
        connection.settimeout(max(deadline - monotonic(), 1e-3))
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the other end hung up")
        data += more
        if monotonic() > deadline:
            raise TimeoutError("timed out")
    return data
