"""The drawings of the documentation: ``make drawings`` writes them all, and a test compares them with what is there."""
