"""Split networks: every party keeps an encoder of its own columns, and a head joins their embeddings."""
