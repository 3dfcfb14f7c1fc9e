"""A study in lanes: its section, the workers of a participant, and the head that uses them."""
