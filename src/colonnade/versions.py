"""The versions of Colonnade and of what it stands on, as they are installed here."""

from __future__ import annotations

import platform
import unicodedata
from functools import cache

COLONNADE = "0.1.0"

_LIBRARIES = ("numpy", "scipy", "pyarrow", "scikit-learn", "cryptography", "grpcio", "python-flint", "rbcl", "pydantic")
_OPTIONAL = ("torch", "clkhash")
_TOLD = ("colonnade", "Python", "numpy", "pyarrow", "rbcl")


@cache
def installed() -> dict[str, str]:
    """The version of each, by name; nothing is imported to find it, and nothing else of the machine is told."""
    from importlib.metadata import PackageNotFoundError, version  # takes long, and is seldom needed

    found = {"colonnade": COLONNADE, "Python": platform.python_version(), "Unicode": unicodedata.unidata_version}
    for name in (*_LIBRARIES, *_OPTIONAL):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name in _LIBRARIES:
                found[name] = "not installed"
    return found


def in_words() -> str:
    """The versions that bear on the rules that participants must have in common, in a few words."""
    found = installed()
    return ", ".join(f"{name} {found[name]}" for name in _TOLD)
