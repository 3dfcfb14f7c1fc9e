"""Colonnade: differentially private learning on vertically partitioned data, with no trusted party."""
