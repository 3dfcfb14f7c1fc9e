"""How we compute on what nobody sees."""
