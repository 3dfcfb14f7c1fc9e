"""Embeddings of records, which parties tell the one with the label: clipped, scaled by public figures, and noised."""
