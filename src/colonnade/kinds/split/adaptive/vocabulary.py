"""Messages of adaptive embeddings, besides the numbers that parties tell each other."""

from __future__ import annotations

from colonnade.message_schema import FixedBytes, MessageSchema
from colonnade.randomness import KEY_BYTES

SHUFFLE = MessageSchema("shuffle", key=FixedBytes(KEY_BYTES))
"""From which everybody finds who is in which batch, from the active party to the other owners."""
