"""How a party's columns become a bounded matrix."""
