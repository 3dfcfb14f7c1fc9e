"""Scores of new people by weights that every party keeps."""
