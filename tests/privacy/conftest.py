"""A release of two owners with a coordinator on the committee, which most ledgers and statements here are about."""

from __future__ import annotations

from fractions import Fraction

from colonnade.privacy.events import SkellamRelease
from colonnade.privacy.observers import Trust

TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
EVENT = SkellamRelease(
    "moments", (("bank", Fraction(10**12)), ("shop", Fraction(10**12))), 9, 10**6, 10**12, 2 * 10**6,
    2 * 10**12, 1e-30, "moments-sensitivity",
)  # fmt: skip
