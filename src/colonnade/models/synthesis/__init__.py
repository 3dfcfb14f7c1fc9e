"""Made-up people from noisy marginals: models that fit them, tables drawn from those, and what they are worth."""
