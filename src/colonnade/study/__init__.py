"""What is asked, of whom, at what price, and what came of it."""
