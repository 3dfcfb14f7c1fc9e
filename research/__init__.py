"""The papers' figures again, and the real data sets for them: run from the repository, not part of the wheel."""
