"""Tokens with which programs of this machine ask an agent: each in a file that its owner alone can read."""

from __future__ import annotations

import hmac
from pathlib import Path

from colonnade.disk import reading, writing
from colonnade.errors import StorageError
from colonnade.randomness import new_key

_TOKEN_DIGITS = 64
METRICS_TOKEN = "metrics.token"  # noqa: S105 - the name of a file


def private_token(path: Path) -> str:
    """The token with which programs of this machine ask, made if there is none; its owner alone can read it."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            writing.write_files({path: f"{new_key().hex()}\n".encode()}, private=True)
        if path.stat().st_mode & 0o077:
            raise StorageError(f"{path} can be read by others: make it private with `chmod 600` [SO031]")
        text = reading.read_text(path).strip()
    except OSError as error:
        raise StorageError(f"{path} cannot be used: {error.strerror} [SO032]") from None
    except (reading.UnreadableFile, reading.MalformedFile) as error:
        raise StorageError(f"{path} cannot be read: {error} [SO033]") from None
    if len(text) != _TOKEN_DIGITS or not text.isalnum():
        raise StorageError(f"{path} holds no token: delete it, and a new one is made [SO034]")
    return text


def knows_token(authorization: str, path: Path) -> bool | None:
    """Whether a request's header shows the token in this file; ``None`` if it shows another."""
    shown = shows_token(authorization, private_token(path))
    return None if authorization and not shown else shown


def shows_token(authorization: str, token: str) -> bool:
    """Whether a request's header shows this token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
