"""Sums of polynomials over all people."""
