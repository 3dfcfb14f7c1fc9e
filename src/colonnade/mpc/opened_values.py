"""Opened numbers on their way to participants that did not take part in the opening."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from colonnade.errors import ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import PeerLink
from colonnade.mpc.residues import Integers, ResidueSystem


def send_opened(values: Integers, links: Iterable[PeerLink], system: ResidueSystem) -> None:
    """Send opened values by these links."""
    flat = values.reshape(-1)
    plain = values if values.dtype == np.int64 else [str(value).rjust(_longest_number(system)) for value in flat]
    for link in links:
        link.send("opened", values=plain)


def receive_opened(opener: str, link: PeerLink, shape: Sequence[int], bound: int, system: ResidueSystem) -> Integers:
    """The values that ``opener`` opened, which must have this shape and be at most ``bound`` in magnitude."""
    narrow, due = bound < 2**63, tuple(shape)
    message = messages.opened_message(due) if narrow else messages.wide_opened_message(due, _longest_number(system))
    values: Any = receive_message(link, opener, message)["values"]
    if not narrow:
        values = np.array([int(value) for value in values], dtype=object).reshape(due)
    if values.size and max(int(values.max()), -int(values.min())) > bound:
        raise ShareError(f"{opener} told an opened value that is larger than any honest one could be [SH009]")
    opened: Integers = values
    return opened


def _longest_number(system: ResidueSystem) -> int:
    """The length of the longest number as text: all are padded to it, so that no length depends on a value."""
    return len(str(system.modulus)) + 1
