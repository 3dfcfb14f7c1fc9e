"""How we compute on what nobody sees."""

from colonnade.mpc.committee import Committee, Hand, Link, Shares, beside
from colonnade.mpc.residues import PRIMES, ResidueSystem

__all__ = ["PRIMES", "Committee", "Hand", "Link", "ResidueSystem", "Shares", "beside"]
