"""Levels of new people's scores, answered at random, for one party."""
