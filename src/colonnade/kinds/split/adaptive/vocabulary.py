"""Messages of adaptive embeddings, besides the numbers that parties tell each other."""

from __future__ import annotations

from colonnade.randomness import KEY_BYTES
from colonnade.received import Message, Octets

SHUFFLE = Message("shuffle", key=Octets(KEY_BYTES))
"""From which everybody finds who is in which batch, from the active party to the other owners."""
