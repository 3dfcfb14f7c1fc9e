"""A repeatable source of randomness, for tests only: whoever knows the seed knows every secret."""

from __future__ import annotations

import hashlib
import warnings

from colonnade.randomness import Stream

warnings.warn(
    "colonnade.testing makes repeatable, insecure randomness; it is for tests only",
    stacklevel=2,
)


def seeded(seed: int) -> Stream:
    """A stream that a small integer determines."""
    return Stream(hashlib.sha256(f"colonnade test stream {seed}".encode()).digest())
