"""How the participants compute on numbers that none of them sees."""

from colonnade.mpc.committee import Committee, PeerLink, Shares, concatenate_columns
from colonnade.mpc.engine import ShareEngine
from colonnade.mpc.residues import PRIMES, ResidueSystem

__all__ = ["PRIMES", "Committee", "PeerLink", "ResidueSystem", "ShareEngine", "Shares", "concatenate_columns"]
