"""Second moments of all columns, in one release."""
