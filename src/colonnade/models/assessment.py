"""How good probabilities are, where the true labels are known: ranking, calibration, and what a threshold decides."""
