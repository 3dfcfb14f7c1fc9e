"""Sums over all people of polynomials in columns that nobody holds together.

Paper: SQM, Algorithms 1 to 3, for any polynomial. Theorem: docs/theory/polynomial-sensitivity.md.

What leaves: the sums, with noise, opened once.

Reading order:

- ``model``: ``PolynomialSum`` and ``polynomial_sum``, which a data scientist calls.
- ``expressions``: from text to polynomials.
- ``task``, ``programs``: the integer program and the protocol; ``sensitivity``: how far one person moves the sums.
- ``report``: how a person sees the result.
- ``audit``: the games.
"""
