"""The versions of Colonnade and of what it stands on, as they are installed here."""

from __future__ import annotations

import platform
import unicodedata
from functools import cache

_LIBRARIES = (
    "numpy",
    "scipy",
    "pyarrow",
    "scikit-learn",
    "cryptography",
    "grpcio",
    "python-flint",
    "pynacl",
    "pydantic",
)
_OPTIONAL = ("torch", "clkhash")
_SHOWN = ("colonnade", "Python", "numpy", "pyarrow", "pynacl")


@cache
def own_version() -> str:
    """The version of Colonnade as it was installed; of a bare folder of sources nobody knows it."""
    from importlib.metadata import PackageNotFoundError, version  # takes long, and is seldom needed

    try:
        return version("colonnade")
    except PackageNotFoundError:
        return "0+unknown"


@cache
def installed_versions() -> dict[str, str]:
    """The version of each, by name; nothing is imported to find it, and nothing else of the machine is told."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"colonnade": own_version(), "Python": platform.python_version(), "Unicode": unicodedata.unidata_version}
    for name in (*_LIBRARIES, *_OPTIONAL):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name in _LIBRARIES:
                found[name] = "not installed"
    return found


def __getattr__(name: str) -> str:
    if name == "__version__":  # of the package, which asks for it here
        return own_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def versions_text() -> str:
    """The versions that bear on the rules that participants must have in common, in a few words."""
    found = installed_versions()
    return ", ".join(f"{name} {found[name]}" for name in _SHOWN)
