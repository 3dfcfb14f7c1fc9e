"""Sums over people, before noise: what a participant holds when all rows were added up and nothing is opened yet.

A protocol that releases such sums has two steps: it adds rows up, and it releases the sum of what was added up. Sums of
several parts of the people are added in between, so the first step can be taken part by part (``protocols/lanes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import Hand, Shares
from colonnade.mpc.residues import Integers
from colonnade.protocols.on_shares import OnShares
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows

AnyRole = TypeVar("AnyRole", bound=Role)


@dataclass(frozen=True)
class Sums:
    """One participant's part of some sums; an owner without a seat has no shares, and a seat without columns no own."""

    rows: int
    """How many rows, or slots of a universe, were added up."""
    own: Integers | None = None
    """What this owner added up in the clear; zeros where products of its own columns are on shares too."""
    shares: Shares | None = None
    """This seat's shares of the rest."""


class Additive(Protocol):
    """The programs of a protocol that adds people up and releases the sums once; modules are such programs."""

    def owner(self, me: Owner, table: Rows, task: Any) -> Any:
        """An owner's program: it adds all of its rows up, and releases the sums."""

    def coordinator(self, me: Coordinator, task: Any) -> Any:
        """The coordinator's program."""

    def added_up(self, me: Role, summing: Role, task: Any, table: Rows | None = None, *, part: bool = False) -> Sums:
        """All rows, dealt, multiplied and forgotten; with ``part`` these are some of them, or none."""

    def own_noise(self, me: Owner, task: Any) -> NDArray[np.int64]:
        """What an owner adds to the sums."""

    def release(self, me: Role, sums: Sums, task: Any, noise: NDArray[np.int64] | None = None) -> Any:
        """Add every owner's noise to the sums and open them, once; ``me`` computes in the arithmetic of sums."""


def over_sums(me: AnyRole, task: OnShares) -> AnyRole:
    """The same participant in the arithmetic of sums, if proofs take more primes."""
    return me.over(task.for_sums) if task.proven else me


def together(hand: Hand, parts: Sequence[Sums]) -> Sums:
    """The sums of several parts of the people, all of them computed by the same participants."""
    if not parts:
        raise ValueError("nothing was added up [VA152]")
    own = [part.own for part in parts if part.own is not None]
    shares = [part.shares for part in parts if part.shares is not None]
    if len(own) not in (0, len(parts)) or len(shares) not in (0, len(parts)):
        raise ValueError("parts of sums are of the same participant [VA153]")
    if len({part.degree for part in shares}) > 1:
        raise ValueError("parts of sums have the same degree [VA154]")
    return Sums(
        sum(part.rows for part in parts),
        sum(own[1:], start=own[0]) if own else None,
        hand.add(shares) if shares else None,
    )
