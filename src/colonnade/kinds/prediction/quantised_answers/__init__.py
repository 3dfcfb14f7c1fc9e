"""Quantised answers."""
