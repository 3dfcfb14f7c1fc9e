"""Generalised linear models over noised messages."""
