"""Products of second moments with few directions, round by round."""
