"""Tools for tests. Besides tests, only ``colonnade audit --twins`` and the twins of kinds import from here."""
