"""Joint sums: one set of seats, one program for each role, one release, whatever is summed."""
