"""Tools for tests. Nothing outside the test suite may import from here, but for ``colonnade audit --twins``."""
