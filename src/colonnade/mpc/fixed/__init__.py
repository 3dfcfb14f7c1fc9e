"""Numbers with fractional bits on shares: arithmetic, functions, masks, bits."""
