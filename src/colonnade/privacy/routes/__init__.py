"""The proven ways from releases to epsilon and delta, one module each."""
