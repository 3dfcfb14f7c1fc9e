"""Logistic regression by noisy gradients of batches."""
