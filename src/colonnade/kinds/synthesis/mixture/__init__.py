"""Mixtures of products, fitted to columns that stay with their owners."""
