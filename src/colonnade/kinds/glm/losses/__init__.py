"""Losses of generalised linear models, and the labels that they take."""
