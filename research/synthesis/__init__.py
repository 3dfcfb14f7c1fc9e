"""Synthetic tables of real data sets: how useful they are, beside peers that need all data in one place."""
