"""Checks of each other's work: what seats claim of their shares, and how they settle it before anything is opened.

docs/theory/active-security.md has the theorems.
"""
