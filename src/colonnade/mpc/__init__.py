"""How the participants compute on numbers that none of them sees."""

from colonnade.mpc.committee import Committee, Link
from colonnade.mpc.hand import Hand
from colonnade.mpc.residues import PRIMES, ResidueSystem
from colonnade.mpc.shares import Shares, beside

__all__ = ["PRIMES", "Committee", "Hand", "Link", "ResidueSystem", "Shares", "beside"]
