"""All marginals of coded columns, in one release."""
