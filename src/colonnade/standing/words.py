"""A fingerprint as six words, which two people can compare on the telephone.

Six of 2,048 words are 66 bits of a hash that takes a moment to compute. Whoever wants to put a key of its own between
two people must find one whose words are the same as those at the other end, and each try costs that moment;
``docs/how-to/federation.md`` says how probable that is.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import scrypt
from importlib import resources

COUNT = 6
_BITS = 11
_DOMAIN = b"colonnade six words 1"
_COST = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 1 << 26}


@lru_cache(maxsize=4096)
def six_words(fingerprint: str, *more: str) -> str:
    """Six words, with blanks between them, for a fingerprint, or for several things that belong together."""
    said = b"".join(len(part).to_bytes(4) + part for part in (text.encode() for text in (fingerprint, *more)))
    number = int.from_bytes(scrypt(said, salt=_DOMAIN, dklen=9, **_COST))
    return " ".join(words()[number >> _BITS * place & (1 << _BITS) - 1] for place in range(COUNT))


@cache
def words() -> tuple[str, ...]:
    """All words, in the order of the alphabet."""
    return tuple((resources.files("colonnade.standing") / "words.txt").read_text("ascii").split())
