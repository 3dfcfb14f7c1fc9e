"""What an observer can learn, and what is left of the budget."""
