"""The passphrase of a private key: from the environment, the system's keyring, or whoever sits at the terminal."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from importlib import import_module
from pathlib import Path
from typing import Any

from colonnade.errors import IdentityError

VARIABLE = "COLONNADE_KEY_PASSPHRASE"
SERVICE = "colonnade"
"""Under which the keyring has passphrases, by the paths of keys."""


def keyring() -> Any:
    """The library for the system's keyring; ``None`` where it is not installed."""
    try:
        return import_module("keyring")
    except ImportError:
        return None


def read_passphrase(key: Path) -> bytes:
    """The passphrase of this key; one that was typed is known to the processes that this one starts, and to no file."""
    found = os.environ.get(VARIABLE)
    if found is None and (ring := keyring()) is not None:
        found = ring.get_password(SERVICE, str(key.resolve()))
    if found is None and sys.stdin.isatty():
        found = os.environ[VARIABLE] = getpass(f"passphrase of {key}: ")
    if not found:
        raise IdentityError(
            f"{key} is encrypted: put its passphrase into {VARIABLE} or the system's keyring, or start this at a "
            "terminal [ID781]"
        )
    return found.encode()
