"""How a study finds the people whom all parties hold."""
