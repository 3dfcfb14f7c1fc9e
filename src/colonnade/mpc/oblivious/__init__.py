"""A keyed function of two parties: one has the key, the other learns values for its own keys and no others."""
