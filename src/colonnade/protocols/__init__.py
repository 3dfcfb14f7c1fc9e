"""Who says what to whom."""
