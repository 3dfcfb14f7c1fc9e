"""Files on disk: only regular ones of a bounded size are read, and they are written as a whole or not at all."""
