"""Scores of new people by a public model, for one party."""
