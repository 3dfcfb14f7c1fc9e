"""Linear and logistic regression on columns of all parties."""
