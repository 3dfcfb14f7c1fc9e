"""How we compute on what nobody sees."""

from colonnade.mpc.committee import Committee, Link
from colonnade.mpc.hand import Hand, Shares
from colonnade.mpc.residues import PRIMES, ResidueSystem

__all__ = ["PRIMES", "Committee", "Hand", "Link", "ResidueSystem", "Shares"]
